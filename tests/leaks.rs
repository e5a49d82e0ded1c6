//! What many processes leave behind: no task, descriptor, zombie or memory.
//!
//! One test in a program of its own: it counts what the whole process has.
#![cfg(all(target_os = "linux", feature = "pty"))]

mod local_support;

use futures_util::future::join_all;
use local_support::{collect, local, next, read_until, run, sh};
use longarm::ExecRequest;
use longarm::backend::ExecBackend;
use longarm::error::SpawnError;
use longarm::event::Event;
use longarm::request::{Stdin, TerminalSize};
use longarm::sandbox::SandboxIntent;

#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    children: usize,
}

fn held() -> Held {
    // A kernel can be built without it.
    assert!(std::path::Path::new("/proc/thread-self/children").exists(), "children cannot be counted");
    let count = |dir: &str| std::fs::read_dir(dir).unwrap().count();
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let children = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default())
        .map(|children| children.split_whitespace().count())
        .sum();
    Held { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), children }
}

/// What is held once ended threads are gone: the kernel wakes who joins a thread a moment before it takes it from the list.
async fn held_without(threads: usize) -> Held {
    let mut patience = local_support::Patience::new(local_support::PATIENCE);
    while held().threads > threads && patience.is_left() {
        patience.sleep(std::time::Duration::from_millis(1)).await;
    }
    held()
}

/// Resident memory that no file backs, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn nothing_is_left_behind() {
    local_support::raise_descriptor_limit();
    let before = held();

    // A thousand in a row, of several kinds.
    let place = local();
    for number in 0..1000 {
        let request = match number % 4 {
            0 => ExecRequest::new(["true"]).cwd("/tmp"),
            1 => sh("echo out; echo err >&2; exit 1"),
            2 => sh("read line; echo $line").terminal(TerminalSize::default()),
            _ => ExecRequest::new(["no-such-program"]).cwd("/tmp"),
        };
        match place.spawn(request.stdin(Stdin::Piped)).await {
            Ok(spawned) => {
                if number % 4 == 2 {
                    spawned.control.write("typed\n".into()).await.unwrap();
                }
                collect(spawned.events).await;
            }
            Err(error) => assert_eq!(number % 4, 3, "{error}"),
        }
    }
    place.close().await;
    assert_eq!(held_without(before.threads).await, before, "after a thousand in a row");
    assert_eq!(tasks(), 0);

    // Three hundred at once.
    let place = local();
    join_all((0..300).map(|number| run(&place, sh(&format!("echo {number}"))))).await;
    place.close().await;
    assert_eq!(held_without(before.threads).await, before, "after three hundred at once");
    assert_eq!(tasks(), 0);

    // In sandboxes, of which a thread is told what they refuse.
    let place = local();
    let sandboxed = || sh(": > /dev/tcp/127.0.0.1/1").sandbox(SandboxIntent::read_only());
    match place.spawn(sandboxed()).await {
        Ok(spawned) => {
            collect(spawned.events).await;
            join_all((0..20).map(|_| run(&place, sandboxed()))).await;
        }
        Err(SpawnError::Sandbox(refusal)) => println!("without sandboxes: {refusal}"),
        Err(error) => panic!("{error}"),
    }
    place.close().await;
    assert_eq!(held_without(before.threads).await, before, "after twenty in sandboxes");
    assert_eq!(tasks(), 0);

    // Six hundred terminals and two hundred pipes, idle; then all is dropped.
    let place = local();
    let cat = || ExecRequest::new(["cat"]).cwd("/tmp").stdin(Stdin::Piped);
    let warm_up = join_all((0..100).map(|_| place.spawn(cat()))).await;
    let idle_before = memory_kib();
    let mut all = Vec::new();
    for spawned in join_all((0..200).map(|_| place.spawn(cat()))).await {
        all.push(spawned.unwrap());
    }
    let on_pipes = memory_kib().saturating_sub(idle_before);
    assert!(on_pipes <= 200 * 8, "{on_pipes} KiB for 200 idle processes");
    let terminal = || cat().terminal(TerminalSize::default());
    for spawned in join_all((0..600).map(|_| place.spawn(terminal()))).await {
        all.push(spawned.unwrap());
    }
    let on_terminals = memory_kib().saturating_sub(idle_before);
    assert!(on_terminals <= 800 * 8, "{on_terminals} KiB for 800 idle processes");
    for spawned in &mut all[200..] {
        spawned.control.write("x\n".into()).await.unwrap();
        read_until(&mut spawned.events, "x\r\nx\r\n").await;
    }
    // None each. Where starts take long there are more threads that make children, up to their bound.
    assert!(held().threads <= before.threads + 20, "{:?}", held());
    drop(warm_up);
    place.close().await;
    for mut spawned in all {
        while !matches!(next(&mut spawned.events).await, Event::Closed(_)) {}
    }
    drop(place);
    assert_eq!(held_without(before.threads).await, before, "after six hundred terminals");
    assert_eq!(tasks(), 0);

    // Processes whose handles are dropped, with a place that is.
    let place = local();
    let spawned = join_all((0..50).map(|_| place.spawn(sh("yes")))).await;
    drop(spawned);
    drop(place);
    let mut patience = local_support::Patience::new(local_support::PATIENCE);
    while held() != before || tasks() != 0 {
        assert!(patience.is_left(), "{:?} instead of {before:?}, {} tasks", held(), tasks());
        patience.sleep(std::time::Duration::from_millis(5)).await;
    }

    // The same work again takes no more memory.
    let place = local();
    let round = || async { drop(join_all((0..100).map(|_| run(&place, sh("head -c 100000 /dev/zero")))).await) };
    for _ in 0..5 {
        round().await;
    }
    // What the allocator keeps depends on how many of them happened to run at a time, and grows now and then; what is left
    // behind grows every time.
    let mut least = u64::MAX;
    for _ in 0..8 {
        let memory_before = memory_kib();
        for _ in 0..10 {
            round().await;
        }
        least = least.min(memory_kib().saturating_sub(memory_before));
        println!("{least} KiB more after a thousand runs");
        if least < 1000 {
            return;
        }
    }
    panic!("{least} KiB more after a thousand runs: one each, or more");
}
