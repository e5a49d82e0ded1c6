//! HTTP requests that the reference's own server makes.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::Duration;

use longarm::ExecBackend as _;
use longarm::error::Sent;
use longarm::http::{HttpClient, HttpError, HttpRequest, InvalidHttpRequest, Redirects};
use longarm::testing::http_server::HttpServer;

use super::{PATIENCE, Reference, within};

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await.expect("in time")
}

async fn http(reference: &Reference) -> Arc<dyn HttpClient> {
    reference.connect().await.http().expect("HTTP")
}

#[tokio::test]
async fn bodies_come_whole_and_as_streams() {
    let Some(reference) = Reference::start() else { return };
    let (http, target) = (http(&reference).await, HttpServer::start().await.unwrap());
    for length in [0_usize, 1, 100_000, 3_000_000] {
        let request = HttpRequest::get(target.url(&format!("/bytes/{length}")));
        let response = in_time(http.send(request.clone())).await.unwrap();
        assert_eq!((response.status, response.body.len()), (200, length));
        assert_eq!(response.headers.get("content-length"), Some(&*length.to_string()));
        let streamed = in_time(http.stream(request)).await.unwrap();
        assert_eq!(in_time(streamed.body.collect(length as u64)).await.unwrap(), response.body);
    }
    let request = HttpRequest::new("POST", target.url("/echo")).header("x-b", "1").header("x-b", "2").body("content");
    let text = in_time(http.send(request)).await.unwrap().body;
    let text = String::from_utf8_lossy(&text);
    assert!(
        text.starts_with("POST /echo\n") && text.contains("x-b: 1\nx-b: 2\n") && text.ends_with("content"),
        "{text}"
    );
    let stopped = HttpRequest::get(target.url("/redir")).redirects(Redirects::Stop);
    assert_eq!(in_time(http.send(stopped)).await.unwrap().status, 302);
}

#[tokio::test]
async fn its_errors_are_told_apart_as_far_as_it_does_and_show_no_secrets() {
    let Some(reference) = Reference::start() else { return };
    let (http, target) = (http(&reference).await, HttpServer::start().await.unwrap());
    let origin = target.url("");
    let failure = async |request: HttpRequest| {
        let error = in_time(http.send(request)).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        error
    };
    let slow = HttpRequest::get(target.url("/slow?k=hunter2")).timeout(Duration::from_millis(100));
    // Which of its limits notices first is a matter of chance.
    let slow = failure(slow).await;
    let HttpError::Failed { origin: named, reason } = &slow else { panic!("{slow:?}") };
    assert_eq!(*named, origin);
    assert!(matches!(&**reason, "error sending request" | "route-aware request timed out"), "{slow:?}");
    let cut = failure(HttpRequest::get(target.url("/trunc?k=hunter2"))).await;
    assert_eq!(cut, HttpError::BodyCut { origin: origin.clone(), reason: "error decoding response body".into() });
    let chain = failure(HttpRequest::get(target.url("/redirect/302/11"))).await;
    assert!(matches!(chain, HttpError::TooManyRedirects { limit: 10, .. }), "{chain:?}");
    let scheme = failure(HttpRequest::get("ftp://user:hunter2@x/")).await;
    assert_eq!(scheme, InvalidHttpRequest::Scheme { scheme: "ftp".into() }.into());
    let header = failure(HttpRequest::get(&origin).header_from_variable("a", "", "LONGARM_NOT_SET")).await;
    assert!(matches!(header, HttpError::InvalidRequest(InvalidHttpRequest::VariableNotSet { .. })), "{header:?}");
}

#[tokio::test]
async fn a_body_that_is_not_read_overflows_and_the_connection_goes_on() {
    let Some(reference) = Reference::start() else { return };
    let (http, target) = (http(&reference).await, HttpServer::start().await.unwrap());
    let mut flood = in_time(http.stream(HttpRequest::get(target.url("/endless")))).await.unwrap();
    // More than is held of it has come when so much has been sent.
    in_time(async {
        while target.sent_bytes() < 64 << 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = in_time(async {
        loop {
            if let Err(error) = flood.body.chunk().await {
                break error;
            }
        }
    })
    .await;
    assert!(matches!(error, HttpError::Overflow { .. }), "{error:?}");
    drop(flood);
    assert_eq!(in_time(http.send(HttpRequest::get(target.url("/404")))).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_server_that_goes_away_ends_its_bodies() {
    let Some(reference) = Reference::start() else { return };
    let (http, target) = (http(&reference).await, HttpServer::start().await.unwrap());
    let mut body = in_time(http.stream(HttpRequest::get(target.url("/drip")))).await.unwrap().body;
    assert_eq!(in_time(body.chunk()).await.unwrap().unwrap(), "drop");
    drop(reference);
    let error = in_time(body.chunk()).await.unwrap_err();
    assert!(matches!(&error, HttpError::Disconnected(error) if error.sent == Sent::Unknown), "{error:?}");
}
