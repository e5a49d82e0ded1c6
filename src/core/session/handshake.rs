//! The first exchange, and what is learnt from it.

use super::op::Failure;
use super::route::{Kind, Outgoing};
use super::{Answer, Call, Class, ConnectionState, Ending, Held, Session, SessionEvent, State, Token};
use crate::core::recovery::Recovery;
use crate::error::{ConnectError, PeerMisbehaved, RpcError};
use crate::info::{EnvironmentInfo, Features};
use crate::time::{Instant, after};
use crate::wire::codec::{self, Payload};
use crate::wire::extension::Offer;
use crate::wire::initialize::{self, InitializeParams, InitializeResult};
use crate::wire::method::{self, Initialize, Initialized, Method, NoParams};
use crate::wire::{ErrorCode, RequestId, environment};

/// What the peer says of itself.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) features: Features,
    pub(super) info: Info,
}

/// What is known of the place.
#[derive(Debug)]
pub(super) enum Info {
    Known(Box<EnvironmentInfo>),
    /// An older peer is being asked; these calls wait for the answer.
    Asked(Vec<Token>),
    /// It was asked, and does not say.
    Refused(RpcError),
    /// An older peer, which nobody has asked.
    Unasked,
}

impl Session {
    pub(super) fn begin_handshake(&mut self, now: Instant, recovery: Option<Box<Recovery>>) {
        let params = InitializeParams {
            client_name: self.config.client_name.clone(),
            resume_session_id: self.session_id.clone(),
            longarm: Some(Offer::of(Features::all())),
        };
        let call = self.calls.take_id();
        let bytes = codec::encode_request::<Initialize>(&RequestId::Number(call), &params);
        self.greeting.push_back(Outgoing { kind: Kind::Initialize, bytes });
        if self.session_id.is_none() {
            self.greeting.push_back(initialized());
        }
        let mut deadline = after(now, self.config.initialize_timeout);
        if let Some(recovery) = &recovery {
            deadline = deadline.min(recovery.deadline());
        }
        self.state = State::Handshaking { call, sent: false, deadline, again: None, recovery };
    }

    pub(super) fn handle_initialize(&mut self, now: Instant, answer: Result<Payload<'_>, RpcError>) {
        let result = match answer {
            Ok(payload) => {
                payload.decode::<InitializeResult>().map_err(|error| error.into_bad_result(Initialize::NAME))
            }
            Err(error) => return self.handle_refusal(now, rejection(error, self.session_id.clone())),
        };
        let result = match result {
            Ok(result) => result,
            Err(misbehaviour) => return self.fault(now, misbehaviour),
        };
        if let Some(id) = &self.session_id {
            if *id != result.session_id {
                return self.fault(now, PeerMisbehaved::Protocol("another session than the one to resume".into()));
            }
            self.greeting.push_back(initialized());
        }
        self.session_id = Some(result.session_id.clone());
        let features = match (&result.environment_info, &self.facts) {
            (Some(info), _) => info.features(),
            (None, Some(facts)) => facts.features,
            (None, None) => Features::default(),
        };
        if features.any() {
            self.calls.set_limit(self.config.max_calls_extended.max(1));
        }
        let info = match (result.environment_info, self.facts.take()) {
            (Some(info), _) => Info::Known(Box::new(info.into())),
            (None, Some(facts)) => facts.info,
            (None, None) => Info::Unasked,
        };
        self.facts = Some(Facts { features, info });
        self.generation += 1;
        let (link, generation, session_id) = (self.link, self.generation, result.session_id);
        self.events.push_back(SessionEvent::Connected { link, generation, session_id, features });
        let state = std::mem::replace(&mut self.state, State::Open { settling: None });
        if let State::Handshaking { recovery: Some(recovery), .. } = state {
            return self.resume(now, *recovery);
        }
        let (generation, session) = (self.generation, self.epoch);
        self.publish(ConnectionState::Connected { generation, session });
        let routes: Vec<_> = self.routes.keys().copied().collect();
        for route in routes {
            self.note_consumed(now, route);
        }
        self.release_held(now);
    }

