//! Trust in certificates, for whatever of this crate speaks TLS.

use std::sync::Arc;

use bytes::Bytes;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;

/// A client that trusts what the platform trusts, and the further roots (DER); and why that is nothing, if so. May read the
/// platform's roots from files.
pub(crate) fn client(extra_roots: &[Bytes]) -> Result<(ClientConfig, Option<String>), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let roots = extra_roots.iter().map(|der| CertificateDer::from(der.to_vec()));
    let (builder, distrust) = match Verifier::new_with_extra_roots(roots, provider) {
        Ok(verifier) => (builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)), None),
        Err(error) => {
            let reason = format!("no certificate can be checked: {error}");
            (builder.with_root_certificates(rustls::RootCertStore::empty()), Some(reason))
        }
    };
    Ok((builder.with_no_client_auth(), distrust))
}
