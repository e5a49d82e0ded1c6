//! Reports about sandboxes, beyond the plain wire.

use serde::{Deserialize, Deserializer, Serialize};

use super::extension::Word;
use crate::event::OutputStream;
use crate::sandbox::{Denial, Enforcement, Evidence, Level, NameChange};

/// What a sandbox enforces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnforcementReport {
    /// How much of what was asked for.
    #[serde(deserialize_with = "level")]
    pub level: EnforcementLevel,
    /// What is missing, where it is a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// By which means.
    pub mechanisms: Vec<String>,
    /// What the system offers that this rests on.
    #[serde(default)]
    pub kernel_facts: Vec<String>,
}

/// How much of what was asked for is enforced. A word that is not known here stands for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EnforcementLevel {
    /// All of it.
    Full,
    /// A part.
    Partial,
    /// Nothing.
    None,
}

/// On which evidence a sandbox denied something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenialReport {
    /// Each piece of it. Those of a kind that is not known here are left out.
    #[serde(default, deserialize_with = "known")]
    pub evidence: Vec<EvidenceReport>,
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum EvidenceReport {
    /// The kernel refused a system call.
    Seccomp {
        /// Its name.
        syscall: String,
        /// How often.
        count: u64,
    },
    /// The process was killed by a signal that stands for a denial.
    Signal {
        /// Its number on the executor.
        number: i32,
    },
    /// A protected name appeared or changed.
    ProtectedName {
        /// Its path on the executor.
        path: String,
        /// What became of it, if that is said, and known here.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "change")]
        change: Option<NameChangeReport>,
        /// Where what appeared is now, if it was moved.
        #[serde(default, rename = "movedTo", skip_serializing_if = "Option::is_none")]
        moved_to: Option<String>,
    },
    /// The protected names could not be looked at in time.
    NamesUnchecked,
    /// The output holds a word that programs print when something is denied: a guess.
    Text {
        /// The word.
        keyword: String,
        /// Where it stands.
        stream: OutputStream,
    },
}

/// What became of a protected name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NameChangeReport {
    /// There was nothing at the start.
    Appeared,
    /// There was something else at the start.
    Replaced,
}

impl NameChangeReport {
    const fn of(change: NameChange) -> Option<Self> {
        match change {
            NameChange::Appeared => Some(Self::Appeared),
            NameChange::Replaced => Some(Self::Replaced),
            NameChange::Unknown => None,
        }
    }
}

impl From<NameChangeReport> for NameChange {
    fn from(report: NameChangeReport) -> Self {
        match report {
            NameChangeReport::Appeared => Self::Appeared,
            NameChangeReport::Replaced => Self::Replaced,
        }
    }
}

fn change<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NameChangeReport>, D::Error> {
    Ok(Option::<Word<NameChangeReport>>::deserialize(deserializer)?.and_then(Word::known))
}

fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<EvidenceReport>, D::Error> {
    Ok(Vec::<Word<EvidenceReport>>::deserialize(deserializer)?.into_iter().filter_map(Word::known).collect())
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EnforcementLevel, D::Error> {
    Ok(Word::<EnforcementLevel>::deserialize(deserializer)?.known().unwrap_or(EnforcementLevel::Partial))
}

impl From<Enforcement> for EnforcementReport {
    fn from(enforcement: Enforcement) -> Self {
        let Enforcement { level, mechanisms, kernel_facts } = enforcement;
        let (level, reasons) = match level {
            Level::Full => (EnforcementLevel::Full, Vec::new()),
            Level::Partial(reasons) => (EnforcementLevel::Partial, reasons),
            Level::None => (EnforcementLevel::None, Vec::new()),
        };
        Self { level, reasons, mechanisms, kernel_facts }
    }
}

impl From<EnforcementReport> for Enforcement {
    fn from(report: EnforcementReport) -> Self {
        let level = match report.level {
            EnforcementLevel::Full => Level::Full,
            EnforcementLevel::Partial => Level::Partial(report.reasons),
            EnforcementLevel::None => Level::None,
        };
        Self::new(level, report.mechanisms, report.kernel_facts)
    }
}

impl From<&Denial> for DenialReport {
    fn from(denial: &Denial) -> Self {
        Self { evidence: denial.evidence.iter().map(EvidenceReport::of).collect() }
    }
}

impl EvidenceReport {
    fn of(evidence: &Evidence) -> Self {
        match evidence {
            Evidence::Seccomp { syscall, count } => Self::Seccomp { syscall: syscall.clone(), count: *count },
            Evidence::Signal { number } => Self::Signal { number: *number },
            Evidence::ProtectedName { path, change, moved_to } => Self::ProtectedName {
                path: path.to_string_lossy().into_owned(),
                change: NameChangeReport::of(*change),
                moved_to: moved_to.as_ref().map(|to| to.to_string_lossy().into_owned()),
            },
            Evidence::NamesUnchecked => Self::NamesUnchecked,
            Evidence::Text { keyword, stream } => Self::Text { keyword: keyword.clone(), stream: *stream },
        }
    }
}

impl DenialReport {
    /// The denial that this tells of, or what was seen without one.
    pub fn into_denial(self, denied: bool) -> Denial {
        Denial::new(denied, self.evidence.into_iter().map(Into::into).collect())
    }
}

impl From<EvidenceReport> for Evidence {
    fn from(report: EvidenceReport) -> Self {
        match report {
            EvidenceReport::Seccomp { syscall, count } => Self::Seccomp { syscall, count },
            EvidenceReport::Signal { number } => Self::Signal { number },
            EvidenceReport::ProtectedName { path, change, moved_to } => Self::ProtectedName {
                path: path.into(),
                change: change.map(Into::into).unwrap_or_default(),
                moved_to: moved_to.map(Into::into),
            },
            EvidenceReport::NamesUnchecked => Self::NamesUnchecked,
            EvidenceReport::Text { keyword, stream } => Self::Text { keyword, stream },
        }
    }
}
