//! Tells apart why an exchange failed.

use std::error::Error;
use std::fmt;
use std::io;

use url::Url;

use crate::http::HttpError;
use crate::http::error::origin;

/// No address was found for a name.
#[derive(Debug)]
pub(super) struct Unresolved(pub(super) io::Error);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Unresolved {}

/// Why there is no response. `by_proxy`: what was refused may have been the connection to a proxy.
pub(super) fn exchange(error: &reqwest::Error, url: &Url, by_proxy: bool) -> HttpError {
    let origin = origin(url);
    let mut reason = String::new();
    let mut refused = false;
    for cause in Causes::of(error) {
        reason = cause.to_string();
        if let Some(unresolved) = cause.downcast_ref::<Unresolved>() {
            return HttpError::NameNotResolved { origin, reason: unresolved.to_string() };
        }
        if let Some(reason) = distrusted(cause) {
            return HttpError::Certificate { origin, reason };
        }
        let cause = cause.downcast_ref::<io::Error>();
        refused |= cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused);
    }
    if refused && !by_proxy {
        return HttpError::ConnectionRefused { origin };
    }
    if error.is_connect() { HttpError::Connect { origin, reason } } else { HttpError::Failed { origin, reason } }
}

/// Why a body ended early.
pub(super) fn body(error: &reqwest::Error, origin: String) -> HttpError {
    let reason = Causes::of(error).last().map_or_else(|| "no cause is known".into(), ToString::to_string);
    HttpError::BodyCut { origin, reason }
}

#[cfg(feature = "tls")]
fn distrusted(cause: &(dyn Error + 'static)) -> Option<String> {
    match cause.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(reason) => Some(reason.to_string()),
        error @ rustls::Error::NoCertificatesPresented => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(not(feature = "tls"))]
const fn distrusted(_cause: &(dyn Error + 'static)) -> Option<String> {
    None
}

/// The causes below the library's own error, whose text has the URL. What an I/O error wraps counts as one.
struct Causes<'a>(Option<&'a (dyn Error + 'static)>);

impl<'a> Causes<'a> {
    fn of(error: &'a reqwest::Error) -> Self {
        Self(error.source())
    }
}

impl<'a> Iterator for Causes<'a> {
    type Item = &'a (dyn Error + 'static);

    fn next(&mut self) -> Option<Self::Item> {
        let cause = self.0?;
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        self.0 = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
        Some(cause)
    }
}
