//! Connections that break, and places that come back, over real transports.

#![cfg(all(unix, feature = "websocket"))]

#[cfg(feature = "axum")]
mod accepted;
mod cuts;
mod hostile;
mod lifecycle;
#[cfg(target_os = "linux")]
#[path = "../common/needs.rs"]
mod needs;
mod proxy;
mod reference;
#[cfg(target_os = "linux")]
#[path = "../common/roles.rs"]
mod roles;
mod script;
mod scripted;
mod support;
