//! Which ways of a call are weighed: NCCL's own formula takes the algorithm, the simulated time takes the protocol.
//!
//! That errs least where NCCL's choice is known (both by the formula, or both by the simulated time, err more on rows of 64 KiB
//! to 1 MiB and on several nodes). An algorithm that has no closed form is passed over, and the formula's next is taken. Where
//! NCCL has no model of the GPUs, rings are taken, and trees over nodes if they are faster; so too where its search finds no
//! ring and it would run one channel as a last resort.

use super::breakdown::TimeBreakdown;
use super::params::ModelParams;
use super::pattern::Pattern;
use super::{nvls, ring, sends, tree};
use crate::nccl::{Candidate, Model, NcclAlgorithm, Protocol};
use crate::units::PS_PER_US;

/// An algorithm and a protocol that a call may run by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AlgoProto {
    /// None for sends and receives.
    pub(super) algorithm: Option<NcclAlgorithm>,
    pub(super) protocol: Protocol,
    /// The most channels that NCCL gives it, if NCCL knows the machine.
    pub(super) channels: Option<u32>,
}

/// What is weighed for a call of one size.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Choice {
    pub(super) ways: Vec<AlgoProto>,
    /// NCCL's own estimate of what it would take.
    pub(super) nccl_us: Option<f64>,
    /// Why what was asked for is not possible, if NCCL says so.
    pub(super) why_not: Option<&'static str>,
}

/// What a caller forces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forced {
    /// The algorithm.
    pub algorithm: Option<NcclAlgorithm>,
    /// The protocol.
    pub protocol: Option<Protocol>,
}

impl Forced {
    fn allows(self, algorithm: NcclAlgorithm, protocol: Protocol) -> bool {
        self.algorithm.is_none_or(|forced| forced == algorithm) && self.protocol.is_none_or(|forced| forced == protocol)
    }
}

/// Returns what the device spends one way; nothing if there is no closed form of it.
pub(super) fn spent(params: &ModelParams, pattern: Pattern, way: AlgoProto, nbytes: f64) -> Option<TimeBreakdown> {
    let is_all_reduce = pattern == Pattern::AllReduce;
    let channels = way.channels.map_or(params.channels, f64::from);
    match way.algorithm {
        None => Some(sends::sends(params, pattern, nbytes)),
        Some(NcclAlgorithm::Ring) => ring::ring(params, pattern, way.protocol, nbytes, channels, false),
        Some(NcclAlgorithm::Tree) if is_all_reduce && params.inter_node.is_none() => {
            ring::ring(params, pattern, way.protocol, nbytes, channels, true)
        }
        Some(algorithm @ (NcclAlgorithm::Tree | NcclAlgorithm::NvlsTree)) if is_all_reduce => {
            tree::tree(params, algorithm, way.protocol, nbytes)
        }
        Some(NcclAlgorithm::Nvls)
            if is_all_reduce && params.inter_node.is_none() && way.protocol == Protocol::Simple =>
        {
            Some(nvls::nvls(params.nvls.as_ref()?, params.ranks, nbytes))
        }
        Some(_) => None,
    }
}

/// Finds the ways of a call of one size.
pub(super) fn choice(
    model: Option<&Model>,
    params: &ModelParams,
    pattern: Pattern,
    forced: Forced,
    nbytes: u64,
) -> Choice {
    if pattern.is_of_sends() {
        let way = AlgoProto { algorithm: None, protocol: Protocol::Simple, channels: None };
        let is_free = forced == Forced::default();
        return Choice { ways: if is_free { vec![way] } else { Vec::new() }, ..Choice::default() };
    }
    let has_form = |algorithm, protocol, channels| {
        let way = AlgoProto { algorithm: Some(algorithm), protocol, channels };
        spent(params, pattern, way, nbytes as f64).is_some().then_some(way)
    };
    let weighed = pattern.collective().and_then(|collective| model?.candidates(collective, nbytes).ok());
    let Some(candidates) = weighed else {
        let pairs = [NcclAlgorithm::Ring, NcclAlgorithm::Tree].into_iter().flat_map(|a| Protocol::ALL.map(|p| (a, p)));
        let allowed =
            pairs.filter(|&(a, p)| forced.allows(a, p) && (a == NcclAlgorithm::Ring || params.inter_node.is_some()));
        return Choice { ways: allowed.filter_map(|(a, p)| has_form(a, p, None)).collect(), ..Choice::default() };
    };
    let allowed: Vec<&Candidate> = candidates.iter().filter(|c| forced.allows(c.algorithm, c.protocol)).collect();
    let mut considered: Vec<&Candidate> = allowed.iter().copied().filter(|c| c.time_ps.is_some()).collect();
    // The sort is stable: among equals NCCL takes the first.
    considered.sort_by_key(|candidate| candidate.time_ps);
    let way = |c: &&Candidate| has_form(c.algorithm, c.protocol, Some(c.channels));
    let first = considered.iter().find_map(way).and_then(|way| way.algorithm);
    let ways: Vec<AlgoProto> = considered.iter().filter_map(way).filter(|way| way.algorithm == first).collect();
    let chosen = candidates.iter().filter_map(|candidate| candidate.time_ps).min();
    Choice {
        ways,
        nccl_us: chosen.map(|ps| ps as f64 / PS_PER_US as f64),
        why_not: allowed.iter().find_map(|candidate| candidate.why_disabled),
    }
}
