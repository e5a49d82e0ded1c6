//! The watch of a connection for missing paths.

use std::sync::Arc;

use bytes::Bytes;

use super::super::Peer;
use super::super::action::{Action, FileJob, Ticket};
use super::super::reply::Reply;
use super::super::request::Call;
use super::{Files, Running};
use crate::sandbox::SandboxIntent;
use crate::wire::codec;
use crate::wire::fs::{MAX_WATCHED_PATHS, MissingChangedParams, WatchMissingParams};
use crate::wire::method::{self, Method as _};

#[derive(Debug)]
pub(super) struct Watch {
    id: u64,
    state: WatchState,
}

#[derive(Debug, PartialEq, Eq)]
enum WatchState {
    Asking(Ticket),
    Watching,
    /// The client is to be told.
    Changed,
}

impl Watch {
    /// Whether the client is to be told that it has ended.
    pub(super) fn has_changed(&self) -> bool {
        self.state == WatchState::Changed
    }
}

impl Peer {
    pub(super) fn watch_missing(
        &mut self,
        call: Call,
        params: WatchMissingParams,
        sandbox: Option<Arc<SandboxIntent>>,
    ) {
        let WatchMissingParams { watch_id, missing, present, .. } = params;
        let Some(files) = self.connection.as_mut().map(|connection| &mut connection.files) else { return };
        let rises = files.last_watch.is_none_or(|last| watch_id > last);
        if rises {
            files.last_watch = Some(watch_id);
        }
        // Whatever the answer is, the former watch ends; if it is still being set up, its own answer is no.
        if let Some(Watch { state: WatchState::Asking(ticket), .. }) = files.watch.take()
            && let Some(former) = files.running.remove(&ticket)
        {
            if former.begun {
                files.given_up.insert(ticket);
            }
            self.answer(former.call, Reply::Watching(false));
        }
        if !rises || missing.is_empty() || missing.len() > MAX_WATCHED_PATHS {
            self.actions.push_back(Action::Unwatch);
            return self.answer(call, Reply::Watching(false));
        }
        let job = FileJob::Watch { watch: watch_id, missing, present };
        let running = Running { sandbox, ..Running::new(call, method::WatchMissing::NAME, None) };
        let ticket = self.run_job(running, job);
        if let Some(connection) = &mut self.connection
            && let Some(ticket) = ticket
        {
            connection.files.watch = Some(Watch { id: watch_id, state: WatchState::Asking(ticket) });
        }
    }

    /// The paths of a watch may exist now.
    pub(in crate::core::peer) fn missing_changed(&mut self, watch_id: u64) {
        let Some(connection) = &mut self.connection else { return };
        if let Some(watch) = &mut connection.files.watch
            && watch.id == watch_id
            && watch.state == WatchState::Watching
        {
            watch.state = WatchState::Changed;
        }
    }
}

impl Files {
    pub(super) fn watch_answered(&mut self, ticket: Ticket, watching: bool) {
        let Some(watch) = self.watch.take_if(|watch| watch.state == WatchState::Asking(ticket)) else { return };
        if watching {
            self.watch = Some(Watch { state: WatchState::Watching, ..watch });
        }
    }

    /// The notification that a watch has ended, once.
    pub(in crate::core::peer) fn take_changed(&mut self) -> Option<Bytes> {
        let watch = self.watch.take_if(|watch| watch.state == WatchState::Changed)?;
        Some(codec::encode_notification::<method::MissingChanged>(&MissingChangedParams { watch_id: watch.id }))
    }
}
