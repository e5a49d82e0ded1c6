//! HTTP requests: the same through every place.

use std::time::Duration;

use bytes::Bytes;

use crate::http::{HttpError, HttpRequest, HttpResponse, InvalidHttpRequest, MAX_REDIRECTS, Redirects};
use crate::testing::http_server::HttpServer;

use super::context::Context;

cases! {"http":
    any_status_is_a_response [Http],
    headers_and_bodies_arrive_as_they_are [Http],
    redirects_are_followed_or_returned [Http],
    a_chain_of_redirects_has_a_bound [Http],
    a_streamed_body_comes_in_pieces_to_its_end [Http],
    a_large_body_comes_whole [Http],
    a_collected_body_has_a_bound [Http],
    a_body_that_is_cut_short_is_an_error [Http],
    a_limit_of_time_is_kept [Http],
    a_request_that_cannot_be_made_is_refused [Http],
    causes_are_told_apart [Http, HttpCauses],
    dropping_a_body_ends_its_exchange [Http, HttpFlow],
    dropping_a_request_ends_it [Http, HttpFlow],
    a_reader_slows_its_body_down [Http, HttpFlow],
    a_body_that_nobody_reads_stops_nothing_else [Http],
}

async fn target() -> HttpServer {
    HttpServer::start().await.unwrap_or_else(|error| panic!("no server on loopback: {error}"))
}

async fn send(cx: &Context, request: HttpRequest) -> HttpResponse {
    cx.environment().http().send(request).await.unwrap_or_else(|error| panic!("the request failed: {error}"))
}

async fn failure(cx: &Context, request: HttpRequest) -> HttpError {
    match cx.environment().http().send(request).await {
        Ok(response) => panic!("it did not fail: {response:?}"),
        Err(error) => {
            assert!(!format!("{error} {error:?}").contains("hunter2"), "a secret is shown");
            error
        }
    }
}

fn text(response: &HttpResponse) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

async fn any_status_is_a_response(cx: Context) {
    let target = target().await;
    let response = send(&cx, HttpRequest::get(target.url("/404"))).await;
    assert_eq!((response.status, &*response.body), (404, &b"nf"[..]));
    let response = send(&cx, HttpRequest::get(target.url("/204"))).await;
    assert_eq!((response.status, response.body.len()), (204, 0));
}

async fn headers_and_bodies_arrive_as_they_are(cx: Context) {
    let target = target().await;
    let body: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let request =
        HttpRequest::new("POST", target.url("/echo")).header("X-B", "1").header("X-B", "2").body(body.clone());
    let response = send(&cx, request).await;
    assert_eq!(response.headers.get_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
    assert!(text(&response).starts_with("POST /echo\n") && text(&response).contains("\nx-b: 1\nx-b: 2\n"));
    assert!(response.body.ends_with(&body));
    assert!(!text(&response).contains("user-agent"));
}

async fn redirects_are_followed_or_returned(cx: Context) {
    let target = target().await;
    let post = |path: &str| HttpRequest::new("POST", target.url(path)).body("content");
    assert!(text(&send(&cx, post("/redir")).await).starts_with("GET /echo\n"));
    let response = send(&cx, post("/redirect/307/1")).await;
    assert!(text(&response).starts_with("POST /echo\n") && text(&response).ends_with("content"));
    let response = send(&cx, post("/redir").redirects(Redirects::Stop)).await;
    assert_eq!((response.status, response.headers.get("location")), (302, Some("/echo")));
}

async fn a_chain_of_redirects_has_a_bound(cx: Context) {
    let target = target().await;
    let chain = |count| HttpRequest::get(target.url(&format!("/redirect/302/{count}")));
    assert_eq!(send(&cx, chain(MAX_REDIRECTS)).await.status, 200);
    let error = failure(&cx, chain(MAX_REDIRECTS + 1)).await;
    assert!(matches!(error, HttpError::TooManyRedirects { limit: MAX_REDIRECTS, .. }), "{error:?}");
}

async fn a_streamed_body_comes_in_pieces_to_its_end(cx: Context) {
    let target = target().await;
    let response = cx.environment().http().stream(HttpRequest::get(target.url("/drip"))).await;
    let mut body = response.unwrap_or_else(|error| panic!("the request failed: {error}")).body;
    // It comes before the end, which never does.
    assert_eq!(body.chunk().await.ok().flatten().as_deref(), Some(&b"drop"[..]));
    let response = cx.environment().http().stream(HttpRequest::get(target.url("/stream/3"))).await;
    let body = response.unwrap_or_else(|error| panic!("the request failed: {error}")).body;
    assert_eq!(body.collect(100).await.ok().as_deref(), Some(&b"chunk0\nchunk1\nchunk2\n"[..]));
}

async fn a_large_body_comes_whole(cx: Context) {
    let target = target().await;
    let length = 3_000_000;
    let response = send(&cx, HttpRequest::get(target.url(&format!("/bytes/{length}")))).await;
    assert_eq!(response.body.len(), length);
    assert!(response.body.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251));
}

async fn a_collected_body_has_a_bound(cx: Context) {
    let target = target().await;
    let request = HttpRequest::get(target.url("/bytes/100000"));
    assert_eq!(send(&cx, request.clone().max_body_bytes(100_000)).await.body.len(), 100_000);
    assert_eq!(failure(&cx, request.max_body_bytes(99_999)).await, HttpError::BodyTooLarge { limit: 99_999 });
}

