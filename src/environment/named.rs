//! Environments by name.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Environment;
use super::provider::{DefaultEnvironment, EnvironmentProvider, Snapshot};
use crate::config::ClientConfig;

/// The name of an environment: 1 to 64 ASCII letters, digits, `-` and `_`; not `none`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvironmentId(Arc<str>);

impl EnvironmentId {
    /// The name of this machine, which only [`Environments`] itself gives.
    pub const LOCAL: &'static str = "local";

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`EnvironmentsError::InvalidId`].
    pub fn parse(id: &str) -> Result<Self, EnvironmentsError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let fits = (1..=64).contains(&id.len()) && id.bytes().all(known);
        if !fits || id.eq_ignore_ascii_case("none") {
            return Err(EnvironmentsError::InvalidId { id: id.chars().take(80).collect() });
        }
        Ok(Self(id.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of this machine.
    pub fn is_local(&self) -> bool {
        &*self.0 == Self::LOCAL
    }
}

impl fmt::Debug for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host's environments, by name and in the order in which they were added, one of them the default. Clones share them.
///
/// Handles that were taken out live on when their entry is replaced or removed.
///
/// ```
/// use longarm::environment::{EnvironmentId, Environments};
/// use longarm::Environment;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let environments = Environments::with_local(Environment::local());
/// let builder = EnvironmentId::parse("builder")?;
/// environments.insert(builder.clone(), Environment::local())?;
/// assert_eq!(environments.ids().iter().map(EnvironmentId::as_str).collect::<Vec<_>>(), ["local", "builder"]);
/// assert!(environments.default_id().is_some_and(|id| id.is_local()));
/// assert!(environments.remove(&builder).is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Environments {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<(EnvironmentId, Environment)>,
    default: Option<EnvironmentId>,
}

impl Environments {
    /// None at all.
    pub fn empty() -> Self {
        let (changes, _) = watch::channel(0);
        Self { shared: Arc::new(Shared { state: Mutex::default(), changes }) }
    }

    /// This machine under the name `local`, as the default.
    pub fn with_local(local: Environment) -> Self {
        let environments = Self::empty();
        let id = EnvironmentId(EnvironmentId::LOCAL.into());
        {
            let mut state = environments.shared.lock();
            state.entries.push((id.clone(), local));
            state.default = Some(id);
        }
        environments
    }

    /// What `provider` says now. `local` is taken if it includes this machine. Remote entries connect when they are first
    /// used, as `config` says but for the time limits of their own. Must be called within a tokio runtime, if there are such
    /// entries.
    ///
    /// # Errors
    ///
    /// An [`EnvironmentsError`]: of the provider, or of what it says.
    pub fn from_provider(
        provider: &dyn EnvironmentProvider,
        local: Environment,
        config: &ClientConfig,
    ) -> Result<Self, EnvironmentsError> {
        let Snapshot { entries, default, include_local } = provider.snapshot()?;
        let environments = if include_local { Self::with_local(local) } else { Self::empty() };
        for (id, place) in entries {
            if environments.get(&id).is_some() && !id.is_local() {
                return Err(EnvironmentsError::Duplicate(id));
            }
            let environment = place.into_environment(&id, config)?;
            environments.insert(id, environment)?;
        }
        match default {
            DefaultEnvironment::Unset => {}
            DefaultEnvironment::None => environments.clear_default(),
            DefaultEnvironment::Id(id) => environments.set_default(&id)?,
        }
        Ok(environments)
    }

    /// The environment of this name.
    pub fn get(&self, id: &EnvironmentId) -> Option<Environment> {
        let state = self.shared.lock();
        state.entries.iter().find(|(known, _)| known == id).map(|(_, environment)| environment.clone())
    }

    /// The default environment.
    pub fn default_environment(&self) -> Option<Environment> {
        self.default_id().and_then(|id| self.get(&id))
    }

    /// The name of the default environment.
    pub fn default_id(&self) -> Option<EnvironmentId> {
        self.shared.lock().default.clone()
    }

