//! The only owner of a child: one task that reads its output, notices its exit and carries its limits out.
//!
//! A hand-written future, so that it stays small and one poll does all that is due. In each poll, in this order:
//! deadlines, input, output, exit, close. Invariants:
//!
//! 1. Output that was there when the exit is noticed comes before the exit, unless the reader has no room for it.
//! 2. `Closed` follows the exit and the end of all streams at once. After a kill it follows once nothing is left
//!    to read, whoever still holds the streams.
//! 3. The child's number is given back last, and never while somebody could still signal it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use super::buffers::Buffers;
use super::gather::{self, Change, Gather};
use super::names::Check;
use super::os::{Child, ExitWatch, OutputReader};
use super::registry::Registration;
use super::sandbox::Sandboxed;
use super::shared::Shared;
use super::spawner::Spawner;
use super::stop::Action;
use crate::error::{OsError, WaitError};
use crate::event::OutputStream;
use crate::request::ExecRequest;
use crate::sandbox::Denial;
use crate::status::{ExitStatus, LimitExceeded};
use crate::time::{Instant, now};

/// The task of one process.
#[derive(Debug)]
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    spawner: Arc<Spawner>,
    buffers: Arc<Buffers>,
    registration: Option<Registration>,
    /// None without a sandbox.
    sandbox: Option<Sandboxed>,
    streams: [Option<Stream>; 2],
    /// The stream that is read first: the one for which there was no room the last time.
    first: usize,
    phase: Phase,
    /// The look at the names that were held for it, which begins with its end.
    early_check: Option<Check>,
    /// Until when the process may run, and how long it may take to end then.
    time_limit: Option<(Instant, Duration)>,
    output_limit: Option<u64>,
    limit_exceeded: Option<LimitExceeded>,
    close_streams_after_exit: Option<Duration>,
    /// A stream was given up before its end.
    cut: bool,
    failure: Option<OsError>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// How far the process has come.
#[derive(Debug)]
enum Phase {
    Running(ExitWatch),
    /// It has ended, and the exit is not told yet: in a sandbox, what was written last is waited for a moment, since it tells
    /// of denials.
    Ending {
        at: Instant,
        status: ExitStatus,
    },
    /// As before, and the names that were held for it are looked at, which takes the file system.
    Checking {
        at: Instant,
        status: ExitStatus,
        denial: Denial,
        check: Check,
    },
    /// It has ended, and streams are open.
    Exited {
        at: Instant,
    },
    /// `Closed` was reported, and the group may have members.
    Lingering {
        look_at: Instant,
        pause: Duration,
    },
    Over,
}

#[derive(Debug)]
struct Stream {
    reader: OutputReader,
    name: OutputStream,
    gather: Gather,
    /// Bytes since nothing was left to read.
    burst: usize,
    enlarged: bool,
}

