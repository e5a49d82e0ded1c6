//! The handshake.

use serde::{Deserialize, Serialize};

use super::environment::EnvironmentInfo;
use super::extension::Offer;

/// Parameters of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// How the client names itself; may be empty.
    pub client_name: String,
    /// The session to resume.
    pub resume_session_id: Option<String>,
    /// What the client has beyond the plain wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longarm: Option<Offer>,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The session, new or resumed. Opaque, compared byte for byte.
    pub session_id: String,
    /// What `environment/info` would say. Older servers leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
}

/// Parameters of the notification `initialized`: anything at all, which has no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Initialized;

impl Serialize for Initialized {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        serializer.serialize_map(Some(0))?.end()
    }
}

impl<'de> Deserialize<'de> for Initialized {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}
