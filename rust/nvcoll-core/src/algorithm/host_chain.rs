//! host_chain all_reduce: each host continues the fold of the host before it, so that all are folded in the order of ranks.
//!
//! ```text
//! chunk c of a host belongs to its rank number c           2 hosts of 2:
//! there   owner of host 0     fold of its host's inputs    r0, r1 ─▶ s
//!         owner of host h     fold of s and its host's     s, r2, r3 ─▶ total, to all ranks of the last host
//! back    owner of host h     the total, from host h+1     total ─▶ all ranks of host 0
//! ```
//!
//! A host has `per_host` neighbouring ranks; the last host may have fewer, and then its ranks own several chunks. The chain runs on all
//! local ranks at once, one chunk each. `nvcoll.hosts` reduces so, where the steps between owners are messages; here it is proved,
//! simulated and drawn.
//!
//! Bytes per rank with h hosts and n ranks in all: (2 + 3 (h-1)/n) N; between two hosts N each way. Steps per
//! rank: 2, and 1 on the last host. Waits: 2 h. Order: own, the left fold with one step per host: `(((r0 + r1) + r2 + r3) + r4)`. These are the bits of rank order if
//! the dtype accumulates in itself. A step rounds a small float, and between hosts `nvcoll.hosts` does not round it. Source: ours; a
//! chain is also the pipeline of Open MPI's tuned reduce.

use super::parameters::{Arguments, Parameter, ParameterValues};
use crate::builder::{Builder, Region};

/// The ranks of a host by default. Chosen: the fewest that make an exchange inside a host.
const PER_HOST: u32 = 2;

pub(super) const PARAMETERS: &[Parameter] =
    &[Parameter { name: "per_host", values: ParameterValues::Whole("2"), summary: "the ranks of a host" }];

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder, given: &Arguments) {
    let n = b.world_size();
    let per_host = given.whole("per_host").unwrap_or(PER_HOST).min(n);
    let hosts: Vec<Vec<u32>> =
        (0..n).step_by(per_host as usize).map(|first| (first..n.min(first + per_host)).collect()).collect();
    let (last, earlier) = hosts.split_last().expect("a world has ranks");
    for c in b.chunks(per_host) {
        let mut total: Vec<Region> = Vec::new();
        for host in earlier {
            total.extend(host.iter().map(|&r| b.input(r, c)));
            total = vec![b.fold(&total, &outputs(b, host, c)[..1])];
        }
        total.extend(last.iter().map(|&r| b.input(r, c)));
        let mut total = b.fold(&total, &outputs(b, last, c));
        for host in earlier.iter().rev() {
            total = b.copy(&total, &outputs(b, host, c));
        }
    }
}

/// Returns a chunk in the outputs of a host's ranks, the owner's first.
fn outputs(b: &Builder, host: &[u32], c: u32) -> Vec<Region> {
    let owner = c as usize % host.len();
    host[owner..].iter().chain(&host[..owner]).map(|&r| b.output(r, c)).collect()
}
