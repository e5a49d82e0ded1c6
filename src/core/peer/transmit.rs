//! What goes to the client, and in which order.

use bytes::Bytes;

use super::process::{Phase, ProcessKey};
use super::{Peer, Turn, reply};
use crate::core::replay::Unsent;
use crate::info::Features;
use crate::status::ExitStatus;
use crate::wire::codec;
use crate::wire::extension::{ClosedExtension, ExitedExtension};
use crate::wire::method;
use crate::wire::process::{ClosedParams, ExitedParams};
use crate::wire::sandbox::DenialReport;

impl Peer {
    /// The next message for the client: an answer, or else, if there is `room`, one event of the process, or one piece of
    /// the body, whose turn it is, or an answer with many bytes when it is the turn of these. The caller sends it or loses
    /// it.
    pub(crate) fn poll_transmit(&mut self, room: bool) -> Option<Bytes> {
        let connection = self.connection.as_mut()?;
        if let Some((id, reply)) = connection.answers.pop_front() {
            connection.answer_bytes -= reply::held_bytes(&id, &reply);
            return Some(reply.encode(&id));
        }
        if !room {
            return None;
        }
        if let Some(changed) = connection.files.take_changed() {
            return Some(changed);
        }
        if !connection.files.is_owed()
            && let Some(message) = self.next_file_answer()
        {
            return Some(message);
        }
        while let Some(turn) = self.round.pop_front() {
            let message = match turn {
                Turn::Process(key) => self.next_event_of(key),
                Turn::Body(exchange) => self.next_delta_of(exchange),
            };
            if let Some(message) = message {
                if let Some(connection) = &mut self.connection {
                    connection.files.note_output(message.len());
                }
                return Some(message);
            }
        }
        self.next_file_answer()
    }

    /// Whether [`Self::poll_transmit`] has something.
    pub(crate) fn wants_transmit(&self, room: bool) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            !connection.answers.is_empty() || room && (connection.files.has_answer() || !self.round.is_empty())
        })
    }

    /// Puts a process that has something to send into the round.
    pub(super) fn enter_round(&mut self, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(key) else { return };
        if !process.in_round && matches!(process.phase, Phase::Started) && process.log.next_unsent().is_some() {
            process.in_round = true;
            self.round.push_back(Turn::Process(key));
        }
    }

    fn next_event_of(&mut self, key: ProcessKey) -> Option<Bytes> {
        let features = self.features();
        let process = self.processes.get_mut(key)?;
        process.in_round = false;
        let unsent = process.log.next_unsent()?;
        let seq = unsent.seq();
        let message = match unsent {
            Unsent::Output(chunk) => process.encoder.message(seq, chunk.stream, &chunk.bytes),
            Unsent::Exit(exit) => codec::encode_notification::<method::Exited>(&ExitedParams {
                process_id: process.id.clone(),
                seq,
                exit_code: exit.status.wire_code(),
                sandbox_denied: Some(exit.sandbox_denied),
                longarm: exited_extension(features, exit.status, process.denial.as_ref()),
            }),
            Unsent::Close(close) => codec::encode_notification::<method::Closed>(&ClosedParams {
                process_id: process.id.clone(),
                seq,
                longarm: match close.totals {
                    Some(totals) if features.exit => {
                        Some(ClosedExtension { total_bytes: totals.into(), cut: close.cut })
                    }
                    _ => None,
                },
            }),
        };
        process.log.mark_sent(seq);
        self.enter_round(key);
        Some(message)
    }
}

/// What of an exit the plain wire does not say, for a client of these features.
fn exited_extension(features: Features, status: ExitStatus, denial: Option<&DenialReport>) -> Option<ExitedExtension> {
    let facts = if features.exit { ExitedExtension::of(status) } else { None };
    match denial.filter(|_| features.sandbox) {
        Some(denial) => Some(ExitedExtension { denial: Some(denial.clone()), ..facts.unwrap_or_default() }),
        None => facts,
    }
}
