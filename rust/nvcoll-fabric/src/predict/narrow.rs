//! What is narrower than the GPUs' own links: a link that a ring crosses on its way, or a cut that sends must cross.
//!
//! ```text
//! ring     every GPU to the next, and back                    of S, each crossing carries 2 (n-1)/n S, or (n-1)/n S
//! chain    from the first GPU to the last                     S
//! tree     a chain there and back, on one node                S each way
//!          a link gives each crossing, one way, what a long transfer gets of it / how many cross it
//! sends    the cuts of `floor.rs` with links in use instead of at line rate
//! ```
//!
//! GPUs visit each other as NCCL's search lays its channels, whose bytes are alike; in the order of the ranks where it finds
//! none. The links at GPUs, and what they leave each other of links to their socket, are in the constants, and so is what
//! NVLink that joins all GPUs carries. Of several nodes the first is looked at, not the way from GPUs to cards; of sends,
//! one node only. No measured system is held up here: what is said of such calls is not validated.

use super::machine::{Machine, Way};
use super::pattern::Pattern;
use super::terms::Terms;
use crate::error::Result;
use crate::hardware::media::Family;
use crate::hardware::{Fabric, Kind, Link};
use crate::nccl::Model;
use crate::route::Router;
use crate::units::Rate;

/// By how much a cut must be narrower than the GPUs' links: rates are whole bytes per second. Chosen.
const NARROWER: f64 = 1.0 - 1e-6;

/// A link that holds up what crosses it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Narrow {
    pub(super) name: String,
    /// GB/s of a crossing, in use and at line rate.
    pub(super) gbps: f64,
    pub(super) line_gbps: f64,
}

/// A cut that holds up sends: GB/s of a GPU at line rate, and what part of its rate it gets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut {
    pub(super) part: f64,
    pub(super) line_gbps: f64,
}

/// The narrowest link of each way around the GPUs, if the ways have any that is not at a GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Narrows {
    pub(super) ring: Option<Narrow>,
    pub(super) chain: Option<Narrow>,
    pub(super) tree: Option<Narrow>,
    /// For each of [`Pattern::ALL`].
    pub(super) cuts: [Option<Cut>; Pattern::ALL.len()],
}

/// Over which pairs of neighbours bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// To the next, and back to the first.
    Ring,
    /// From the first to the last.
    Chain,
    /// There and back.
    Tree,
}

impl Narrows {
    /// Looks at the ways around the GPUs of the first node.
    ///
    /// # Errors
    /// [`crate::Error::NoPath`].
    pub(super) fn of(fabric: &Fabric, machine: &Machine, model: Option<&Model>) -> Result<Self> {
        if machine.way == Way::Nvlink || machine.local() < 2 {
            return Ok(Self::default());
        }
        let in_order = || vec![(0..machine.local() as usize).collect()];
        let orders = model.map(|model| model.rings().to_vec()).filter(|rings| !rings.is_empty());
        let orders = orders.unwrap_or_else(in_order);
        let narrowest = |round| narrowest(fabric, machine, &orders, round);
        let (ring, chain, tree) = (narrowest(Round::Ring)?, narrowest(Round::Chain)?, narrowest(Round::Tree)?);
        Ok(Self { ring, chain, tree, ..Self::default() })
    }

    pub(super) fn of_round(&self, round: Round) -> Option<&Narrow> {
        match round {
            Round::Ring => self.ring.as_ref(),
            Round::Chain => self.chain.as_ref(),
            Round::Tree => self.tree.as_ref(),
        }
    }

    /// Returns GB/s of a crossing, in use; infinite if no link but those of GPUs is crossed.
    pub(super) fn gbps(&self, round: Round) -> f64 {
        self.of_round(round).map_or(f64::INFINITY, |narrow| narrow.gbps)
    }
}

