//! A place that contains whatever it starts.

use std::sync::Arc;

use longarm::backend::local::{Containment, Local, LocalConfig};
use longarm::backend::{Features, Spawned};
use longarm::error::{CallError, SpawnError};
use longarm::fs::FileSystem;
use longarm::http::HttpClient;
use longarm::info::EnvironmentInfo;
use longarm::{ExecBackend, ExecRequest};

#[derive(Debug)]
pub(crate) struct Contained(Local);

impl Contained {
    pub(crate) fn new(by: Containment) -> Self {
        Self(Local::new(LocalConfig::from_host().containment(by)))
    }
}

#[async_trait::async_trait]
impl ExecBackend for Contained {
    async fn spawn(&self, request: ExecRequest) -> Result<Spawned, SpawnError> {
        self.0.spawn(request.contain(true)).await
    }

    async fn info(&self) -> Result<EnvironmentInfo, CallError> {
        self.0.info().await
    }

    fn features(&self) -> Features {
        self.0.features()
    }

    fn fs(&self) -> Option<Arc<dyn FileSystem>> {
        self.0.fs()
    }

    fn http(&self) -> Option<Arc<dyn HttpClient>> {
        self.0.http()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
