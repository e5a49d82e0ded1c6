//! Connections that break, and places that come back, over real transports.

#![cfg(all(unix, feature = "websocket"))]

#[cfg(feature = "axum")]
mod accepted;
mod cuts;
mod hostile;
mod lifecycle;
mod proxy;
mod reference;
mod script;
mod scripted;
mod support;