/// The pairs of ranks, first those of one channel.
fn pairs(order: &[usize], round: Round, is_closed: bool) -> Vec<(u32, u32)> {
    let mut order = order.to_vec();
    if round != Round::Ring {
        // The root is the first rank.
        let root = order.iter().position(|&gpu| gpu == 0).unwrap_or(0);
        order.rotate_left(root);
    }
    let mut pairs: Vec<(u32, u32)> = order.windows(2).map(|pair| (pair[0] as u32, pair[1] as u32)).collect();
    match round {
        Round::Ring if is_closed => pairs.push((order[order.len() - 1] as u32, order[0] as u32)),
        Round::Tree => pairs.extend(pairs.clone().into_iter().map(|(from, to)| (to, from))),
        _ => {}
    }
    pairs
}

fn narrowest(fabric: &Fabric, machine: &Machine, orders: &[Vec<usize>], round: Round) -> Result<Option<Narrow>> {
    let mut router = Router::of(fabric);
    let mut crossings = vec![0.0; fabric.links.len()];
    for order in orders {
        for (from, to) in pairs(order, round, machine.nodes == 1) {
            for link in router.route(fabric, from, to)?.links {
                crossings[link] += 1.0 / orders.len() as f64;
            }
        }
    }
    let is_of_gpu = |link: &Link| [link.from, link.to].iter().any(|&end| fabric.devices[end].kind == Kind::Gpu);
    let shares = fabric.links.iter().zip(&crossings).filter(|(link, &times)| times > 0.0 && !is_of_gpu(link));
    let share = |(link, times): (&Link, &f64)| Narrow {
        name: format!("{} to {} ({})", device(fabric, link.from), device(fabric, link.to), link.medium.name),
        gbps: link.rate().gbps() / times,
        line_gbps: link.line_rate().gbps() / times,
    };
    Ok(shares.map(share).reduce(|least, next| if next.gbps < least.gbps { next } else { least }))
}

fn device(fabric: &Fabric, at: usize) -> &str {
    &fabric.devices[at].name
}

/// Finds the cut that holds up a pattern of sends before the GPUs' links do.
///
/// # Errors
/// As [`Fabric::floor`].
pub(super) fn cut(fabric: &Fabric, machine: &Machine, terms: &Terms, pattern: Pattern) -> Result<Option<Cut>> {
    // The ports of a switch are what its GPUs have.
    if machine.nodes > 1 || machine.has_switch || !pattern.is_of_sends() {
        return Ok(None);
    }
    let gpu_gbps = |algbw: Option<Rate>| algbw.map(|rate| rate.gbps() * pattern.sent(terms.ranks));
    let in_use = |link: &Link| in_use(fabric, machine, terms, link);
    let gbps = gpu_gbps(pattern.bound(fabric, in_use)?.algbw).unwrap_or(f64::INFINITY);
    let line_gbps = gpu_gbps(pattern.floor(fabric)?.algbw).unwrap_or(f64::INFINITY);
    let part = gbps / terms.both_gbps;
    Ok((part < NARROWER).then_some(Cut { part, line_gbps }))
}

/// What a link carries of a node: its part of what the constants say of a GPU's. Those of PCIe that no GPU is at have the
/// fabric's: what GPUs leave each other there is in the constants.
pub(super) fn in_use(fabric: &Fabric, machine: &Machine, terms: &Terms, link: &Link) -> Rate {
    let is_of_gpu = [link.from, link.to].iter().any(|&end| fabric.devices[end].kind == Kind::Gpu);
    match (link.medium.family, machine.way) {
        (Family::Nvlink | Family::Xgmi, Way::Nvlink) => {
            Rate::from_gbps(link.line_rate().gbps() * terms.both_gbps / terms.line_gbps)
        }
        (Family::Pcie | Family::C2c, Way::Peer | Way::Staged) if is_of_gpu => {
            Rate::from_gbps(link.line_rate().gbps() * terms.both_gbps / terms.line_gbps)
        }
        _ => link.rate(),
    }
}
