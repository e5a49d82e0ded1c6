//! What each request does, and how the calls end.

use std::collections::VecDeque;
use std::time::Duration;

use super::action::{Action, Completion, StartFacts};
use super::fault::Fault;
use super::process::{Phase, Process, ProcessKey, WaitingRead};
use super::reply::{self, Reply};
use super::request::{Call, Request};
use super::timers::Timer;
use super::{Peer, start};
use crate::core::replay::ProcessLog;
use crate::core::stdin_queue::{Answer, Done, Job, StdinQueue};
use crate::error::{InvalidRequest, SpawnError, WriteError};
use crate::request::{ProcessId, Signal, TerminalSize};
use crate::time::Instant;
use crate::wire::codec::hot::OutputEncoder;
use crate::wire::environment::ConfigReadParams;
use crate::wire::extension::{CloseStdinStatus, ListResult, ListedProcess, ResizeParams};
use crate::wire::process::{ReadParams, StartParams, TerminateParams, WriteParams, WriteStatus};

impl Peer {
    /// Carries out a request, or lets it wait for the start of its process.
    pub(super) fn dispatch(&mut self, now: Instant, call: Call, request: Request) {
        let key = request.process_id().and_then(|id| self.processes.key(id));
        if let Some(Process { phase: Phase::Starting { held, .. }, .. }) =
            key.and_then(|key| self.processes.get_mut(key))
            && !matches!(request, Request::Terminate(_))
        {
            held.push_back((call, request));
            return;
        }
        self.records.begun(call.number);
        match request {
            // Refused before it comes here.
            Request::Initialize(_) => debug_assert!(false, "initialize is answered by the handshake"),
            Request::Status => self.answer(call, Reply::Status),
            Request::Info => self.actions.push_back(Action::Info { call }),
            Request::List => {
                let list = self.list();
                self.answer(call, Reply::List(list));
            }
            Request::Start(params) => self.start(call, *params),
            Request::Read(params) => self.read(now, call, &params),
            Request::Write(params) => self.write(call, params),
            Request::Signal { process_id, signal } => self.signal(call, &process_id, signal),
            Request::Terminate(params) => self.terminate(now, call, &params),
            Request::CloseStdin(process_id) => self.close_stdin(call, &process_id),
            Request::Resize(params) => self.resize(call, &params),
            Request::ReadConfig(params) => self.read_config(call, &params),
            Request::File(request) => self.file(call, request),
            Request::Http(params) => self.http(call, *params),
        }
    }

    /// What the driver was asked to do has ended.
    pub(crate) fn handle_completion(&mut self, now: Instant, completion: Completion) {
        match completion {
            Completion::Started { process, result } => self.started(now, process, result),
            Completion::StdinDone { process, result } => {
                let done = match result {
                    Ok(()) => Done::Applied,
                    Err(WriteError::StdinClosed | WriteError::UnknownProcess(_)) => Done::Gone,
                    Err(_) => Done::Failed,
                };
                self.with_stdin(process, |stdin| stdin.handle_done(done));
            }
            Completion::Acted { call, result } => {
                let reply = result.map_or_else(|error| Reply::Fault(error.into()), |()| Reply::Empty);
                self.answer(call, reply);
            }
            Completion::Terminated { call: None, .. } => {}
            Completion::Terminated { call: Some(call), result } => {
                let reply =
                    result.map_or_else(|error| Reply::Fault(error.into()), |running| Reply::Terminate { running });
                self.answer(call, reply);
            }
            Completion::File { ticket, result } => self.file_done(ticket, result),
            Completion::HttpHead { exchange, result } => self.http_head(exchange, result),
            Completion::HttpBody { exchange, result } => self.http_body(exchange, result),
            Completion::MissingChanged { watch } => self.missing_changed(watch),
            Completion::Info { call, result } => {
                let reply = match *result {
                    Ok(info) => Reply::Info(Box::new(self.environment_info(info))),
                    Err(error) => Reply::Fault(error.into()),
                };
                self.answer(call, reply);
            }
        }
    }

