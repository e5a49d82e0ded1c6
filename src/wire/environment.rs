//! Facts about the place.

use std::collections::BTreeMap;

use serde::de::Deserializer;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::extension::Offer;
use crate::path_uri::PathUri;

/// Result of `environment/info`, and a part of the result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// The default shell.
    pub shell: Shell,
    /// The executor's version.
    #[serde(default = "unknown_version")]
    pub executor_version: String,
    /// An opaque id of the executor's build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The executor's working directory.
    pub cwd: Option<PathUri>,
    /// The user's home directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// The operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_os: Option<String>,
    /// Directories to put in front of `PATH`.
    #[serde(default)]
    pub prepend_path_dirs: Vec<PathUri>,
    /// Temporary directories that variables name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// The native temporary directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What the executor can do.
    #[serde(default)]
    pub capabilities: Capabilities,
}

fn unknown_version() -> String {
    "0.0.0".into()
}

/// A shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shell {
    /// Its name.
    pub name: String,
    /// Its path, as native text.
    pub path: String,
}

/// Capability flags, and the offer of extensions among them. A flag that is absent is false; a member of any other type
/// is ignored, since it belongs to a peer that is newer than this list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The flags by name.
    pub flags: BTreeMap<String, bool>,
    /// What the executor has beyond the plain wire.
    pub longarm: Option<Offer>,
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.flags {
            map.serialize_entry(name, value)?;
        }
        if let Some(offer) = &self.longarm {
            map.serialize_entry(OFFER, offer)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Capabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut capabilities = Self::default();
        for (name, value) in BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)? {
            match value.get() {
                "true" => capabilities.flags.insert(name, true),
                "false" => capabilities.flags.insert(name, false),
                other => {
                    if name == OFFER {
                        capabilities.longarm = serde_json::from_str(other).ok();
                    }
                    None
                }
            };
        }
        Ok(capabilities)
    }
}

/// The capability that is an object: the offer of extensions.
const OFFER: &str = "longarm";

/// Result of `environment/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusResult {
    /// The state.
    pub status: EnvironmentStatus,
}

/// State of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EnvironmentStatus {
    /// It works.
    Ready,
}

/// Parameters of `environmentConfig/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// The directory whose configuration is asked for.
    pub cwd: PathUri,
    /// Members of configuration files to return, each as the keys that lead to it.
    pub config_paths: Vec<Vec<String>>,
    /// The same, of files that a user cannot override.
    pub requirements_paths: Vec<Vec<String>>,
}

/// Result of `environmentConfig/read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResult {
    /// The user's home directory.
    pub user_home_dir: Option<PathUri>,
    /// The directory of the user's own configuration.
    pub codex_home_dir: PathUri,
    /// The name of the machine.
    pub hostname: Option<String>,
    /// The configuration.
    pub config: ConfigLayers,
    /// The requirements.
    pub requirements: ConfigLayers,
}

/// Pieces of configuration, the weakest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayers {
    /// The pieces.
    pub layers: Vec<ConfigLayer>,
    /// Before which of them a client puts what it has from elsewhere.
    pub cloud_insertion_index: u64,
}

/// A piece of configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// Where it is from.
    pub source: String,
    /// The directory to which its relative paths belong.
    pub base_dir: PathUri,
    /// Its text.
    pub toml: String,
}