async fn a_body_that_is_cut_short_is_an_error(cx: Context) {
    let target = target().await;
    let error = failure(&cx, HttpRequest::get(target.url("/trunc?k=hunter2"))).await;
    assert!(matches!(&error, HttpError::BodyCut { origin, .. } if *origin == target.url("")), "{error:?}");
}

async fn a_limit_of_time_is_kept(cx: Context) {
    let target = target().await;
    for (path, millis) in [("/slow?k=hunter2", 50), ("/drip?k=hunter2", 100), ("/echo?k=hunter2", 0)] {
        let request = HttpRequest::get(target.url(path)).timeout(Duration::from_millis(millis));
        // A place may not be able to say which failure it is.
        failure(&cx, request).await;
    }
}

async fn a_request_that_cannot_be_made_is_refused(cx: Context) {
    let url = "http://127.0.0.1:1/";
    let invalid = async |request| match failure(&cx, request).await {
        HttpError::InvalidRequest(invalid) => invalid,
        other => panic!("{other:?}"),
    };
    assert!(matches!(invalid(HttpRequest::new("A B", url)).await, InvalidHttpRequest::Method { .. }));
    assert!(matches!(invalid(HttpRequest::get("hunter2")).await, InvalidHttpRequest::Url { .. }));
    assert_eq!(invalid(HttpRequest::get("ftp://x/")).await, InvalidHttpRequest::Scheme { scheme: "ftp".into() });
    assert!(matches!(invalid(HttpRequest::get(url).header("a b", "")).await, InvalidHttpRequest::HeaderName { .. }));
    let error = invalid(HttpRequest::get(url).header("a", "hunter2\n")).await;
    assert!(matches!(&error, InvalidHttpRequest::HeaderValue { name, .. } if name == "a"), "{error:?}");
    let (name, variable) = (String::from("A"), String::from("LONGARM_NOT_SET"));
    let error = invalid(HttpRequest::get(url).header_from_variable(&name, "", &variable)).await;
    assert_eq!(error, InvalidHttpRequest::VariableNotSet { name, variable });
    let (name, variable) = (String::from("A"), String::from("OPENAI_API_KEY"));
    let error = invalid(HttpRequest::get(url).header_from_variable(&name, "", &variable)).await;
    assert_eq!(error, InvalidHttpRequest::VariableProtected { name, variable });
}

async fn causes_are_told_apart(cx: Context) {
    let target = target().await;
    // Bound, so that nobody else gets the address, and not listening.
    let bound = tokio::net::TcpSocket::new_v4().and_then(|socket| {
        socket.bind(([127, 0, 0, 1], 0).into())?;
        Ok((socket.local_addr()?, socket))
    });
    let (nobody, _socket) = bound.unwrap_or_else(|error| panic!("no address: {error}"));
    let nobody = format!("http://{nobody}");
    let error = failure(&cx, HttpRequest::get(format!("{nobody}/?k=hunter2"))).await;
    assert_eq!(error, HttpError::ConnectionRefused { origin: nobody });
    let error = failure(&cx, HttpRequest::get("http://user:hunter2@name..invalid/?k=hunter2")).await;
    assert!(matches!(error, HttpError::NameNotResolved { .. }), "{error:?}");
    let error = failure(&cx, HttpRequest::get(target.url("/slow")).timeout(Duration::from_millis(50))).await;
    assert_eq!(error, HttpError::TimedOut { origin: target.url(""), in_body: false });
    let error = failure(&cx, HttpRequest::get(target.url("/garbage"))).await;
    assert!(matches!(error, HttpError::Failed { .. }), "{error:?}");
}

async fn dropping_a_body_ends_its_exchange(cx: Context) {
    let target = target().await;
    let response = cx.environment().http().stream(HttpRequest::get(target.url("/drip"))).await;
    drop(response.unwrap_or_else(|error| panic!("the request failed: {error}")));
    target.ended("/drip", 1).await;
}

async fn dropping_a_request_ends_it(cx: Context) {
    let target = target().await;
    let http = cx.environment().http();
    tokio::select! {
        result = http.stream(HttpRequest::get(target.url("/slow"))) => panic!("{result:?}"),
        () = target.begun("/slow", 1) => {}
    }
    target.ended("/slow", 1).await;
}

async fn a_reader_slows_its_body_down(cx: Context) {
    let target = target().await;
    let response = cx.environment().http().stream(HttpRequest::get(target.url("/endless"))).await;
    let mut body = response.unwrap_or_else(|error| panic!("the request failed: {error}")).body;
    target.begun("/endless", 1).await;
    // It is slowed down when nothing of it has moved during so many other exchanges.
    let mut sent = 0;
    loop {
        for _ in 0..20 {
            send(&cx, HttpRequest::get(target.url("/echo"))).await;
        }
        if target.sent_bytes() == sent {
            break;
        }
        sent = target.sent_bytes();
        assert!(sent < 256 << 20, "{sent} bytes, and nobody reads");
    }
    while target.sent_bytes() == sent {
        assert!(matches!(body.chunk().await, Ok(Some(_))), "it goes on with its reader");
    }
}

async fn a_body_that_nobody_reads_stops_nothing_else(cx: Context) {
    let target = target().await;
    let response = cx.environment().http().stream(HttpRequest::get(target.url("/endless"))).await;
    let body = response.unwrap_or_else(|error| panic!("the request failed: {error}")).body;
    for word in ["hi", "there"] {
        assert!(cx.output(cx.child(&["say", word])).await.status.success());
    }
    drop(body);
}
