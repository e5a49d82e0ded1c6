//! A command in a sandbox that wants more than it may: the denial is reported, somebody approves, and it runs again without.
//!
//! Teaches what is enforced and who says so, that a denial comes with its evidence and that some of it is a guess, and that
//! running without the sandbox is a decision of the host's, never of the library's.

use longarm::collect::CollectLimits;
use longarm::error::SpawnError;
use longarm::path_uri::PathUri;
use longarm::sandbox::{Level, SandboxIntent};
use longarm::{Environment, ExecRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Not below the directory for temporary files, which the policy lets commands write.
    let base = tempdir()?;
    let (workspace, outside) = (base.join("workspace"), base.join("outside"));
    std::fs::create_dir_all(&workspace)?;
    std::fs::create_dir_all(&outside)?;
    let result = run(&workspace, &outside).await;
    std::fs::remove_dir_all(&base)?;
    result
}

async fn run(workspace: &std::path::Path, outside: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let environment = Environment::local();
    let intent = SandboxIntent::workspace_write([PathUri::from_host_native_path(workspace)?]);
    let script = "echo inside > result && echo outside > \"$OUTSIDE/result\"";
    let request = ExecRequest::new(["sh", "-c", script]).cwd(workspace).env("OUTSIDE", outside);

    // It runs in the sandbox, or not at all.
    let process = match environment.spawn(request.clone().sandbox(intent)).await {
        Ok(process) => process,
        Err(SpawnError::Sandbox(refusal)) => {
            println!("refused: {refusal}");
            environment.close().await;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    match process.enforcement().map(|enforcement| enforcement.level) {
        Some(Level::Full) => println!("enforced in full, as {}", process.sandbox_type().unwrap_or("unknown")),
        other => println!("enforced: {other:?}"),
    }
    let handle = process.handle();
    let output = process.output(CollectLimits::default()).await?;
    println!("inside: {}", workspace.join("result").exists());
    println!("outside: {}", outside.join("result").exists());

    // What the command prints is its own: a denial may lead to a question, and by itself grants nothing.
    if output.sandbox_denied {
        for evidence in handle.denial().into_iter().flat_map(|denial| denial.evidence) {
            println!(
                "denied, by {}: {evidence}",
                if evidence.is_guess() { "a guess" } else { "what the executor saw" }
            );
        }
        if approved("may it run again without the sandbox?") {
            let output = environment.output(request).await?;
            println!("again: {}, outside: {}", output.status, outside.join("result").exists());
        }
    }
    environment.close().await;
    Ok(())
}

/// Stands for somebody who is asked.
fn approved(question: &str) -> bool {
    println!("{question} yes");
    true
}

/// A new directory that no policy of this example makes writable by itself.
fn tempdir() -> std::io::Result<std::path::PathBuf> {
    let parent = std::env::current_dir()?.canonicalize()?;
    let directory = parent.join(format!("longarm-example-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    Ok(directory)
}
