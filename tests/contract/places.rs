//! The places under test.

use std::sync::Arc;

use longarm::testing::contract::Suite;
use longarm::{ExecBackend, Local, LocalConfig};

pub(crate) fn all() -> Vec<(&'static str, Suite)> {
    vec![("local", local())]
}

const CHILD: &str = env!("CARGO_BIN_EXE_longarm-test-child");

fn local() -> Suite {
    Suite::new(CHILD, || async { Arc::new(Local::new(LocalConfig::from_host())) as Arc<dyn ExecBackend> })
}