impl Supervisor {
    /// Takes a process over. When the result is dropped without having run, the process is ended.
    ///
    /// Must be called within a runtime.
    pub(super) fn new(
        shared: Arc<Shared>,
        spawner: Arc<Spawner>,
        buffers: Arc<Buffers>,
        (stdout, stderr): (OutputReader, Option<OutputReader>),
        request: &ExecRequest,
        sandbox: Option<Sandboxed>,
        close_streams_after_exit: Option<Duration>,
    ) -> io::Result<Self> {
        let first = if stderr.is_some() { OutputStream::Stdout } else { OutputStream::Pty };
        let mut supervisor = Self {
            shared,
            spawner,
            buffers,
            registration: None,
            sandbox,
            streams: [Some(Stream::new(stdout, first)), stderr.map(|reader| Stream::new(reader, OutputStream::Stderr))],
            first: 0,
            phase: Phase::Over,
            early_check: None,
            time_limit: request
                .time_limit
                .and_then(|limit| now().checked_add(limit))
                .map(|deadline| (deadline, request.stop_grace)),
            output_limit: request.output_limit_bytes,
            limit_exceeded: None,
            close_streams_after_exit,
            cut: false,
            failure: None,
            timer: None,
        };
        for stream in supervisor.streams.iter_mut().flatten() {
            stream.reader.watch()?;
        }
        let watch = match &supervisor.shared.control().child {
            Some(child) => ExitWatch::new(child)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        supervisor.phase = Phase::Running(watch);
        Ok(supervisor)
    }

    /// Takes the place in the registry, which is freed at the end.
    pub(super) fn own(&mut self, registration: Registration) {
        self.registration = Some(registration);
    }

    fn is_exited(&self) -> bool {
        !matches!(self.phase, Phase::Running(_))
    }

    /// Does what the clock asks for.
    fn handle_timeouts(&mut self, now: Instant) {
        if let Some((deadline, grace)) = self.time_limit
            && deadline <= now
        {
            self.time_limit = None;
            let mut control = self.shared.control();
            // One that has ended in time, unseen so far, has not exceeded it.
            if control.is_running() {
                let stopped = control.stop(grace);
                drop(control);
                self.limit_exceeded.get_or_insert(LimitExceeded::Time);
                self.note("stop a process at its time limit", stopped);
            }
        }
        let mut control = self.shared.control();
        let action = control.stop.handle_timeout(now);
        if action != Action::Nothing {
            let stopped = control.carry_out(action);
            drop(control);
            self.note("kill a process", stopped);
        }
    }

    /// Reads what there is, within a budget, from the streams in turn; returns whether there may be more right now.
    fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let order = [self.first, 1 - self.first];
        let mut stuck = [false; 2];
        let mut refused = false;
        for _ in 0..READS_A_POLL {
            for index in order {
                if stuck[index] {
                    continue;
                }
                match self.read_once(index, cx, now) {
                    Progress::Read => {}
                    Progress::Stuck => stuck[index] = true,
                    Progress::Refused => {
                        stuck[index] = true;
                        // Else a flood on one stream would leave the other one no room for ever.
                        if !std::mem::replace(&mut refused, true) {
                            self.first = index;
                        }
                    }
                }
            }
            if stuck == [true; 2] {
                return false;
            }
        }
        true
    }

    /// Reads all that is there, whatever the runtime has heard of it: as much as a pipe can hold at most, since a stream
    /// can be written to for ever. Returns whether there may be more right now.
    fn read_all(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        for stream in self.streams.iter_mut().flatten() {
            stream.reader.look_again();
        }
        let bytes_a_poll = READS_A_POLL as usize * self.buffers.size();
        (0..MOST_THERE.div_ceil(bytes_a_poll)).all(|_| self.read(cx, now))
    }