    fn start(&mut self, call: Call, params: StartParams) {
        let asked = call.number;
        let id = params.process_id.clone();
        let (tty, takes_input) = (params.tty, params.tty || params.pipe_stdin);
        let request = match start::exec_request(params, self.os(), self.features()) {
            Ok(request) => request,
            Err(fault) => return self.answer(call, Reply::Fault(fault)),
        };
        let refusal = if self.processes.key(&id).is_some() {
            Some(SpawnError::AlreadyExists(id.clone()))
        } else if self.processes.len() - self.closed.len() >= self.config.max_processes {
            Some(SpawnError::TooManyProcesses { limit: self.config.max_processes as u64 })
        } else if !self.has_room_for_closed() {
            Some(SpawnError::TooManyProcesses { limit: self.config.max_closed_processes as u64 })
        } else if self.shutting_down {
            Some(SpawnError::Closed)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer(call, Reply::Fault(refusal.into()));
        }
        let process = self.processes.insert(Process {
            encoder: OutputEncoder::new(&id),
            id,
            tty,
            phase: Phase::Starting { call, held: VecDeque::new() },
            log: ProcessLog::new(self.config.output, self.reader()),
            stdin: StdinQueue::new(
                takes_input,
                self.config.stdin_queue_writes,
                self.config.stdin_queue_bytes,
                self.config.remembered_write_ids,
            ),
            reads: Vec::new(),
            closed_place: None,
            forget_at: None,
            in_round: false,
            denial: None,
        });
        self.actions.push_back(Action::Start { process, request: Box::new(request), asked });
    }

    fn started(&mut self, now: Instant, key: ProcessKey, result: Result<StartFacts, SpawnError>) {
        let with_reports = self.features().sandbox;
        let Some(process) = self.processes.get_mut(key) else { return };
        match result {
            Ok(facts) => {
                let Phase::Starting { call, held } = std::mem::replace(&mut process.phase, Phase::Started) else {
                    return;
                };
                let reply = reply::start_result(process.id.clone(), facts, with_reports);
                self.answer(call, reply);
                self.dispatch_held(now, held);
            }
            Err(error) => self.end_start(now, key, error),
        }
    }

    /// A start has failed: its id is free, and what waited for it goes on without it.
    fn end_start(&mut self, now: Instant, key: ProcessKey, error: SpawnError) {
        let Some(Process { phase: Phase::Starting { call, held }, .. }) = self.processes.remove(key) else { return };
        self.answer(call, Reply::Fault(error.into()));
        self.dispatch_held(now, held);
    }

    /// Cancels a start, and with it those of the same id that wait behind it: they came before what cancels it.
    pub(super) fn cancel_start(&mut self, now: Instant, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let id = process.id.clone();
        let starts = match &mut process.phase {
            Phase::Starting { held, .. } => {
                let is_start = |held: &(Call, Request)| matches!(held.1, Request::Start(_));
                let (starts, others): (VecDeque<_>, VecDeque<_>) = held.drain(..).partition(is_start);
                *held = others;
                starts
            }
            Phase::Started => return,
        };
        self.actions.push_back(Action::CancelStart { process: key });
        self.end_start(now, key, SpawnError::Cancelled(id.clone()));
        for (call, _) in starts {
            self.answer(call, Reply::Fault(SpawnError::Cancelled(id.clone()).into()));
        }
    }

    fn dispatch_held(&mut self, now: Instant, held: VecDeque<(Call, Request)>) {
        for (call, request) in held {
            self.dispatch(now, call, request);
        }
    }

    fn read(&mut self, now: Instant, call: Call, params: &ReadParams) {
        let serial = self.next_read;
        self.next_read += 1;
        let features = self.features();
        let Some((key, process)) = self.process_of(&params.process_id) else {
            return self.answer(call, Reply::Fault(Fault::unknown_process(&params.process_id)));
        };
        let after_seq = params.after_seq.unwrap_or(0);
        let wait = Duration::from_millis(params.wait_ms.unwrap_or(0));
        if wait.is_zero() || process.log.is_readable(after_seq) {
            let reading = process.log.read(after_seq, params.max_bytes);
            let reply = reply::read_result(process, reading, features);
            return self.answer(call, reply);
        }
        // A wait beyond the end of time has no end but an event.
        let deadline = now.checked_add(wait);
        process.reads.push(WaitingRead { call, after_seq, max_bytes: params.max_bytes, serial, deadline });
        if let Some(deadline) = deadline {
            self.timers.insert(deadline, Timer::Read { process: key, read: serial });
        }
    }