    /// All names, in the order in which they were added.
    pub fn ids(&self) -> Vec<EnvironmentId> {
        self.shared.lock().entries.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Adds an environment, or replaces the one of this name in its place; returns the former one. The default stays what it
    /// is.
    ///
    /// # Errors
    ///
    /// [`EnvironmentsError::Reserved`] for `local`.
    pub fn insert(
        &self,
        id: EnvironmentId,
        environment: Environment,
    ) -> Result<Option<Environment>, EnvironmentsError> {
        if id.is_local() {
            return Err(EnvironmentsError::Reserved);
        }
        let former = {
            let mut state = self.shared.lock();
            match state.entries.iter_mut().find(|(known, _)| *known == id) {
                Some((_, place)) => Some(std::mem::replace(place, environment)),
                None => {
                    state.entries.push((id, environment));
                    None
                }
            }
        };
        self.changed();
        Ok(former)
    }

    /// Takes an environment out, and returns it. If it was the default, there is none any more.
    pub fn remove(&self, id: &EnvironmentId) -> Option<Environment> {
        let removed = {
            let mut state = self.shared.lock();
            let place = state.entries.iter().position(|(known, _)| known == id)?;
            if state.default.as_ref() == Some(id) {
                state.default = None;
            }
            state.entries.remove(place).1
        };
        self.changed();
        Some(removed)
    }

    /// Makes another environment the default.
    ///
    /// # Errors
    ///
    /// [`EnvironmentsError::Unknown`] if there is none of this name.
    pub fn set_default(&self, id: &EnvironmentId) -> Result<(), EnvironmentsError> {
        {
            let mut state = self.shared.lock();
            if !state.entries.iter().any(|(known, _)| known == id) {
                return Err(EnvironmentsError::Unknown(id.clone()));
            }
            state.default = Some(id.clone());
        }
        self.changed();
        Ok(())
    }

    /// From now on there is no default.
    pub fn clear_default(&self) {
        self.shared.lock().default = None;
        self.changed();
    }

    /// Watches for changes: of entries, and of the default.
    pub fn changes(&self) -> EnvironmentChanges {
        EnvironmentChanges { changes: self.shared.changes.subscribe() }
    }

    fn changed(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for changes of [`Environments`].
#[derive(Clone, Debug)]
pub struct EnvironmentChanges {
    changes: watch::Receiver<u64>,
}

impl EnvironmentChanges {
    /// Waits for a change since the last call, or since this watch was made. False when the environments are gone.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

/// Environments cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentsError {
    /// The name is not one.
    #[error("{id:?} is no name of an environment: 1 to 64 ASCII letters, digits, '-' and '_', and not 'none'")]
    InvalidId {
        /// The name, shortened.
        id: String,
    },
    /// The name belongs to this machine.
    #[error("the name 'local' belongs to this machine")]
    Reserved,
    /// Two entries have this name.
    #[error("there are two environments of the name {0}")]
    Duplicate(EnvironmentId),
    /// No entry has this name.
    #[error("there is no environment of the name {0}")]
    Unknown(EnvironmentId),
    /// An entry lacks something, or has what it cannot have.
    #[error("environment {id}: {reason}")]
    InvalidEntry {
        /// Its name, as it was given.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What the entries come from cannot be read, or makes no sense.
    #[error("{origin}: {reason}")]
    Source {
        /// The file or the variable.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn id(text: &str) -> EnvironmentId {
        EnvironmentId::parse(text).unwrap()
    }

    fn place() -> Environment {
        Environment::from(crate::Local::new(crate::LocalConfig::from_host()))
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "A-b_9", "local", &"x".repeat(64)] {
            assert_eq!(EnvironmentId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", " a", "a b", "ä", "none", "NONE", "a/b", &"x".repeat(65)] {
            assert!(matches!(EnvironmentId::parse(bad), Err(EnvironmentsError::InvalidId { .. })), "{bad}");
        }
    }

    #[tokio::test]
    async fn entries_keep_their_order_and_the_default_follows_its_entry() {
        let environments = Environments::with_local(place());
        let mut changes = environments.changes();
        assert!(changes.changed().now_or_never().is_none());
        for name in ["b", "a"] {
            assert!(environments.insert(id(name), place()).unwrap().is_none());
        }
        assert!(changes.changed().await);
        assert!(environments.insert(id("b"), place()).unwrap().is_some(), "replaced in its place");
        assert_eq!(environments.ids(), [id("local"), id("b"), id("a")]);
        assert_eq!(environments.insert(id("local"), place()).unwrap_err(), EnvironmentsError::Reserved);
        assert_eq!(environments.set_default(&id("c")), Err(EnvironmentsError::Unknown(id("c"))));
        environments.set_default(&id("a")).unwrap();
        assert!(environments.default_environment().is_some());
        assert!(environments.remove(&id("a")).is_some());
        assert_eq!(environments.default_id(), None);
        assert!(environments.remove(&id("a")).is_none());
        assert!(environments.remove(&id("local")).is_some());
        drop(environments);
        // The last changes are seen before the end.
        while changes.changed().await {}
    }
}
