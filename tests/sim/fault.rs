//! What happens to the network.

use std::time::Duration;

use tokio::time::{advance, sleep};

use super::network::{Conditions, Network, Side};
use super::random::Random;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing passes, in either direction, and nobody is told.
    Partition,
    /// Nothing passes in this direction.
    LossForth,
    LossBack,
    /// A few hundred bytes a second, or a few thousand, after a long way.
    Slow,
    /// A long way, and nothing else.
    Late,
    /// What stands now is dead, and nobody is told; new connections are fine.
    HalfOpen,
    /// The same, but one end is told.
    ClientTold,
    ServerTold,
    /// What stands now breaks.
    Reset,
    /// Nobody gets in.
    Refused,
    /// No time passes for anybody, and then it is later.
    ClockJump,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Partition,
        Self::LossForth,
        Self::LossBack,
        Self::Slow,
        Self::Late,
        Self::HalfOpen,
        Self::ClientTold,
        Self::ServerTold,
        Self::Reset,
        Self::Refused,
        Self::ClockJump,
    ];

    /// Whether every connection that stands when it happens is lost by it.
    pub(crate) const fn breaks(self) -> bool {
        matches!(self, Self::HalfOpen | Self::ClientTold | Self::ServerTold | Self::Reset | Self::Refused)
    }

    /// It happens, lasts for a while, and is over.
    pub(crate) async fn happen(self, network: &Network, random: &mut Random) {
        let fine = Conditions::default();
        let duration = random.millis(50..20_000);
        match self {
            Self::Partition => network.set(Conditions { stalled: [true; 2], ..fine }),
            Self::LossForth => network.set(Conditions { stalled: [true, false], ..fine }),
            Self::LossBack => network.set(Conditions { stalled: [false, true], ..fine }),
            Self::Slow => {
                let bytes_per_second = Some(300 + random.below(20_000));
                network.set(Conditions { latency: random.millis(50..600), bytes_per_second, ..fine });
            }
            Self::Late => network.set(Conditions { latency: random.millis(100..1_500), ..fine }),
            Self::HalfOpen => network.bury(),
            Self::ClientTold => network.cut(Side::Client),
            Self::ServerTold => network.cut(Side::Server),
            Self::Reset => network.reset(),
            Self::Refused => {
                network.set(Conditions { refused: true, ..fine });
                network.reset();
            }
            Self::ClockJump => advance(random.millis(10..30_000)).await,
        }
        sleep(duration).await;
        network.set(fine);
    }
}

/// How long the client may take, after a fault is over, to be connected again.
pub(crate) const HEALS_WITHIN: Duration = Duration::from_secs(60);
