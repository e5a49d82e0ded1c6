//! Calls that wait for a connection, or for a place on it, and are taken back meanwhile.

use super::{Call, Held, Session, State, Token};
use crate::error::Sent;

impl Session {
    /// Whether calls may wait for longer than it takes to hand them over.
    pub(crate) fn holds_back(&self) -> bool {
        !self.parked.is_empty() || !matches!(self.state, State::Open { .. })
    }

    /// Takes back the calls that were not sent and whose callers are gone, as far as they mean nothing to anybody else: a stop
    /// and what frees something at the peer do, a piece of input is in line with others, and a start has a process, which
    /// [`Self::abandon`] is about.
    pub(crate) fn take_back(&mut self, is_gone: impl Fn(Token) -> bool) {
        let taken = self.calls.take(|what, sent| sent == Sent::NotSent && what.caller().is_some_and(&is_gone));
        let calls = taken.into_iter().filter_map(|(what, _)| what.caller());
        let tokens: Vec<_> =
            calls.chain(self.held.iter().filter_map(Held::caller).filter(|token| is_gone(*token))).collect();
        self.held.retain(|held| held.caller().is_none_or(|token| !is_gone(token)));
        for token in tokens {
            self.answer(token, Err(Self::not_sent("its caller is gone".into())));
        }
    }
}

impl Call {
    /// Who waits for the answer of a call that has no meaning to anybody else.
    const fn caller(&self) -> Option<Token> {
        match self {
            Self::Act { token, .. }
            | Self::List(token)
            | Self::Status(token)
            | Self::Ask { token, cleanup: false, .. } => Some(*token),
            Self::Start { .. }
            | Self::Piece { .. }
            | Self::Read { .. }
            | Self::Stop { .. }
            | Self::Info
            | Self::Ask { cleanup: true, .. } => None,
        }
    }
}

impl Held {
    const fn caller(&self) -> Option<Token> {
        if self.op.is_lone() { Some(self.token) } else { None }
    }
}
