//! Interrupts: by a key of a terminal, and by a signal. A program in a sandbox sees them as it does without one.

use longarm::request::Signal;

use super::tools::{Outcome, begin, begin_on_terminal, ended, ensure, read_until};
use crate::policy::ro;
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    vec![
        custom!(95, "S18, the interrupt key, handled", ro, interrupt_key_trapped),
        custom!(95, "S18, the interrupt key, not handled", ro, interrupt_key),
        custom!(96, "S18, an interrupt without a terminal, handled", ro, interrupted_trapped),
        custom!(96, "S18, an interrupt without a terminal, not handled", ro, interrupted),
    ]
}

const TRAP: &str = "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done";

async fn interrupt_key_trapped(stage: &Stage<'_>) -> Outcome {
    let mut process = begin_on_terminal(stage, TRAP).await?;
    read_until(&mut process, "ready").await?;
    process.write("\x03").await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.code() == Some(7), || status.to_string())
}

async fn interrupt_key(stage: &Stage<'_>) -> Outcome {
    let mut process = begin_on_terminal(stage, "echo ready; exec sleep 600").await?;
    read_until(&mut process, "ready").await?;
    process.write("\x03").await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.signal() == Some(Signal::Interrupt), || status.to_string())
}

async fn interrupted_trapped(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, TRAP).await?;
    read_until(&mut process, "ready").await?;
    process.interrupt().await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.code() == Some(7), || status.to_string())
}

async fn interrupted(stage: &Stage<'_>) -> Outcome {
    let mut process = begin(stage, "echo ready; exec sleep 600").await?;
    read_until(&mut process, "ready").await?;
    process.signal(Signal::Interrupt).await.map_err(|error| error.to_string())?;
    let status = ended(process).await?;
    ensure(status.signal() == Some(Signal::Interrupt), || status.to_string())
}
