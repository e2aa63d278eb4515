//! Selection of the algorithm and the protocol of a call: NCCL's own formula selects both.
//!
//! A pair without a closed form is skipped, and the formula's next one is selected. Where NCCL has no model of the GPUs, the
//! fastest ring is selected, or tree over nodes if that is faster. The same holds where NCCL's search finds no ring and would
//! run one channel as a last resort.

use super::breakdown::TimeBreakdown;
use super::params::ModelParams;
use super::pattern::Pattern;
use super::{nvls, pat, ring, sends, tree};
use crate::nccl::{Candidate, Model, NcclAlgorithm, Protocol};
use crate::units::PS_PER_US;

/// An algorithm and a protocol that a call may run by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AlgoProto {
    /// The algorithm; none for collectives that NCCL builds of sends and receives.
    pub(super) algorithm: Option<NcclAlgorithm>,
    pub(super) protocol: Protocol,
    /// The most channels that NCCL uses, if its model knows the machine.
    pub(super) channels: Option<u32>,
}

/// The algorithms and protocols that a call of one size may run by; the prediction is the fastest one. They depend on no fitted
/// constant, so a fit finds them once.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    pub(super) nbytes: u64,
    pub(super) pairs: Vec<AlgoProto>,
    /// The time that NCCL's own model estimates for its choice.
    pub(super) nccl_us: Option<f64>,
    /// The reason why NCCL refuses what the caller forces, if it does.
    pub(super) why_not: Option<&'static str>,
}

/// The algorithm and the protocol that a caller forces, as `NCCL_ALGO` and `NCCL_PROTO` do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlgorithmFilter {
    /// The algorithm.
    pub algorithm: Option<NcclAlgorithm>,
    /// The protocol.
    pub protocol: Option<Protocol>,
}

impl AlgorithmFilter {
    fn allows(self, algorithm: NcclAlgorithm, protocol: Protocol) -> bool {
        self.algorithm.is_none_or(|forced| forced == algorithm) && self.protocol.is_none_or(|forced| forced == protocol)
    }
}

/// Returns the time that a pair of algorithm and protocol takes on the device; none if it has no closed form.
pub(super) fn spent(params: &ModelParams, pattern: Pattern, pair: AlgoProto, nbytes: f64) -> Option<TimeBreakdown> {
    let is_all_reduce = pattern == Pattern::AllReduce;
    let channels = pair.channels.map_or(params.channels, f64::from);
    match pair.algorithm {
        None => Some(sends::sends(params, pattern, pair.protocol, nbytes)),
        Some(NcclAlgorithm::Ring) => ring::ring(params, pattern, pair.protocol, nbytes, channels, false),
        Some(NcclAlgorithm::Tree) if is_all_reduce && params.inter_node.is_none() => {
            ring::ring(params, pattern, pair.protocol, nbytes, channels, true)
        }
        Some(algorithm @ (NcclAlgorithm::Tree | NcclAlgorithm::NvlsTree)) if is_all_reduce => {
            tree::tree(params, algorithm, pair.protocol, nbytes, channels)
        }
        Some(NcclAlgorithm::Nvls)
            if is_all_reduce && params.inter_node.is_none() && pair.protocol == Protocol::Simple =>
        {
            Some(nvls::nvls(params.nvls.as_ref()?, params.ranks, nbytes))
        }
        Some(NcclAlgorithm::Pat) if pair.protocol == Protocol::Simple => pat::pat(params, pattern, nbytes),
        Some(_) => None,
    }
}

/// Finds the algorithms and protocols that are possible for a call of one size.
pub(super) fn select(
    model: Option<&Model>,
    params: &ModelParams,
    pattern: Pattern,
    forced: AlgorithmFilter,
    nbytes: u64,
) -> Candidates {
    if pattern.is_of_sends() {
        let message = sends::message(pattern, params.ranks, nbytes as f64) as u64;
        let of_message = params.sends.map(|sends| sends.of_message(message));
        let (channels, protocol) = of_message.map_or((None, Protocol::Simple), |(count, p)| (Some(count), p));
        let pair = AlgoProto { algorithm: None, protocol, channels };
        let is_free = forced == AlgorithmFilter::default();
        return Candidates { nbytes, pairs: if is_free { vec![pair] } else { Vec::new() }, ..Candidates::default() };
    }
    let has_form = |algorithm, protocol, channels| {
        let pair = AlgoProto { algorithm: Some(algorithm), protocol, channels };
        spent(params, pattern, pair, nbytes as f64).is_some().then_some(pair)
    };
    let weighed = pattern.collective().and_then(|collective| model?.candidates(collective, nbytes).ok());
    let Some(candidates) = weighed else {
        let pairs = [NcclAlgorithm::Ring, NcclAlgorithm::Tree].into_iter().flat_map(|a| Protocol::ALL.map(|p| (a, p)));
        let allowed =
            pairs.filter(|&(a, p)| forced.allows(a, p) && (a == NcclAlgorithm::Ring || params.inter_node.is_some()));
        return Candidates {
            nbytes,
            pairs: allowed.filter_map(|(a, p)| has_form(a, p, None)).collect(),
            ..Candidates::default()
        };
    };
    let allowed: Vec<&Candidate> = candidates.iter().filter(|c| forced.allows(c.algorithm, c.protocol)).collect();
    let mut considered: Vec<&Candidate> = allowed.iter().copied().filter(|c| c.time_ps.is_some()).collect();
    // The sort is stable: among equals NCCL takes the first.
    considered.sort_by_key(|candidate| candidate.time_ps);
    let pair = |c: &&Candidate| has_form(c.algorithm, c.protocol, Some(c.channels));
    let pairs: Vec<AlgoProto> = considered.iter().find_map(pair).into_iter().collect();
    let chosen = candidates.iter().filter_map(|candidate| candidate.time_ps).min();
    Candidates {
        nbytes,
        pairs,
        nccl_us: chosen.map(|ps| ps as f64 / PS_PER_US as f64),
        why_not: allowed.iter().find_map(|candidate| candidate.why_disabled),
    }
}
