//! The last plans: most commands of a host have the same sandbox.
//!
//! A plan follows from the bound intent, from what was decided besides, and from what was found at the paths that were looked
//! at. So if all of them are found as they were, planning again would come to the same. But for one thing: a directory can be
//! another one than last time, as those that stand for names are. Which one it is decides nothing, and is only to be checked
//! when it is opened: it is put where it belongs.

use std::sync::{Arc, Mutex, PoisonError};

use super::SandboxPlan;
use super::kernel_mounts::{self, KernelMounts};
use super::looks::{Looked, Looks};
use super::plan::{self, Network, Settings, Walls};
use super::probe::{Kernel, Mode};
use super::shape::{Identity, Shape};
use crate::sandbox::{Bound, Enforcement, ManagedNetworkFacts, SandboxError};

/// The last plans for one kernel.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// The last one last.
    last: Mutex<Vec<Arc<Known>>>,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct For<'a> {
    pub(super) bound: &'a Arc<Bound>,
    pub(super) settings: Settings<'a>,
    /// Whether a part of it will do.
    pub(super) accept_partial: bool,
}

/// A plan that was made.
#[derive(Debug)]
struct Known {
    bound: Arc<Bound>,
    private_loopback: bool,
    managed: Option<ManagedNetworkFacts>,
    without: Walls,
    accept_partial: bool,
    /// What was looked at.
    looked: Looked,
    /// At which of them those things were found of which the shape has the identity, in its order.
    spots: Vec<usize>,
    enforcement: Arc<Enforcement>,
    /// With the identities that were found last.
    shape: Mutex<Arc<Shape>>,
}

impl Plans {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { last: Mutex::new(Vec::new()) }
    }

    /// Plans a sandbox, as [`plan::shape`] does.
    ///
    /// # Errors
    ///
    /// Those of [`plan::shape`], of [`Kernel::assess`], and of [`kernel_mounts::current`].
    pub(super) fn prepare(&self, kernel: &Kernel, what: For<'_>) -> Result<SandboxPlan, SandboxError> {
        let mounts = match kernel.mode {
            // Nothing can be put over them; what Landlock lets nobody write to includes them.
            Mode::Bare => Arc::default(),
            Mode::User | Mode::Mount => kernel_mounts::current()?,
        };
        self.prepare_where(mounts, kernel, what)
    }

    /// The same, where these file systems of the kernel's are mounted elsewhere than usual.
    fn prepare_where(
        &self,
        mounts: Arc<KernelMounts>,
        kernel: &Kernel,
        what: For<'_>,
    ) -> Result<SandboxPlan, SandboxError> {
        let known = self.find(what);
        if let Some(known) = &known
            && known.looked.mounts == mounts
            && let Some(identities) = known.looked.again()
        {
            return Ok(known.with(what.bound, &identities));
        }
        let For { bound, settings, accept_partial } = what;
        let enforcement = kernel.assess(bound, Network::of(bound, &settings), accept_partial)?;
        let looks = Looks::with(mounts);
        let shape = plan::shape(bound, &settings, kernel, &looks)?;
        let plan = SandboxPlan { shape: Arc::new(shape), enforcement: Arc::new(enforcement), bound: Arc::clone(bound) };
        self.keep(Known::new(what, looks, &plan), known.as_ref());
        Ok(plan)
    }

    fn find(&self, what: For<'_>) -> Option<Arc<Known>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().rev().find(|known| known.is_for(what)).cloned()
    }

    /// In the place of one that does not hold any more, or of the one that was kept the longest.
    fn keep(&self, known: Option<Known>, former: Option<&Arc<Known>>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|other| former.is_none_or(|former| !Arc::ptr_eq(other, former)));
        let Some(known) = known else { return };
        if last.len() == MOST {
            last.remove(0);
        }
        last.push(Arc::new(known));
    }
}

impl Known {
    /// None if it is too large, or if two of the things that were looked at are the same: then nothing tells which of them is
    /// meant.
    fn new(what: For<'_>, looks: Looks, plan: &SandboxPlan) -> Option<Self> {
        let For { bound, settings: Settings { private_loopback, managed, without }, accept_partial } = what;
        let looked = looks.each_once().filter(|_| bound.entries.len() <= MOST_ENTRIES)?;
        let identities: Vec<Option<Identity>> =
            looked.at.iter().map(|(_, found)| found.map(|found| found.identity)).collect();
        let is_alone =
            |identity: &Identity| identities.iter().flatten().filter(|other| *other == identity).count() == 1;
        let at = |identity: &Identity| identities.iter().position(|other| *other == Some(*identity));
        let spots = plan.shape.identities().map(|identity| at(identity).filter(|_| is_alone(identity)));
        let spots = spots.collect::<Option<_>>()?;
        Some(Self {
            bound: Arc::clone(bound),
            private_loopback,
            managed: managed.cloned(),
            without,
            accept_partial,
            looked,
            spots,
            enforcement: Arc::clone(&plan.enforcement),
            shape: Mutex::new(Arc::clone(&plan.shape)),
        })
    }

    fn is_for(&self, what: For<'_>) -> bool {
        let For { bound, settings: Settings { private_loopback, managed, without }, accept_partial } = what;
        self.private_loopback == private_loopback
            && self.without == without
            && self.accept_partial == accept_partial
            && self.managed.as_ref() == managed
            && (Arc::ptr_eq(&self.bound, bound) || self.bound == *bound)
    }

    /// The plan with what was found now.
    fn with(&self, bound: &Arc<Bound>, found: &[Option<Identity>]) -> SandboxPlan {
        let mut shape = self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        let now = |spot: &usize| found.get(*spot).copied().flatten();
        if !shape.identities().copied().map(Some).eq(self.spots.iter().map(now)) {
            // It is copied only where a start still needs the last one.
            for (identity, spot) in Arc::make_mut(&mut shape).identities_mut().zip(&self.spots) {
                *identity = now(spot).unwrap_or(*identity);
            }
        }
        let (shape, enforcement) = (Arc::clone(&shape), Arc::clone(&self.enforcement));
        SandboxPlan { shape, enforcement, bound: Arc::clone(bound) }
    }
}

/// As many as a host may have in use.
const MOST: usize = 8;

/// Of larger ones the planning is not what costs.
const MOST_ENTRIES: usize = 128;

#[cfg(test)]
mod tests;
