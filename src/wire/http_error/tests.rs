use super::*;
use crate::error::PeerMisbehaved;

const ORIGIN: &str = "http://asked.example";

fn every_error() -> Vec<HttpError> {
    let (origin, reason) = (|| String::from("https://there.example:8443"), || String::from("because"));
    let (name, variable) = (|| String::from("X-A"), || String::from("VARIABLE"));
    vec![
        InvalidHttpRequest::Method { reason: reason() }.into(),
        InvalidHttpRequest::Url { reason: reason() }.into(),
        InvalidHttpRequest::Scheme { scheme: "ftp".into() }.into(),
        InvalidHttpRequest::HeaderName { reason: reason() }.into(),
        InvalidHttpRequest::HeaderValue { name: name(), reason: reason() }.into(),
        InvalidHttpRequest::VariableNotSet { name: name(), variable: variable() }.into(),
        InvalidHttpRequest::VariableEmpty { name: name(), variable: variable() }.into(),
        InvalidHttpRequest::VariableProtected { name: name(), variable: variable() }.into(),
        InvalidHttpRequest::IdInUse { id: "a`b".into() }.into(),
        InvalidHttpRequest::Other(reason()).into(),
        HttpError::NameNotResolved { origin: origin(), reason: reason() },
        HttpError::ConnectionRefused { origin: origin() },
        HttpError::Connect { origin: origin(), reason: reason() },
        HttpError::Certificate { origin: origin(), reason: reason() },
        HttpError::TimedOut { origin: origin(), in_body: false },
        HttpError::TimedOut { origin: origin(), in_body: true },
        HttpError::TooManyRedirects { origin: origin(), limit: MAX_REDIRECTS },
        HttpError::RedirectScheme { origin: origin(), scheme: "ftp".into() },
        HttpError::BodyTooLarge { limit: 5 },
        HttpError::BodyCut { origin: origin(), reason: reason() },
        HttpError::Overflow { limit: 5 },
        HttpError::Failed { origin: origin(), reason: reason() },
        Busy { limit: 5 }.into(),
        Disconnected { sent: Sent::NotSent, reason: "gone".into() }.into(),
        Disconnected { sent: Sent::Unknown, reason: "gone".into() }.into(),
        HttpError::Closed,
    ]
}

#[test]
fn every_error_comes_back_through_the_extension() {
    for error in every_error() {
        assert_eq!(from_rpc(to_rpc(&error, true), ORIGIN), error);
        let (text, extension) = to_delta(&error, true);
        assert_eq!(from_delta(&text, extension.as_ref(), ORIGIN), error);
    }
}

#[test]
fn a_plain_peer_is_told_by_code_and_text() {
    for error in every_error() {
        let answer = to_rpc(&error, false);
        assert_eq!(answer.data, None);
        let back = from_rpc(answer, ORIGIN);
        match error {
            // The text of one that is not known is the whole of it.
            HttpError::InvalidRequest(_) => assert_eq!(back, error),
            HttpError::TooManyRedirects { limit, .. } => {
                assert_eq!(back, HttpError::TooManyRedirects { origin: ORIGIN.into(), limit });
            }
            HttpError::BodyCut { .. } | HttpError::BodyTooLarge { .. } | HttpError::TimedOut { in_body: true, .. } => {
                assert!(matches!(back, HttpError::BodyCut { .. }), "{back:?}");
            }
            _ => assert!(matches!(back, HttpError::Failed { .. }), "{back:?}"),
        }
    }
}

#[test]
fn texts_are_those_of_the_reference() {
    let invalid = |invalid: InvalidHttpRequest| to_rpc(&invalid.into(), false);
    let (name, variable) = (|| String::from("X"), || String::from("N"));
    let cases = [
        (
            InvalidHttpRequest::Scheme { scheme: "ftp".into() },
            "http/request only supports http and https URLs, got ftp",
        ),
        (
            InvalidHttpRequest::VariableNotSet { name: name(), variable: variable() },
            "http/request header X requires executor environment variable N",
        ),
        (
            InvalidHttpRequest::VariableEmpty { name: name(), variable: variable() },
            "http/request header X requires a non-empty executor environment variable N",
        ),
        (
            InvalidHttpRequest::VariableProtected { name: name(), variable: variable() },
            "http/request header X cannot use executor environment variable N",
        ),
        (
            InvalidHttpRequest::IdInUse { id: "s-1".into() },
            "http/request streamResponse requestId `s-1` is already active",
        ),
    ];
    for (error, text) in cases {
        assert_eq!(invalid(error), RpcError { code: -32602, message: text.into(), data: None });
    }
}

#[test]
fn urls_in_the_peers_texts_are_not_shown() {
    let texts = [
        "http/request failed: error sending request for url (http://user:hunter2@x/?k=hunter2 (a) b)",
        "failed to read http/request response body: http://user:hunter2@x/?k=hunter2",
        "something about https://x/?k=hunter2 and more",
    ];
    for code in [-32603, -32602, -32600] {
        for text in texts {
            let error = from_rpc(RpcError { code, message: text.into(), data: Some("\"hunter2\"".into()) }, ORIGIN);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
    let error = from_rpc(RpcError { code: -32603, message: texts[0].into(), data: None }, ORIGIN);
    assert_eq!(error, HttpError::Failed { origin: ORIGIN.into(), reason: "error sending request".into() });
    let data = r#"{"longarm":{"kind":"connectionRefused","origin":"http://user:hunter2@x/"}}"#;
    let error = from_rpc(RpcError { code: -32603, message: String::new(), data: Some(data.into()) }, ORIGIN);
    assert_eq!(error, HttpError::ConnectionRefused { origin: ORIGIN.into() });
}

#[test]
fn what_is_not_known_survives() {
    let answer = RpcError { code: 7, message: "odd".into(), data: None };
    assert_eq!(from_rpc(answer.clone(), ORIGIN), HttpError::Remote(answer.clone()));
    assert_eq!(to_rpc(&HttpError::Remote(answer.clone()), true), answer);
    let own = HttpError::Peer(PeerMisbehaved::Protocol("odd".into()));
    assert_eq!(to_rpc(&own, true).data, None);
    let not_found = RpcError { code: -32601, message: "no".into(), data: None };
    assert!(matches!(from_rpc(not_found, ORIGIN), HttpError::Unsupported(_)));
}
