//! The intervals of predictions, and the measured systems behind them: `trust.toml`.
//!
//! A cell is a class of machines, all_reduce or other collectives, and a band of sizes. *Validated* names what was measured:
//!
//! ```text
//! systems     at least five of the cell were measured, none of them seen by the fit that predicts it
//! nodes       none has more nodes than the largest of them; else the prediction is extrapolated
//! limit       what takes most of the time also took most of the time of a measured system of the cell
//! ```
//!
//! A limit names the interconnect of a node's GPUs and the longest part of the time, as `nvswitch: network cards`. So a
//! network that is idle most of the time validates nothing.
//!
//! **Extrapolation.** Beyond the largest measured number of nodes the logarithm of the interval's factor grows by half of
//! itself with each doubling of nodes:
//!
//! ```text
//! factor(n) = factor ^ (1 + 0.5 log2(n / largest))        n > largest
//! ```
//!
//! The growth is chosen. The table has one cluster at 2, 4 and 8 nodes: each doubling moves its error by 3 to 8 % where the
//! interval is 16 % wide, which is a fifth to a half of it. Systems of 4 and 8 nodes lie inside the interval of systems of 2
//! and 3, so the law is no narrower than what was seen.

use std::sync::LazyLock;

use serde::Deserialize;

use super::pattern::Pattern;
use crate::hardware::Evidence;
use crate::tables;

/// Chosen: a class is not validated in a band in which fewer of its systems were measured.
const FEWEST_SYSTEMS: u32 = 5;

/// Chosen: the part of itself by which the logarithm of a factor grows with each doubling of nodes.
const GROWTH_PER_DOUBLING: f64 = 0.5;

/// Chosen: the upper limit of the growth of log(factor).
const MOST_GROWTH: f64 = 3.0;

/// Where bands of sizes end, in bytes; the last has no end.
const BANDS: [u64; 3] = [64 << 10, (1 << 20) - 1, (128 << 20) - 1];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustCell {
    name: String,
    /// `all_reduce` or `others`.
    collective: String,
    /// The number of systems of the class that were judged, per band.
    systems: [u32; 4],
    /// The least and the largest number of nodes of these systems, per band; zero where there are none.
    nodes: [(u32, u32); 4],
    /// The limits of these systems, per band.
    limits: [Vec<String>; 4],
    /// The factor of the interval, per band; borrowed where there are few systems.
    factor: [f64; 4],
}

static TABLE: LazyLock<Vec<TrustCell>> = LazyLock::new(|| tables::rows(include_str!("trust.toml"), "class"));

const fn kind(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::AllReduce => "all_reduce",
        _ => "others",
    }
}

fn row(class: &str, pattern: Pattern) -> Option<&'static TrustCell> {
    TABLE.iter().find(|row| row.name == class && row.collective == kind(pattern))
}

fn band(nbytes: u64) -> usize {
    BANDS.iter().position(|&last| nbytes <= last).unwrap_or(BANDS.len())
}

impl TrustCell {
    fn evidence(&self, at: usize, nodes: u32, is_limit: impl Fn(&str) -> bool) -> Evidence {
        let (systems, (least, most)) = (self.systems[at], self.nodes[at]);
        match systems >= FEWEST_SYSTEMS && self.limits[at].iter().any(|limit| is_limit(limit)) {
            false => Evidence::NotValidated,
            true if nodes > most => Evidence::Extrapolated { nodes: most },
            true => Evidence::Validated { systems, nodes: (least, most) },
        }
    }

    /// The largest number of nodes of a measured system of the class, in any band.
    fn most_nodes(&self) -> u32 {
        self.nodes.iter().map(|nodes| nodes.1).max().unwrap_or(0)
    }
}

/// Returns the evidence for predictions of `nbytes` on `nodes` nodes, for calls with this limit.
pub(super) fn evidence(class: &str, pattern: Pattern, nbytes: u64, nodes: u32, limit: &str) -> Evidence {
    let found = row(class, pattern).map(|row| row.evidence(band(nbytes), nodes, |known| known == limit));
    found.unwrap_or(Evidence::NotValidated)
}

/// Returns the evidence in the band with the most systems, among systems whose GPUs are joined like these.
pub(super) fn best_evidence(class: &str, pattern: Pattern, nodes: u32, joined_by: &str) -> Evidence {
    let Some(row) = row(class, pattern) else { return Evidence::NotValidated };
    let is_alike = |limit: &str| limit.split(": ").next() == Some(joined_by);
    let known = (0..row.systems.len()).map(|at| (row.systems[at], row.evidence(at, nodes, is_alike)));
    let known = known.filter(|(_, evidence)| *evidence != Evidence::NotValidated);
    known.max_by_key(|(systems, _)| *systems).map_or(Evidence::NotValidated, |(_, evidence)| evidence)
}

/// Returns the factor of the 90 % interval: the time lies between the prediction over it and the prediction times it.
///
/// A class without measurements borrows the widest. More nodes than were measured widen the interval.
pub(super) fn factor(class: &str, pattern: Pattern, nbytes: u64, nodes: u32) -> f64 {
    let at = band(nbytes);
    let of_kind = TABLE.iter().filter(|row| row.collective == kind(pattern));
    let found = row(class, pattern);
    let factor = found.map_or_else(|| of_kind.map(|row| row.factor[at]).fold(1.0, f64::max), |row| row.factor[at]);
    let most = found.map_or(0, |row| if row.nodes[at].1 > 0 { row.nodes[at].1 } else { row.most_nodes() });
    // Of several nodes two are the fewest, and what was borrowed was measured on two at least.
    let doublings = (f64::from(nodes) / f64::from(most.max(2))).log2().max(0.0);
    factor.powf((1.0 + GROWTH_PER_DOUBLING * doublings).min(MOST_GROWTH))
}
