//! The network by way of ports of the executor's loopback, where the host's proxy listens.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::time::SystemTime;

use longarm::ExecRequest;
use longarm::sandbox::{ManagedNetworkFacts, NetworkViolation, Violation, ViolationSink as _};

use super::tools::{Outcome, ensure, not_root};
use crate::network::{LAN, PORT, address_of_this_machine};
use crate::place::{Kind, Settings};
use crate::policy::{dis, full, ro, unr};
use crate::row::{Ran, Refusal, Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let own_network = Settings { own_network: true, ..Settings::default() };
    vec![
        custom!(81, "managed ports", ro, ports).unreached(),
        custom!(81, "managed ports, at another address of this machine", ro, other_address)
            .needs(|| address_of_this_machine().is_none().then(|| "no address besides loopback".into())),
        custom!(81, "managed ports, at an address where somebody listens", ro, other_listener)
            .settings(own_network)
            .needs(not_root)
            .at(Kind::ALONE),
        custom!(82, "managed ports, and a datagram", ro, datagrams).unreached(),
        custom!(83, "the proxy denies the host", ro, proxy_denies),
        custom!(84, "a managed network without details", ro, without_details),
        custom!(84, "a managed network without a port", ro, without_ports),
        custom!(84, "a managed network, and a sandbox of nothing", dis, by_port),
        custom!(84, "a managed network, and all allowed", |dirs| unr(dirs).enabled(), by_port),
        custom!(84, "a managed network, and all allowed by an entry", |dirs| full(dirs).enabled(), by_port),
    ]
}

async fn run(stage: &Stage<'_>, port: u16, script: &str) -> Result<Ran, String> {
    let request = stage.sh(script).managed_network(ManagedNetworkFacts::ports([port]));
    stage.run(request).await.map_err(|refused| format!("{refused:?}"))
}

/// What it tries fails, for this reason.
async fn fails(stage: &Stage<'_>, port: u16, script: &str, reason: &str) -> Outcome {
    let ran = run(stage, port, script).await?;
    ensure(ran.output.status.wire_code() == 1 && ran.text().contains(reason), || format!("{script}: {ran:?}"))
}

async fn ports(stage: &Stage<'_>) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    // Ends with the first client, or with this program.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; crate::helper::GREETING.len()]).unwrap();
        stream.write_all(b"proxy\n").unwrap();
    });
    let ran = run(stage, port, &format!("$PROBE talk 127.0.0.1:{port}")).await?;
    ensure(ran.text() == "proxy\nok\n", || format!("the port: {ran:?}"))?;
    fails(stage, port, "$PROBE tcp 127.0.0.1:$PORT", "refused").await?;
    fails(stage, port, "$PROBE tcp 192.0.2.1:80", "unreachable").await
}

/// If it could get there, nobody would listen, and it would be refused.
async fn other_address(stage: &Stage<'_>) -> Outcome {
    let address = address_of_this_machine().ok_or("no address")?;
    fails(stage, stage.dirs.port(), &format!("$PROBE tcp {address}:$PORT"), "unreachable").await
}

async fn other_listener(stage: &Stage<'_>) -> Outcome {
    let there = format!("$PROBE talk {LAN}:{PORT}");
    // It is there, for who may.
    let free = stage.freely(&there).await?;
    ensure(free == "lan\nok\n", || free)?;
    let ran = run(stage, PORT, &format!("$PROBE talk 127.0.0.1:{PORT}")).await?;
    ensure(ran.text() == "proxy\nok\n", || format!("the port: {ran:?}"))?;
    fails(stage, PORT, &there, "unreachable").await
}

async fn datagrams(stage: &Stage<'_>) -> Outcome {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = receiver.local_addr().map_err(|error| error.to_string())?.port();
    run(stage, port, &format!("$PROBE udp 127.0.0.1:{port}; $PROBE udp 127.0.0.1:$UDP")).await?;
    receiver.set_nonblocking(true).map_err(|error| error.to_string())?;
    // The sender has ended: on loopback, what it sent is there.
    ensure(receiver.recv(&mut [0]).is_err(), || "the datagram arrived".into())
}

/// The host's proxy answers, and tells of what it denied. That the command fails then is no denial of its sandbox.
async fn proxy_denies(stage: &Stage<'_>) -> Outcome {
    const BODY: &str =
        r#"{"status":"blocked","host":"denied.example","reason":"not_allowed","decision":"deny","protocol":"http"}"#;
    let proxy = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = proxy.local_addr().map_err(|error| error.to_string())?.port();
    let violations = std::sync::Arc::clone(&stage.place.violations);
    // Ends with the first client, or with this program.
    std::thread::spawn(move || {
        let (mut stream, client) = proxy.accept().unwrap();
        let mut request = Vec::new();
        for line in BufReader::new(&stream).lines() {
            request.push(line.unwrap());
            if request.last().is_some_and(String::is_empty) {
                break;
            }
        }
        assert_eq!(request[0], "GET http://denied.example/ HTTP/1.1");
        let mut event = NetworkViolation::new("denied.example", "not_allowed", "http", SystemTime::now());
        (event.port, event.client, event.method) = (Some(80), Some(client.to_string()), Some("GET".into()));
        violations.violation(Violation::Network(event));
        let head =
            "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nx-proxy-error: blocked-by-allowlist\r\n";
        write!(stream, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{BODY}", BODY.len()).unwrap();
    });
    let ran = run(stage, port, &format!("$PROBE get 127.0.0.1:{port} denied.example")).await?;
    let text = ran.text();
    ensure(text.starts_with("HTTP/1.1 403 ") && text.contains(BODY), || format!("{ran:?}"))?;
    ensure(ran.output.status.wire_code() == 1 && !ran.output.sandbox_denied, || format!("{ran:?}"))?;
    match stage.place.violations.all().as_slice() {
        [Violation::Network(event)] if event.host == "denied.example" => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn without_details(stage: &Stage<'_>) -> Outcome {
    not_managed(stage, stage.sh("true")).await
}

async fn without_ports(stage: &Stage<'_>) -> Outcome {
    for facts in [ManagedNetworkFacts::default(), ManagedNetworkFacts::ports([0, 0])] {
        not_managed(stage, stage.sh("true").managed_network(facts)).await?;
    }
    Ok(())
}

async fn by_port(stage: &Stage<'_>) -> Outcome {
    not_managed(stage, stage.sh("true").managed_network(ManagedNetworkFacts::ports([stage.dirs.port()]))).await
}

async fn not_managed(stage: &Stage<'_>, request: ExecRequest) -> Outcome {
    match stage.start(request.enforce_managed_network(true)).await {
        Err(refused) if refused.refusal == Refusal::Unavailable => Ok(()),
        Err(refused) => Err(format!("{refused:?}")),
        Ok(_) => Err("it was started".into()),
    }
}
