//! TLS under a client's WebSocket.

use tokio::net::TcpStream;

use super::client::{ConnectOptions, Target};
use super::io::Io;
use crate::error::ConnectError;

/// Makes a connection secure, by a certificate for the target's host.
#[cfg(feature = "tls")]
pub(super) async fn secure(stream: TcpStream, target: &Target, options: &ConnectOptions) -> Result<Io, ConnectError> {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;

    let name = ServerName::try_from(target.host.clone()).map_err(|error| target.invalid(&error.to_string()))?;
    let roots = options.extra_roots().to_vec();
    // It may read files.
    let made = crate::blocking::run(move || crate::tls::client(&roots)).await;
    let (config, distrust) = match made {
        Ok(made) => made.map_err(|reason| untrusted(target, reason))?,
        Err(why) => return Err(target.unreachable(why.into())),
    };
    match tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => Ok(Io::Tls(Box::new(stream))),
        Err(error) => Err(explain(error, target, distrust)),
    }
}

#[cfg(feature = "tls")]
fn untrusted(target: &Target, reason: String) -> ConnectError {
    ConnectError::Certificate { address: target.shown.clone(), reason }
}

/// What went wrong in a TLS handshake. What the system says may pass; what the other side says stays.
#[cfg(feature = "tls")]
fn explain(error: std::io::Error, target: &Target, distrust: Option<String>) -> ConnectError {
    use crate::error::PeerMisbehaved;

    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            untrusted(target, distrust.unwrap_or_else(|| reason.to_string()))
        }
        Some(error @ rustls::Error::NoCertificatesPresented) => untrusted(target, error.to_string()),
        Some(error) => ConnectError::Peer(PeerMisbehaved::Malformed { reason: format!("TLS: {error}") }),
        None => target.unreachable(error),
    }
}

/// There is no such target without the feature.
#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "with the feature it waits")]
pub(super) async fn secure(_: TcpStream, target: &Target, _: &ConnectOptions) -> Result<Io, ConnectError> {
    Err(target.invalid("wss needs the feature `tls`"))
}