    /// Answers the waiting reads for which there is something.
    pub(super) fn wake_reads(&mut self, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(key) else { return };
        if process.reads.is_empty() {
            return;
        }
        let log = &process.log;
        let ready: Vec<_> = process.reads.extract_if(.., |read| log.is_readable(read.after_seq)).collect();
        for read in ready {
            self.timers.remove(read.deadline, Timer::Read { process: key, read: read.serial });
            self.end_read(key, read);
        }
    }

    /// The time of a waiting read is over.
    pub(super) fn end_waiting_read(&mut self, key: ProcessKey, serial: u64) {
        let Some(process) = self.processes.get_mut(key) else { return };
        if let Some(place) = process.reads.iter().position(|read| read.serial == serial) {
            let read = process.reads.remove(place);
            self.end_read(key, read);
        }
    }

    fn end_read(&mut self, key: ProcessKey, read: WaitingRead) {
        let features = self.features();
        let Some(process) = self.processes.get_mut(key) else { return };
        let reading = process.log.read(read.after_seq, read.max_bytes);
        let reply = reply::read_result(process, reading, features);
        self.answer(read.call, reply);
    }

    fn write(&mut self, mut call: Call, params: WriteParams) {
        if params.write_id.is_empty() {
            return self.answer(call, Reply::Fault(Fault::invalid_params("writeId must not be empty")));
        }
        match self.processes.key(&params.process_id) {
            None => self.answer(call, Reply::Write(WriteStatus::UnknownProcess)),
            Some(key) => {
                self.release_bytes(&mut call);
                let call = StdinCall::Write(call);
                self.with_stdin(key, |stdin| stdin.handle_write(call, params.write_id, params.chunk.into()));
            }
        }
    }

    fn close_stdin(&mut self, call: Call, id: &ProcessId) {
        match self.process_of(id) {
            None => self.answer(call, Reply::CloseStdin(CloseStdinStatus::UnknownProcess)),
            Some((_, process)) if process.tty => {
                let text = format!("standard input of process {id} is a terminal; write its end-of-file character");
                self.answer(call, Reply::Fault(Fault::invalid_request(text)));
            }
            Some((key, _)) => self.with_stdin(key, |stdin| stdin.handle_close(StdinCall::Close(call))),
        }
    }

