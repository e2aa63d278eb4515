//! The communication patterns for which there is a closed form: NCCL's collectives, and sendrecv.

use nvcoll_core::collective::{
    spelled, Collective, ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, GATHER, REDUCE, REDUCE_SCATTER, SCATTER,
};

use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::hardware::{Fabric, Link};
use crate::tables;
use crate::topology::flow_network::FlowNetwork;
use crate::units::Rate;

/// A collective of NCCL, or sendrecv of nccl-tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Every rank receives the reduction of all inputs.
    AllReduce,
    /// Every rank receives the inputs of all ranks.
    AllGather,
    /// Every rank receives its part of the reduction of all inputs.
    ReduceScatter,
    /// Every rank receives the input of the root.
    Broadcast,
    /// The root receives the reduction of all inputs.
    Reduce,
    /// Every rank receives a part of every input.
    AllToAll,
    /// The root receives the inputs of all ranks.
    Gather,
    /// Every rank receives a part of the root's input.
    Scatter,
    /// Every rank sends to the next rank.
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

    /// Returns the name of the pattern.
    pub fn name(self) -> &'static str {
        self.collective().map_or("sendrecv", |collective| collective.name)
    }

    /// Finds a pattern by name, in the spelling of any tool: see [`spelled`].
    ///
    /// # Errors
    /// [`Error::Unable`] for a collective that NCCL does not have; [`Error::Unknown`] for an unknown name.
    pub fn named(name: &str) -> Result<Self> {
        let known = spelled(name, Self::ALL, Self::name).map_or(name, |known| known.name());
        let found = tables::named("collective", known, Self::ALL, Self::name);
        found.map_err(|error| match (error, Collective::named(name)) {
            (Error::Unknown { known, .. }, Some(_)) => Error::Unable {
                fabric: "predict".to_owned(),
                message: format!("{name} has no prediction: NCCL has no such collective; there is one of {known}"),
            },
            (error, _) => error,
        })
    }

    /// Returns the contract of a collective; none for sendrecv.
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

    /// Returns the ratio busbw / algbw of nccl-tests.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        self.collective().map_or(1.0, |collective| (collective.bus_factor)(ranks))
    }

    /// Returns the lower bound of the pattern on a fabric.
    ///
    /// # Errors
    /// As [`Fabric::floor`].
    pub fn floor(self, fabric: &Fabric) -> Result<Floor> {
        // The bound of sendrecv depends on pairs of neighbours only.
        let part = if self.collective().is_none() { fabric.excerpt() } else { None };
        self.bound(part.as_ref().unwrap_or(fabric), Link::line_rate)
    }

    /// Returns the lower bound of the pattern, as [`Pattern::floor`] does, if links carry `rate`.
    pub(super) fn bound(self, fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Result<Floor> {
        match self.collective() {
            Some(collective) => fabric.bound(collective, rate),
            None => bound_of_shift(fabric, rate),
        }
    }

    /// Returns the share of the size that a GPU sends or receives, in a pattern of sends.
    pub(super) fn sent(self, ranks: f64) -> f64 {
        if self == Self::SendRecv {
            1.0
        } else {
            (ranks - 1.0) / ranks
        }
    }

    /// Says whether a ring of the pattern is a chain from or to the root.
    pub(super) const fn is_chain(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce)
    }

    /// Says whether NCCL builds the pattern from sends and receives, for which it has no cost model.
    pub const fn is_of_sends(self) -> bool {
        matches!(self, Self::AllToAll | Self::Gather | Self::Scatter | Self::SendRecv)
    }
}

/// The largest number of pairs of neighbours to check. Chosen: nodes are alike, and no node has more GPUs.
const NEIGHBOURS: usize = 72;

/// Returns the lower bound of sendrecv: the links between two neighbours carry all traffic.
fn bound_of_shift(fabric: &Fabric, rate: impl Fn(&Link) -> Rate) -> Result<Floor> {
    let (gpus, flows) = (fabric.gpus(), FlowNetwork::of(fabric, rate));
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
