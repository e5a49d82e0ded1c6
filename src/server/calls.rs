//! What a session has asked of its backend and is waiting for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;

use super::files::Files;
use super::http::Http;
use super::measure::Requests;
use super::slots::Slots;
use crate::backend::{ExecBackend, ProcessControl, Spawned, Terminate};
use crate::core::peer::{Action, Completion, ProcessKey};
use crate::error::{SpawnError, WriteError};

/// The calls on the backend that have not ended.
#[derive(Debug)]
pub(super) struct Calls {
    backend: Arc<dyn ExecBackend>,
    running: FuturesUnordered<Abortable<BoxFuture>>,
}

type BoxFuture = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// How a call ended.
pub(super) enum Ended {
    /// A start, whose process is not in its slot yet.
    Started(ProcessKey, Result<Spawned, SpawnError>),
    /// Anything else.
    Completed(Box<Completion>),
}

impl Calls {
    pub(super) fn new(backend: Arc<dyn ExecBackend>) -> Self {
        Self { backend, running: FuturesUnordered::new() }
    }

    /// Carries out an action. Returns how it ended, if it did so at once, as most do.
    pub(super) fn begin(
        &self,
        cx: &mut Context<'_>,
        action: Action,
        requests: &Requests,
        slots: &mut Slots,
        files: &mut Files,
        http: &mut Http,
    ) -> Option<Ended> {
        match action {
            Action::Start { process, mut request, asked } => {
                request.trace = requests.trace_of(asked);
                let backend = Arc::clone(&self.backend);
                let (abort, registration) = AbortHandle::new_pair();
                slots.starting(process, abort);
                let start = async move { Ended::Started(process, backend.spawn(*request).await) };
                let start = Box::pin(requests.within(asked, start));
                self.run_abortable(cx, Abortable::new(start, registration))
            }
            Action::CancelStart { process } | Action::Forget { process } => {
                slots.forget(process);
                None
            }
            Action::Write { process, data } => {
                self.stdin(cx, process, slots, |control| async move { control.write(data).await })
            }
            Action::CloseStdin { process } => {
                self.stdin(cx, process, slots, |control| async move { control.close_stdin().await })
            }
            Action::Resize { process, size, call } => {
                let Some(control) = slots.control(process).cloned() else {
                    return Some(Ended::Completed(Box::new(Completion::Acted { call, result: Ok(()) })));
                };
                self.run(cx, async move { Completion::Acted { call, result: control.resize(size).await } })
            }
            Action::Signal { process, signal, call } => {
                let Some(control) = slots.control(process).cloned() else {
                    return Some(Ended::Completed(Box::new(Completion::Acted { call, result: Ok(()) })));
                };
                self.run(cx, async move { Completion::Acted { call, result: control.signal(signal).await } })
            }
            Action::Terminate { process, grace, descendants, call } => {
                let Some(control) = slots.control(process).cloned() else {
                    return Some(Ended::Completed(Box::new(Completion::Terminated { call, result: Ok(false) })));
                };
                let mut how = Terminate::graceful(grace);
                if descendants {
                    how = how.with_descendants();
                }
                self.run(cx, async move { Completion::Terminated { call, result: control.terminate(how).await } })
            }
            Action::File { ticket, job, sandbox } => {
                files.begin(cx, ticket, job, sandbox).map(|ended| Ended::Completed(Box::new(ended)))
            }
            Action::ForgetFile { file } => {
                files.forget(file);
                None
            }
            Action::Unwatch => {
                files.unwatch();
                None
            }
            Action::ForgetFiles => {
                files.clear();
                None
            }
            Action::Http { exchange, request } => {
                http.begin(cx, exchange, *request).map(|ended| Ended::Completed(Box::new(ended)))
            }
            Action::PullBody { exchange } => http.pull(cx, exchange).map(|ended| Ended::Completed(Box::new(ended))),
            Action::ForgetHttp { exchange } => {
                http.forget(exchange);
                None
            }
            Action::ForgetAllHttp => {
                http.clear();
                None
            }
            Action::Info { call } => {
                let backend = Arc::clone(&self.backend);
                self.run(cx, async move { Completion::Info { call, result: Box::new(backend.fresh_info().await) } })
            }
        }
    }

    /// The next call that has ended.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            match Pin::new(&mut self.running).poll_next(cx) {
                Poll::Ready(Some(Ok(ended))) => return Poll::Ready(ended),
                // It was given up, and nobody asks for it.
                Poll::Ready(Some(Err(_aborted))) => {}
                // Whatever is added later is polled when it is.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn stdin<F>(
        &self,
        cx: &mut Context<'_>,
        process: ProcessKey,
        slots: &mut Slots,
        job: impl FnOnce(Arc<dyn ProcessControl>) -> F,
    ) -> Option<Ended>
    where
        F: Future<Output = Result<(), WriteError>> + Send + 'static,
    {
        let Some(control) = slots.control(process).cloned() else {
            let result = Err(WriteError::StdinClosed);
            return Some(Ended::Completed(Box::new(Completion::StdinDone { process, result })));
        };
        let job = job(control);
        let mut job: BoxFuture =
            Box::pin(async move { Ended::Completed(Box::new(Completion::StdinDone { process, result: job.await })) });
        if let Poll::Ready(ended) = job.as_mut().poll(cx) {
            return Some(ended);
        }
        let (abort, registration) = AbortHandle::new_pair();
        slots.set_stdin_abort(process, abort);
        self.running.push(Abortable::new(job, registration));
        None
    }

    fn run(&self, cx: &mut Context<'_>, call: impl Future<Output = Completion> + Send + 'static) -> Option<Ended> {
        let (_, registration) = AbortHandle::new_pair();
        let call: BoxFuture = Box::pin(async move { Ended::Completed(Box::new(call.await)) });
        self.run_abortable(cx, Abortable::new(call, registration))
    }

    fn run_abortable(&self, cx: &mut Context<'_>, mut call: Abortable<BoxFuture>) -> Option<Ended> {
        match Pin::new(&mut call).poll(cx) {
            Poll::Ready(ended) => ended.ok(),
            Poll::Pending => {
                self.running.push(call);
                None
            }
        }
    }
}
