//! The first exchange, and what is learnt from it.

use super::op::{Failure, Mode};
use super::route::{Kind, Outgoing};
use super::{Answer, Call, Class, Ending, Held, Session, SessionEvent, State, Token};
use crate::error::{ConnectError, RpcError};
use crate::info::{EnvironmentInfo, Features};
use crate::time::Instant;
use crate::wire::codec::{self, Payload};
use crate::wire::extension::Offer;
use crate::wire::initialize::{self, InitializeParams, InitializeResult};
use crate::wire::method::{self, Initialize, Initialized, Method, NoParams};
use crate::wire::{ErrorCode, environment};

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
    pub(super) fn begin_handshake(&mut self) {
        let resume_session_id = match &self.state {
            State::Handshaking { mode: Mode::Resume(id), .. } => Some(id.clone()),
            _ => None,
        };
        let fresh = resume_session_id.is_none();
        let params = InitializeParams {
            client_name: self.config.client_name.clone(),
            resume_session_id,
            longarm: Some(Offer::of(Features::all())),
        };
        // The table is empty and has a place.
        if let Ok(call) = self.calls.admit(Class::Regular, Call::Initialize) {
            self.send::<Initialize>(call, &params);
        }
        if fresh {
            self.outbox.push_back(initialized());
        }
    }

    pub(super) fn handle_initialize(&mut self, now: Instant, answer: Result<Payload<'_>, RpcError>) {
        let State::Handshaking { mode, .. } = &self.state else { return };
        let resumed = match mode {
            Mode::Fresh => None,
            Mode::Resume(id) => Some(id.clone()),
        };
        let result = match answer {
            Ok(payload) => {
                payload.decode::<InitializeResult>().map_err(|error| error.into_bad_result(Initialize::NAME))
            }
            Err(error) => return self.reject(rejection(error, resumed)),
        };
        let result = match result {
            Ok(result) => result,
            Err(misbehaviour) => return self.fault(misbehaviour),
        };
        if resumed.is_some() {
            self.outbox.push_back(initialized());
        }
        let features = result.environment_info.as_ref().map(environment::EnvironmentInfo::features).unwrap_or_default();
        if features.any() {
            self.calls.set_limit(self.config.max_calls_extended.max(1));
        }
        let info = result.environment_info.map_or(Info::Unasked, |info| Info::Known(Box::new(info.into())));
        self.facts = Some(Facts { features, info });
        self.state = State::Open;
        self.events.push_back(SessionEvent::Connected { session_id: result.session_id, features });
        let routes: Vec<_> = self.routes.keys().copied().collect();
        for route in routes {
            self.note_consumed(now, route);
        }
        self.release_held(now);
    }

    /// What waited for the peer's answer goes on, in order.
    pub(super) fn release_held(&mut self, now: Instant) {
        for Held { token, route, op } in std::mem::take(&mut self.held) {
            self.dispatch(now, token, route, op);
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
        let Ok(call) = self.calls.admit(Class::Regular, Call::Info) else { return false };
        self.send::<method::Info>(call, &NoParams);
        if let Some(facts) = &mut self.facts {
            facts.info = Info::Asked(Vec::new());
        }
        true
    }

    pub(super) fn handshake_timed_out(&mut self) {
        let limit = self.config.initialize_timeout;
        self.reject(ConnectError::TimedOut { what: "the handshake", limit });
    }

    fn reject(&mut self, error: ConnectError) {
        let reason = format!("the handshake failed: {error}");
        self.end(reason.into(), Ending::Normal, Some(error));
    }
}

fn initialized() -> Outgoing {
    let bytes = codec::encode_notification::<Initialized>(&initialize::Initialized);
    Outgoing { kind: Kind::Initialized, bytes }
}

fn rejection(error: RpcError, resumed: Option<String>) -> ConnectError {
    match (ErrorCode(error.code), resumed) {
        (ErrorCode::SESSION_ATTACHED, Some(id)) => ConnectError::SessionAttached(id),
        (ErrorCode::INVALID_REQUEST, Some(id)) => ConnectError::UnknownSession(id),
        _ => error.into(),
    }
}
