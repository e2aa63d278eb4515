//! Costs that were fitted to measurements, in place of those that a fabric and a protocol have.

use crate::hardware::media::LinkFamily;
use crate::route::RouteKind;
use crate::units::{Ps, Rate};

/// Costs of one machine under one protocol, whose own fixed time and signals are then zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedCosts {
    /// What a call takes before any rank enters; it is added to what the settings say of each.
    pub start: Ps,
    /// For each link of the fabric, its rate.
    pub rates: Vec<Rate>,
    /// What the first byte takes to another rank until it is seen there, instead of the latencies of links.
    pub hops: HopLatencies,
    /// Bytes on links per byte of data that a switch folds or multicasts: so many over the denominator of the protocol's
    /// `wire`. No hop is added there.
    pub switch_wire: u32,
}

/// What the first byte takes, by how it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopLatencies {
    /// Over NVLink or its like.
    pub nvlink: Ps,
    /// Over PCIe.
    pub peer: Ps,
    /// Through host memory.
    pub staged: Ps,
    /// To another node.
    pub network: Ps,
}

impl HopLatencies {
    pub(super) fn of(&self, kind: RouteKind) -> Ps {
        match kind {
            RouteKind::Local => 0,
            RouteKind::Nvlink => self.nvlink,
            RouteKind::Peer => self.peer,
            RouteKind::Staged => self.staged,
            RouteKind::Network => self.network,
        }
    }
}

/// Returns how a transfer goes that crosses links of this family; a route goes as the last of its links' kinds.
pub(super) const fn kind_of(family: LinkFamily) -> RouteKind {
    match family {
        LinkFamily::Nvlink | LinkFamily::Xgmi => RouteKind::Nvlink,
        LinkFamily::Pcie | LinkFamily::C2c | LinkFamily::Socket => RouteKind::Peer,
        LinkFamily::Memory => RouteKind::Staged,
        LinkFamily::Network => RouteKind::Network,
    }
}
