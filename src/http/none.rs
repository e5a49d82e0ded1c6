//! The HTTP requests of a place that makes none.

use super::{HttpClient, HttpError, HttpRequest, StreamedResponse};
use crate::error::Unsupported;

/// Refuses every request.
#[derive(Debug)]
pub(crate) struct NoHttpClient;

#[async_trait::async_trait]
impl HttpClient for NoHttpClient {
    async fn stream(&self, _request: HttpRequest) -> Result<StreamedResponse, HttpError> {
        Err(Unsupported { feature: "HTTP", place: "this place".into() }.into())
    }
}
