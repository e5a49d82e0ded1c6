//! Checks a request, and gives it the form of the library.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::LocalHttpConfig;
use crate::error::Unsupported;
use crate::http::{HttpError, HttpRequest, InvalidHttpRequest, Redirects, RequestHeader};

/// A request that can be made.
pub(super) struct Prepared {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// Those with values from variables.
    pub(super) secret: Vec<HeaderName>,
    pub(super) body: Option<Bytes>,
    pub(super) redirects: Redirects,
}

impl Prepared {
    pub(super) fn new(request: HttpRequest, config: &LocalHttpConfig) -> Result<Self, HttpError> {
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|error| InvalidHttpRequest::Method { reason: error.to_string() })?;
        let url = Url::parse(&request.url).map_err(|error| InvalidHttpRequest::Url { reason: error.to_string() })?;
        check_scheme(&url)?;
        let mut headers = HeaderMap::new();
        let mut secret = Vec::new();
        for header in request.headers {
            let name = HeaderName::from_bytes(header.name.as_bytes())
                .map_err(|error| InvalidHttpRequest::HeaderName { reason: error.to_string() })?;
            let value = value_of(&header, config)?;
            if header.variable.is_some() {
                secret.push(name.clone());
            }
            headers.append(name, value);
        }
        Ok(Self { method, url, headers, secret, body: request.body, redirects: request.redirects })
    }
}

pub(super) fn check_scheme(url: &Url) -> Result<(), HttpError> {
    match url.scheme() {
        "http" => Ok(()),
        "https" if cfg!(feature = "tls") => Ok(()),
        "https" => {
            Err(Unsupported { feature: "https", place: "an executor built without the feature `tls`".into() }.into())
        }
        scheme => Err(InvalidHttpRequest::Scheme { scheme: scheme.into() }.into()),
    }
}

fn value_of(header: &RequestHeader, config: &LocalHttpConfig) -> Result<HeaderValue, InvalidHttpRequest> {
    let mut value = header.value.clone().into_bytes();
    if let Some(variable) = &header.variable {
        let (name, variable) = (header.name.clone(), variable.clone());
        if config.is_protected(&variable) {
            return Err(InvalidHttpRequest::VariableProtected { name, variable });
        }
        match config.variable(&variable) {
            None => return Err(InvalidHttpRequest::VariableNotSet { name, variable }),
            Some(found) if found.is_empty() => return Err(InvalidHttpRequest::VariableEmpty { name, variable }),
            Some(found) => value.extend_from_slice(found.as_encoded_bytes()),
        }
    }
    let mut value = HeaderValue::from_bytes(&value)
        .map_err(|error| InvalidHttpRequest::HeaderValue { name: header.name.clone(), reason: error.to_string() })?;
    value.set_sensitive(true);
    Ok(value)
}
