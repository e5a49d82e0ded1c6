//! A request and the redirects that it leads to.
//!
//! The library can follow redirects too, but would send values of the executor's variables to whatever origin a redirect
//! names.

use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION, REFERER, TRANSFER_ENCODING,
};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::classify;
use super::connect::Ready;
use super::prepare::Prepared;
use crate::http::error::origin;
use crate::http::{HttpError, MAX_REDIRECTS, Redirects};

/// Makes the request; returns the response that is no redirect to be followed.
pub(super) async fn follow(ready: &Ready, mut prepared: Prepared) -> Result<Response, HttpError> {
    let sets_referer = !prepared.headers.contains_key(REFERER);
    for followed in 0..=MAX_REDIRECTS {
        let sent = send(ready, &prepared).await;
        let response = if followed == 0 { sent? } else { sent.map_err(after_a_redirect)? };
        let Some(next) = redirect_of(&prepared, &response) else { return Ok(response) };
        if !matches!(next.scheme(), "http" | "https") {
            return Err(HttpError::RedirectScheme { origin: origin(&prepared.url), scheme: next.scheme().into() });
        }
        super::prepare::check_scheme(&next)?;
        advance(&mut prepared, response.status(), next, sets_referer);
    }
    Err(HttpError::TooManyRedirects { origin: origin(&prepared.url), limit: MAX_REDIRECTS })
}

/// A host before this one has carried out what was asked, so that nothing may sound as if it could be asked again.
fn after_a_redirect(error: HttpError) -> HttpError {
    let reason = error.to_string();
    match error {
        HttpError::NameNotResolved { origin, .. }
        | HttpError::ConnectionRefused { origin }
        | HttpError::Connect { origin, .. } => {
            HttpError::Failed { origin, reason: format!("after a redirect, {reason}") }
        }
        other => other,
    }
}

async fn send(ready: &Ready, prepared: &Prepared) -> Result<Response, HttpError> {
    if prepared.url.scheme() == "https"
        && let Some(reason) = &ready.distrust
    {
        return Err(HttpError::Connect { origin: origin(&prepared.url), reason: reason.clone() });
    }
    let mut request =
        ready.client.request(prepared.method.clone(), prepared.url.clone()).headers(prepared.headers.clone());
    if let Some(body) = &prepared.body {
        request = request.body(body.clone());
    }
    request.send().await.map_err(|error| classify::exchange(&error, &prepared.url, ready.by_proxy))
}

/// Where a redirect leads. None if it is none, is not to be followed, or names no place.
fn redirect_of(prepared: &Prepared, response: &Response) -> Option<Url> {
    if prepared.redirects == Redirects::Stop || !is_redirect(response.status()) {
        return None;
    }
    let location = std::str::from_utf8(response.headers().get(LOCATION)?.as_bytes()).ok()?;
    prepared.url.join(location).ok()
}

const fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Turns the request into the one that the redirect asks for.
fn advance(prepared: &mut Prepared, status: StatusCode, next: Url, sets_referer: bool) {
    let becomes_get = match status.as_u16() {
        301 | 302 => prepared.method == Method::POST,
        303 => prepared.method != Method::HEAD && prepared.method != Method::GET,
        _ => false,
    };
    if becomes_get {
        prepared.method = Method::GET;
        prepared.body = None;
        for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING] {
            prepared.headers.remove(name);
        }
    }
    let same_origin = prepared.url.origin() == next.origin();
    if !same_origin {
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, HOST] {
            prepared.headers.remove(name);
        }
        for name in prepared.secret.drain(..) {
            prepared.headers.remove(name);
        }
    }
    if sets_referer {
        match referer(&prepared.url, &next, same_origin) {
            Some(referer) => prepared.headers.insert(REFERER, referer),
            None => prepared.headers.remove(REFERER),
        };
    }
    prepared.url = next;
}

/// Another origin is told no more than the origin, and one that can be overheard nothing that could not.
fn referer(from: &Url, to: &Url, same_origin: bool) -> Option<HeaderValue> {
    if from.scheme() == "https" && to.scheme() != "https" {
        return None;
    }
    if !same_origin {
        return HeaderValue::from_str(&format!("{}/", origin(from))).ok();
    }
    let mut from = from.clone();
    // These cannot fail for a URL with a host.
    let _cleared = from.set_username("").and_then(|()| from.set_password(None));
    from.set_fragment(None);
    HeaderValue::from_str(from.as_str()).ok()
}