    /// Reads one chunk of a stream.
    fn read_once(&mut self, index: usize, cx: &mut Context<'_>, now: Instant) -> Progress {
        let exited = self.is_exited();
        let Some(stream) = &mut self.streams[index] else { return Progress::Stuck };
        if !self.shared.events.has_room() {
            return Progress::Refused;
        }
        let result = self.buffers.fill(|buffer| stream.reader.poll_read(cx, buffer));
        match result {
            Poll::Pending => {
                if exited {
                    // Also after a burst: if it was the last one, nothing else wakes us.
                    stream.reader.let_end();
                }
                let burst = std::mem::take(&mut stream.burst);
                if burst == 0 {
                    return Progress::Stuck;
                }
                let change = stream.gather.handle_read(now, burst);
                self.apply(index, change)
            }
            // The end of a harvest.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                let burst = std::mem::take(&mut stream.burst);
                let change = stream.gather.handle_read(now, burst);
                self.apply(index, change);
                Progress::Read
            }
            Poll::Ready(Ok(bytes)) if bytes.is_empty() => {
                self.streams[index] = None;
                Progress::Stuck
            }
            Poll::Ready(Ok(bytes)) => {
                stream.burst += bytes.len();
                if bytes.len() == self.buffers.size() && !stream.enlarged && stream.reader.can_be_enlarged() {
                    // The writer is faster than we are: a larger pipe lets it work while we do.
                    stream.enlarged = true;
                    stream.reader.enlarge();
                }
                if let Some(sandbox) = &mut self.sandbox {
                    sandbox.feed(stream.name, &bytes);
                }
                let sum = self.shared.events.push_output(stream.name, bytes);
                if self.output_limit.is_some_and(|limit| sum > limit) {
                    self.exceed_output();
                    return Progress::Stuck;
                }
                Progress::Read
            }
            Poll::Ready(Err(error)) => {
                self.streams[index] = None;
                self.note("read the output of a process", Err(error));
                Progress::Stuck
            }
        }
    }

    /// A stream changes between being read as it comes and by the clock.
    fn apply(&mut self, index: usize, change: Change) -> Progress {
        let Some(stream) = &mut self.streams[index] else { return Progress::Stuck };
        match change {
            Change::None => Progress::Stuck,
            Change::Started => {
                stream.enlarged = true;
                // Without room in the pipe, or a descriptor for the clock, it goes on as it is.
                if stream.reader.enlarge() < gather::LEAST_CAPACITY || stream.reader.pace(gather::PERIOD).is_err() {
                    stream.gather.give_up();
                    return Progress::Stuck;
                }
                self.shared.set_gathering(true);
                Progress::Read
            }
            Change::Ended => match stream.reader.watch() {
                Ok(()) => Progress::Read,
                Err(error) => {
                    self.streams[index] = None;
                    self.cut = true;
                    self.note("watch the output of a process", Err(error));
                    Progress::Stuck
                }
            },
        }
    }

    /// Input was written, or the process has exited: output is not held back any more.
    fn end_gathering(&mut self) {
        for index in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[index] {
                let change = stream.gather.end();
                self.apply(index, change);
            }
        }
        self.shared.set_gathering(false);
    }

    /// The process has written more than it may: it is killed, and its further output is nobody's.
    fn exceed_output(&mut self) {
        self.output_limit = None;
        if !self.is_exited() {
            self.limit_exceeded.get_or_insert(LimitExceeded::Output);
        }
        let killed = self.shared.control().stop(Duration::ZERO);
        self.note("kill a process at its output limit", killed);
        self.cut_streams();
    }

    fn cut_streams(&mut self) {
        for stream in &mut self.streams {
            self.cut |= stream.take().is_some();
        }
    }

    /// Looks whether the process has ended, and reports it. Returns whether there may be more to read right now.
    fn look_for_exit(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Phase::Running(watch) = &mut self.phase else { return false };
        let status = match watch.poll_exited(cx) {
            Poll::Pending => {
                if let (None, Some(names)) = (&self.early_check, self.sandbox.as_ref().and_then(Sandboxed::names))
                    && let Some(ended) = watch.last_moments()
                {
                    self.early_check = Some(Check::begin_early(names.clone(), now, ended));
                }
                return false;
            }
            Poll::Ready(Ok(())) => match &self.shared.control().child {
                Some(child) => child.exit_status(),
                None => Ok(None),
            },
            Poll::Ready(Err(error)) => Err(error),
        };
        // Nobody can say how it ended if the host has reaped it itself, or ignores the ends of its children.
        let status = status.ok().flatten().unwrap_or(ExitStatus::unknown());
        self.phase = Phase::Ending { at: now, status };
        self.time_limit = None;
        self.end_gathering();
        let more = self.read_all(cx, now);
        let mut control = self.shared.control();
        control.exited = true;
        if let Some(child) = control.child.as_ref().filter(|child| child.outlives_leader()) {
            let released = child.release();
            drop(control);
            self.note("reap a process", released);
        } else {
            drop(control);
        }
        more
    }

    /// Reports the exit: at once without a sandbox, else when all output is there, or has had its time, and what was held
    /// is let go.
    fn report_exit(&mut self, cx: &mut Context<'_>, now: Instant) {
        if let Phase::Ending { at, status } = self.phase {
            let status = status.with_limit(self.limit_exceeded);
            let Some(sandbox) = &mut self.sandbox else { return self.tell_exit(at, status, None) };
            if self.streams.iter().any(Option::is_some) && now < at + CLASSIFY_GRACE {
                return;
            }
            let refused = self.shared.control().child.as_ref().map(Child::refused_calls);
            let denial = sandbox.classify(status, refused.unwrap_or_default());
            match sandbox.take_names() {
                Some(names) => {
                    let early = self.early_check.take().map(|check| check.go_on(now));
                    let check = early.unwrap_or_else(|| Check::begin(names, now));
                    self.phase = Phase::Checking { at, status, denial, check };
                }
                None => return self.tell_exit(at, status, Some(denial)),
            }
        }
        let Phase::Checking { at, status, denial, check } = &mut self.phase else { return };
        let Poll::Ready(checked) = check.poll(cx, now) else { return };
        let (at, status, mut denial) = (*at, *status, std::mem::take(denial));
        match checked {
            // What is sure comes first.
            Ok(evidence) => drop(denial.evidence.splice(..0, evidence)),
            Err(error) => self.note("look at the protected names of a process", Err(error)),
        }
        self.tell_exit(at, status, Some(denial));
    }

    fn tell_exit(&mut self, at: Instant, status: ExitStatus, denial: Option<Denial>) {
        let denied = denial.as_ref().is_some_and(|denial| denial.denied);
        if let Some(denial) = denial {
            self.shared.note_denial(denial);
        }
        self.shared.events.push_exited(status, denied);
        self.phase = Phase::Exited { at };
    }

    /// Looks whether the streams have ended or are to be given up, and reports that.
    fn look_for_close(&mut self, cx: &mut Context<'_>, now: Instant) {
        if !matches!(self.phase, Phase::Exited { .. }) {
            return;
        }
        if self.cut_at().is_some_and(|deadline| deadline <= now) && self.shared.events.has_room() {
            // If they are not given up, it is for want of room, for which the reader wakes us.
            let _more = self.read_all(cx, now);
            if self.shared.events.has_room() {
                self.cut_streams();
            }
        }
        if self.streams.iter().any(Option::is_some) {
            return;
        }
        match self.failure.take() {
            Some(error) => self.shared.events.fail(WaitError::Os(error)),
            None => self.shared.events.push_closed(self.cut),
        }
        self.shared.control().input.shut();
        self.phase = Phase::Lingering { look_at: now, pause: FIRST_LINGER_PAUSE };
    }

    /// When streams that are still open are given up.
    fn cut_at(&self) -> Option<Instant> {
        let Phase::Exited { at } = self.phase else { return None };
        let by_option = self.close_streams_after_exit.and_then(|limit| at.checked_add(limit));
        let killed_at = self.shared.control().stop.killed_at();
        let by_kill = killed_at.and_then(|killed_at| killed_at.max(at).checked_add(SETTLE));
        match (by_option, by_kill) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Members of the group can outlive it without a stream. They have until the kill if they were asked to end, and can
    /// still be asked to as long as there is a handle and the group can be told from another one. What holds a whole tree
    /// goes when the last member has.
    fn linger(&mut self, now: Instant) {
        let Phase::Lingering { look_at, pause } = &mut self.phase else { return };
        let mut control = self.shared.control();
        let stopping = match control.stop.killed_at() {
            Some(at) => now < at + SETTLE,
            None => control.stop.is_asked(),
        };
        if stopping && *pause > LAST_LINGER_PAUSE {
            (*look_at, *pause) = (now, FIRST_LINGER_PAUSE);
        }
        // Whoever does not end by a kill would not end by another one.
        let reachable = !control.handle_dropped && control.stop.killed_at().is_none();
        let wanted = stopping || reachable || control.child.as_ref().is_some_and(Child::needs_clean_up);
        if wanted && now < *look_at {
            return;
        }
        let members = control.child.as_ref().and_then(|child| child.tree_has_members());
        let mut killed = Ok(());
        match members {
            Some(true) if wanted => {
                *look_at = now + *pause;
                *pause = (*pause * 2).min(if stopping { LAST_LINGER_PAUSE } else { LAST_WATCH_PAUSE });
                return;
            }
            Some(true) => control.out_of_reach = true,
            Some(false) => control.stop.group_ended(),
            // It cannot be told, and the number cannot be kept.
            None if control.stop.is_asked() => killed = control.stop(Duration::ZERO),
            None => {}
        }
        let mut released = Ok(());
        if let Some(child) = control.child.take() {
            released = child.release();
            control.out_of_reach |= members.is_none() && child.may_have_left_members();
        }
        drop(control);
        self.phase = Phase::Over;
        // `Closed` was reported, so that there is nobody to tell.
        drop(killed);
        self.note("reap a process", released);
    }

    /// Keeps the first failure for the end of the events.
    fn note(&mut self, op: &'static str, result: io::Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_insert_with(|| OsError::new(op, error));
        }
    }

    /// When this has to be polled again.
    fn poll_timeout(&self) -> Option<Instant> {
        let stop = self.shared.control().stop.poll_timeout();
        let time_limit = self.time_limit.map(|(deadline, _)| deadline);
        let linger = match self.phase {
            Phase::Lingering { look_at, .. } => Some(look_at),
            Phase::Ending { at, .. } => Some(at + CLASSIFY_GRACE),
            Phase::Checking { ref check, .. } => Some(check.until()),
            _ => None,
        };
        // Without room the reader wakes us.
        let cut = self.cut_at().filter(|_| self.shared.events.has_room());
        [stop, time_limit, linger, cut].into_iter().flatten().min()
    }

    /// Sets the timer; returns whether its time has come already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.poll_timeout() else {
            self.timer = None;
            return false;
        };
        let deadline = deadline.into();
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).is_ready()
    }
}