    /// What waited for the peer's answer goes on, in order; what is still not known is asked for, and waits on.
    pub(super) fn release_held(&mut self, now: Instant) {
        for Held { token, route, op } in std::mem::take(&mut self.held) {
            if self.must_wait(&op) {
                self.hold(token, route, op);
            } else {
                self.dispatch(now, token, route, op);
            }
        }
    }

    pub(super) fn handle_info(&mut self, now: Instant, answer: Result<Payload<'_>, RpcError>) {
        let Some(facts) = &mut self.facts else { return };
        let Info::Asked(waiting) = std::mem::replace(&mut facts.info, Info::Unasked) else { return };
        let result = match answer {
            Ok(payload) => match payload.decode::<environment::EnvironmentInfo>() {
                Ok(info) => {
                    let info = Box::new(EnvironmentInfo::from(info));
                    facts.info = Info::Known(info.clone());
                    Ok(Answer::Info(info))
                }
                Err(error) => {
                    let misbehaviour = error.into_bad_result(method::Info::NAME);
                    let text = misbehaviour.to_string();
                    facts.info = Info::Refused(RpcError { code: ErrorCode::INTERNAL.0, message: text, data: None });
                    Err(Failure::from(misbehaviour))
                }
            },
            Err(error) => {
                facts.info = Info::Refused(error.clone());
                Err(error.into())
            }
        };
        for token in waiting {
            self.answer(token, result.clone());
        }
        self.release_held(now);
    }

    /// Asks an older peer what it is, unless that is known or under way. False if there is no place for the call.
    pub(super) fn ask_for_info(&mut self) -> bool {
        if !matches!(self.facts, Some(Facts { info: Info::Unasked, .. })) {
            return true;
        }
        let Ok(call) = self.calls.admit(Class::Ahead, Call::Info) else { return false };
        self.send_ahead::<method::Info>(call, &NoParams);
        if let Some(facts) = &mut self.facts {
            facts.info = Info::Asked(Vec::new());
        }
        true
    }

    /// A refusal does not use up the connection: while the peer has not noticed that an earlier one is gone, it is asked again
    /// over this one.
    fn handle_refusal(&mut self, now: Instant, error: ConnectError) {
        if let (ConnectError::SessionAttached(id), State::Handshaking { recovery: Some(recovery), sent, again, .. }) =
            (&error, &mut self.state)
            && let Some(at) = recovery.handle_refusal(now, &self.config.recovery.retry, id)
        {
            // This request has its answer; another one of the same number means nothing.
            (*sent, *again) = (false, Some(at));
            return;
        }
        self.reject(now, error);
    }

    pub(super) fn shake_again(&mut self, now: Instant) {
        let out_of_time = matches!(&self.state, State::Handshaking { recovery: Some(recovery), .. }
            if recovery.deadline() <= now);
        if out_of_time {
            let id = self.session_id.clone().unwrap_or_default();
            return self.reject(now, ConnectError::SessionAttached(id));
        }
        if let State::Handshaking { recovery, .. } = std::mem::replace(&mut self.state, State::Idle) {
            self.begin_handshake(now, recovery);
        }
    }

    pub(super) fn handshake_timed_out(&mut self, now: Instant) {
        let limit = self.config.initialize_timeout;
        self.reject(now, ConnectError::TimedOut { what: "the handshake", limit });
    }

    fn reject(&mut self, now: Instant, error: ConnectError) {
        let mut reason = format!("the handshake failed: {error}");
        if let State::Handshaking { recovery: Some(recovery), .. } = &self.state
            && let Some(cause) = recovery.cause()
        {
            reason = format!("{cause}; {reason}");
        }
        self.lose(now, reason.into(), Ending::Normal, error);
    }
}

fn initialized() -> Outgoing {
    let bytes = codec::encode_notification::<Initialized>(&initialize::Initialized);
    Outgoing { kind: Kind::Initialized, bytes }
}

fn rejection(error: RpcError, resumed: Option<String>) -> ConnectError {
    match (ErrorCode(error.code), resumed) {
        (ErrorCode::SESSION_ATTACHED, Some(id)) => ConnectError::SessionAttached(id),
        // The code stands for other things as well.
        (ErrorCode::INVALID_REQUEST, Some(id)) if error.message.starts_with("unknown session") => {
            ConnectError::UnknownSession(id)
        }
        _ => error.into(),
    }
}
