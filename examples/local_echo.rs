//! A conversation with a process on this machine: write a line, read its answer, again and again, then end the input.
//! It teaches the three facts about an end: the exit, the end of the streams, and the end of what was left behind; and
//! how to act on a process from another task than the one that reads its events.

use std::error::Error;
use std::time::Duration;

use longarm::{CollectLimits, Environment, Event, ExecRequest, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let environment = Environment::local();

    let mut process = environment.spawn(ExecRequest::new(["cat"]).stdin(Stdin::Piped)).await?;
    let handle = process.handle();
    let writer = tokio::spawn(async move {
        for word in ["one", "two", "three"] {
            handle.write(format!("{word}\n")).await?;
        }
        handle.close_stdin().await
    });
    while let Some(event) = process.next_event().await? {
        match event {
            Event::Output(output) => print!("{:?}: {}", output.stream, String::from_utf8_lossy(&output.bytes)),
            Event::Gap(gap) => println!("events {} to {} are lost", gap.first_seq, gap.last_seq),
            Event::Exited(exited) => println!("exited: {}", exited.status),
            Event::Closed(closed) => println!("closed: {:?}", closed.totals),
            other => println!("{other:?}"),
        }
    }
    writer.await??;

    // The shell exits at once; what it leaves behind holds its output. Collecting waits for that only so long.
    let process = environment.spawn(ExecRequest::new(["sh", "-c", "sleep 60 & echo the shell is done"])).await?;
    let limits = CollectLimits::default().drain_timeout(Duration::from_millis(100));
    let output = process.output(limits).await?;
    print!("{}", output.stdout.to_text());
    println!("{}, streams still open: {}", output.status, output.still_open);

    // Ends what was left behind.
    environment.close().await;
    Ok(())
}
