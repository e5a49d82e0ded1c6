//! The client's side of a session.

mod op;

pub(crate) use self::op::{Answer, Consumption, Failure, Mode, Op, RouteKey};
pub use self::op::{ListedProcess, ProcessState};