enum Progress {
    /// Something was read, and there may be more.
    Read,
    /// Nothing more can be read now.
    Stuck,
    /// There is no room for more.
    Refused,
}

impl Stream {
    fn new(reader: OutputReader, name: OutputStream) -> Self {
        let gather = Gather::new(reader.can_be_enlarged());
        Self { reader, name, gather, burst: 0, enlarged: false }
    }
}

impl Future for Supervisor {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.shared.register_supervisor(cx.waker());
        let now = now();
        this.handle_timeouts(now);
        let mut control = this.shared.control();
        if control.input.is_pending() {
            control.input.poll_flush(cx);
        }
        drop(control);
        if this.shared.take_input_written() {
            this.end_gathering();
        }
        let mut again = this.read(cx, now);
        again |= this.look_for_exit(cx, now);
        this.report_exit(cx, now);
        this.look_for_close(cx, now);
        this.linger(now);
        if matches!(this.phase, Phase::Over) {
            return Poll::Ready(());
        }
        again |= this.arm(cx);
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// The runtime is going, or the process was never registered.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.events.fail(WaitError::Closed);
        let mut control = self.shared.control();
        control.input.shut();
        let child = control.child.take();
        let detached = control.detached;
        drop(control);
        let names = self.sandbox.as_mut().and_then(Sandboxed::take_names);
        match child {
            Some(child) if detached => self.spawner.outlive(child, names),
            Some(child) => self.spawner.bury(child, names),
            None => {}
        }
    }
}

/// Chunks of one stream in one poll, before others have their turn.
const READS_A_POLL: u32 = 8;
/// More than the largest pipe holds.
const MOST_THERE: usize = 2 << 20;
/// How long after the exit of a sandboxed process its last output may take, which tells of denials.
const CLASSIFY_GRACE: Duration = Duration::from_millis(20);
/// How long after a kill the ends of the other members of the group may take to show.
const SETTLE: Duration = Duration::from_millis(50);
const FIRST_LINGER_PAUSE: Duration = Duration::from_millis(2);
const LAST_LINGER_PAUSE: Duration = Duration::from_millis(50);
/// Between looks at a group that nobody has asked to end.
const LAST_WATCH_PAUSE: Duration = Duration::from_secs(1);