    /// Changes a process's standard input, then does and answers what follows from it.
    pub(super) fn with_stdin(&mut self, key: ProcessKey, change: impl FnOnce(&mut StdinQueue<StdinCall>)) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let before = process.stdin.excess_bytes();
        change(&mut process.stdin);
        while let Some(job) = process.stdin.poll_job() {
            self.actions.push_back(match job {
                Job::Write(data) => Action::Write { process: key, data },
                Job::Close => Action::CloseStdin { process: key },
            });
        }
        self.stdin_excess = self.stdin_excess - before + process.stdin.excess_bytes();
        while let Some((call, answer)) = self.processes.get_mut(key).and_then(|process| process.stdin.poll_answer()) {
            let (call, reply) = stdin_reply(call, answer);
            self.answer(call, reply);
        }
    }

    fn signal(&mut self, call: Call, id: &ProcessId, signal: Signal) {
        match self.process_of(id) {
            Some((process, known)) if known.log.close().is_none() => {
                self.actions.push_back(Action::Signal { process, signal, call });
            }
            // Nobody is left to hear it, which the wire does not call an error.
            _ => self.answer(call, Reply::Empty),
        }
    }

    fn resize(&mut self, call: Call, params: &ResizeParams) {
        let ResizeParams { process_id, rows, cols } = params;
        let (rows, cols) = (*rows, *cols);
        if rows == 0 || cols == 0 {
            let error = InvalidRequest::TerminalSize { rows, cols };
            return self.answer(call, Reply::Fault(Fault::invalid_params(error.to_string())));
        }
        match self.process_of(process_id) {
            None => self.answer(call, Reply::Fault(Fault::unknown_process(process_id))),
            Some((_, process)) if !process.tty => {
                let text = format!("process {process_id} has no terminal");
                self.answer(call, Reply::Fault(Fault::invalid_request(text)));
            }
            Some((_, process)) if process.log.close().is_some() => self.answer(call, Reply::Empty),
            Some((process, _)) => {
                self.actions.push_back(Action::Resize { process, size: TerminalSize { rows, cols }, call });
            }
        }
    }

    fn terminate(&mut self, now: Instant, call: Call, params: &TerminateParams) {
        if params.longarm.is_some() && !self.features().terminate {
            return self.answer(call, Reply::Fault(start::not_agreed("graceMs")));
        }
        let extension = params.longarm.unwrap_or_default();
        let Some((process, known)) = self.process_of(&params.process_id) else {
            return self.answer(call, Reply::Terminate { running: false });
        };
        if known.is_starting() {
            self.cancel_start(now, process);
            return self.answer(call, Reply::Terminate { running: true });
        }
        // The plain wire leaves alone what an exited process left behind: its clients end every command so.
        if known.log.exit().is_some() && !extension.descendants {
            return self.answer(call, Reply::Terminate { running: false });
        }
        let grace = Duration::from_millis(extension.grace_ms);
        let descendants = extension.descendants;
        self.actions.push_back(Action::Terminate { process, grace, descendants, call: Some(call) });
    }

    fn read_config(&mut self, call: Call, params: &ConfigReadParams) {
        let ConfigReadParams { cwd, config_paths, requirements_paths } = params;
        let refusal = if config_paths.is_empty() && requirements_paths.is_empty() {
            Some(Fault::invalid_params("at least one config or requirements path is required"))
        } else if config_paths.iter().chain(requirements_paths).any(Vec::is_empty) {
            Some(Fault::invalid_params("TOML paths must contain at least one key segment"))
        } else {
            let foreign = self.os().and_then(|os| cwd.to_native(os).err());
            foreign.map(|foreign| Fault::invalid_params(foreign.to_string()))
        };
        let reply = match refusal {
            Some(refusal) => Reply::Fault(refusal),
            None => self
                .info
                .as_ref()
                .and_then(reply::config_result)
                .unwrap_or_else(|| Reply::Fault(Fault::internal("the user's home directory is not known"))),
        };
        self.answer(call, reply);
    }

    fn list(&self) -> ListResult {
        let mut processes: Vec<_> = self.processes.iter().collect();
        processes.sort_by_key(|(key, _)| key.serial());
        let listed = processes.into_iter().map(|(_, process)| ListedProcess {
            process_id: process.id.clone(),
            state: process.state(),
            next_seq: process.log.next_seq(),
            tty: process.tty,
            exit_code: process.log.exit().map(|exit| exit.status.wire_code()),
        });
        ListResult { processes: listed.collect() }
    }
}

/// A call that waits for standard input.
#[derive(Debug)]
pub(super) enum StdinCall {
    Write(Call),
    Close(Call),
}

fn stdin_reply(call: StdinCall, answer: Answer) -> (Call, Reply) {
    let failed = || Reply::Fault(Fault::internal("failed to write to process stdin"));
    match call {
        StdinCall::Write(call) => {
            let reply = match answer {
                Answer::Accepted => Reply::Write(WriteStatus::Accepted),
                Answer::StdinClosed => Reply::Write(WriteStatus::StdinClosed),
                Answer::Failed => failed(),
            };
            (call, reply)
        }
        StdinCall::Close(call) => {
            let reply = match answer {
                Answer::Accepted => Reply::CloseStdin(CloseStdinStatus::Accepted),
                Answer::StdinClosed => Reply::CloseStdin(CloseStdinStatus::StdinClosed),
                Answer::Failed => failed(),
            };
            (call, reply)
        }
    }
}
