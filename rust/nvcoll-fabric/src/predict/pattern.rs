//! The collectives for which there is a closed form.

use nvcoll_core::collective::{
    Collective, ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, GATHER, REDUCE, REDUCE_SCATTER, SCATTER,
};

use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::flows::Flows;
use crate::hardware::{Fabric, Link};
use crate::units::Rate;

/// A collective, or nccl-tests' sendrecv.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Everybody gets the fold of all.
    AllReduce,
    /// Everybody gets everybody's.
    AllGather,
    /// Everybody gets its part of the fold.
    ReduceScatter,
    /// Everybody gets the root's.
    Broadcast,
    /// The root gets the fold.
    Reduce,
    /// Everybody gets a part of everybody's.
    AllToAll,
    /// The root gets everybody's.
    Gather,
    /// Everybody gets a part of the root's.
    Scatter,
    /// Everybody sends to the next.
    SendRecv,
}

impl Pattern {
    /// Every pattern.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendRecv,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.collective().map_or("sendrecv", |collective| collective.name)
    }

    /// Finds a pattern by name.
    ///
    /// # Errors
    /// [`Error::Unable`] for a collective that NCCL does not have; [`Error::Unknown`] for a name that nobody has.
    pub fn named(name: &str) -> Result<Self> {
        if let Some(pattern) = Self::ALL.into_iter().find(|pattern| pattern.name() == name) {
            return Ok(pattern);
        }
        let known = Self::ALL.map(Self::name).join(", ");
        match Collective::named(name) {
            Some(_) => Err(Error::Unable {
                fabric: "predict".to_owned(),
                message: format!("{name} has no prediction: NCCL has no such collective; there is one of {known}"),
            }),
            None => Err(Error::Unknown { kind: "collective", name: name.to_owned(), known }),
        }
    }

    /// Returns the contract; none for sendrecv, which is none.
    pub fn collective(self) -> Option<&'static Collective> {
        match self {
            Self::AllReduce => Some(&ALL_REDUCE),
            Self::AllGather => Some(&ALL_GATHER),
            Self::ReduceScatter => Some(&REDUCE_SCATTER),
            Self::Broadcast => Some(&BROADCAST),
            Self::Reduce => Some(&REDUCE),
            Self::AllToAll => Some(&ALL_TO_ALL),
            Self::Gather => Some(&GATHER),
            Self::Scatter => Some(&SCATTER),
            Self::SendRecv => None,
        }
    }

    /// Returns busbw over algbw, as nccl-tests has it.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        self.collective().map_or(1.0, |collective| (collective.bus_factor)(ranks))
    }

    /// Finds the floor of the pattern on a fabric.
    ///
    /// # Errors
    /// As [`Fabric::floor`].
    pub fn floor(self, fabric: &Fabric) -> Result<Floor> {
        // All that a shift asks of a cluster is between two neighbours.
        let part = if self.collective().is_none() { fabric.excerpt() } else { None };
        self.bound(part.as_ref().unwrap_or(fabric), Link::line_rate)
    }

    /// As [`Pattern::floor`], with links that carry `rate`.
    pub(super) fn bound(self, fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Result<Floor> {
        match self.collective() {
            Some(collective) => fabric.bound(collective, rate),
            None => bound_of_shift(fabric, rate),
        }
    }

    /// Returns what part of the size a GPU sends, or receives, in a pattern of sends.
    pub(super) fn sent(self, ranks: f64) -> f64 {
        if self == Self::SendRecv {
            1.0
        } else {
            (ranks - 1.0) / ranks
        }
    }

    /// Says whether a ring is a chain for it: one way, from or to the root.
    pub(super) const fn is_chain(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce)
    }

    /// Says whether NCCL builds it of sends and receives, for which it has no cost model.
    pub const fn is_of_sends(self) -> bool {
        matches!(self, Self::AllToAll | Self::Gather | Self::Scatter | Self::SendRecv)
    }
}

/// How many pairs of neighbours are looked at: nodes are alike, and none has more GPUs. Chosen.
const NEIGHBOURS: usize = 72;

/// The floor of everybody sending to the next: what is between two neighbours lets it all through.
fn bound_of_shift(fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Result<Floor> {
    let (gpus, flows) = (fabric.gpus(), Flows::of(fabric, rate));
    let neighbours = 0..gpus.len().saturating_sub(1).min(NEIGHBOURS);
    let mut floor = Floor { algbw: None, latency: 0 };
    for rank in neighbours {
        let rate = flows.between(&gpus[rank..=rank], &gpus[rank + 1..=rank + 1]);
        let latency = fabric.route(rank as u32, rank as u32 + 1)?.latency(fabric);
        floor = Floor {
            algbw: Some(floor.algbw.map_or(Rate(rate), |least| least.min(Rate(rate)))),
            latency: floor.latency.max(latency),
        };
    }
    Ok(floor)
}
