//! Cut again and again, at full speed, towards our own server: nothing is lost, nothing is doubled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longarm::config::{ClientConfig, ServerConfig};
use longarm::event::Event;
use longarm::{ExecRequest, Stdin};

use crate::proxy::Proxy;
use crate::support::{PATIENCE, Random, Running, check_pattern, environment, generation_of, pattern, soon};

const CUTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_directions_live_through_200_cuts_at_full_speed() {
    let server = Running::start().await;
    let proxy = Arc::new(Proxy::start(&server.url, CUTS, Random::new()).await);
    let place = environment(&proxy.url, ClientConfig::default());
    let process = soon(async {
        loop {
            // A cut within the start leaves it in doubt; the process is ended then.
            match place.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await {
                Ok(process) => break process,
                Err(error) => assert!(matches!(error, longarm::error::SpawnError::Disconnected(_)), "{error}"),
            }
        }
    })
    .await;
    let handle = process.handle();
    let written = Arc::new(AtomicU64::new(0));
    let writer = tokio::spawn({
        let (proxy, written) = (Arc::clone(&proxy), Arc::clone(&written));
        async move {
            while proxy.cuts_made() < CUTS {
                let offset = written.load(Ordering::SeqCst);
                let data = pattern(offset, 100_000);
                handle.write(data).await.expect("a write lives through cuts");
                written.store(offset + 100_000, Ordering::SeqCst);
            }
            handle.close_stdin().await.expect("so does the end of input");
        }
    });
    let mut process = process;
    let mut read = 0;
    let mut closed = false;
    let mut exit = None;
    while let Some(event) = soon(process.next_event()).await.expect("events live through cuts") {
        match event {
            Event::Output(output) => {
                check_pattern(read, &output.bytes);
                read += output.bytes.len() as u64;
            }
            Event::Exited(exited) => exit = exited.status.code(),
            Event::Closed(_) => closed = true,
            other => panic!("{other:?}"),
        }
    }
    soon(writer).await.expect("the writer ends");
    assert_eq!(read, written.load(Ordering::SeqCst));
    assert!(closed && exit == Some(0));
    assert!(proxy.cuts_made() >= CUTS);
    println!("{read} bytes in both directions, {} connections", proxy.connections());
    // All has come before the last recovery is through.
    let generation = generation_of(&place).await;
    assert!(generation > 20, "{generation}");
    soon(place.close()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_live_through_cuts_together() {
    let server = Running::start().await;
    let proxy = Arc::new(Proxy::start(&server.url, 60, Random::new()).await);
    let place = environment(&proxy.url, ClientConfig::default());
    let mut running = tokio::task::JoinSet::new();
    for count in 1..=12_u32 {
        let place = place.clone();
        running.spawn(async move {
            let last = count * 40_000;
            let request = ExecRequest::new(["seq", "1", &last.to_string()]);
            let process = loop {
                match place.spawn(request.clone()).await {
                    Ok(process) => break process,
                    Err(error) => assert!(matches!(error, longarm::error::SpawnError::Disconnected(_)), "{error}"),
                }
            };
            let mut process = process;
            let mut text = Vec::new();
            while let Some(event) = process.next_event().await.expect("no error") {
                match event {
                    Event::Output(output) => text.extend_from_slice(&output.bytes),
                    Event::Gap(gap) => panic!("{gap:?}"),
                    _ => {}
                }
            }
            let expected: String = (1..=last).map(|number| format!("{number}\n")).collect();
            assert!(text == expected.as_bytes(), "the output of process {count} is not what it wrote");
        });
    }
    let all = async {
        while let Some(result) = running.join_next().await {
            result.expect("each one is whole");
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("they end");
    // 18 MB have crossed, and no connection that was to be cut has carried a whole one.
    assert!(proxy.cuts_made() >= 10, "{} cuts", proxy.cuts_made());
    soon(place.close()).await;
    server.stop().await;
}

/// The whole of what is retained never fits into one connection, of any process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_always_break_before_a_mib_has_passed_get_on_all_the_same() {
    const PROCESSES: usize = 4;
    let server = Running::start_with(ServerConfig::default()).await;
    // Enough for the handshake and a few answers; much less than one process has to tell.
    let proxy = Arc::new(Proxy::with_budgets(&server.url, usize::MAX >> 1, || 600_000).await);
    let place = environment(&proxy.url, ClientConfig::default());
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let script = "read -r go; head -c 3000000 /dev/zero; echo done";
        let request = ExecRequest::new(["sh", "-c", script]).stdin(Stdin::Piped);
        processes.push(soon(place.spawn(request)).await.expect("it starts"));
    }
    // Each writes as much as is retained while nobody hears it.
    for process in &processes {
        soon(process.handle().write("go\n")).await.expect("written");
    }
    proxy.set_closed(true);
    proxy.cut();
    let mut connection = place.connection().expect("remote");
    soon(connection.wait_for(|state| !state.is_connected())).await.expect("the place lives");
    proxy.set_closed(false);
    for mut process in processes {
        let mut bytes = 0;
        while let Some(event) = soon(process.next_event()).await.expect("it gets on") {
            match event {
                Event::Output(output) => bytes += output.bytes.len(),
                Event::Gap(gap) => panic!("{gap:?}"),
                _ => {}
            }
        }
        assert_eq!(bytes, 3_000_005);
    }
    println!("{} connections", proxy.connections());
    assert!(proxy.connections() > PROCESSES, "they broke, again and again");
    soon(place.close()).await;
    server.stop().await;
}
