//! Costs that were fitted to measurements, in place of those that a fabric and a protocol have.

use crate::hardware::media::LinkFamily;
use crate::topology::route::RouteKind;
use crate::units::{Ps, Rate};

/// Costs of one machine under one protocol, whose own fixed time and signals are then zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedCosts {
    /// The time of a call before ranks enter; added to `starts_ps` of the settings.
    pub start: Ps,
    /// For each link of the fabric, its rate.
    pub rates: Vec<Rate>,
    /// The time of the first byte to another rank, instead of the latencies of links.
    pub hops: HopLatencies,
    /// Bytes on links per byte of data that a switch reduces or multicasts, in units of 1 / the denominator of the protocol's
    /// `wire`. No hop is added there.
    pub switch_wire: u32,
}

/// The time of the first byte, by the kind of its route.
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

/// Returns the kind of route over links of a family; of several links the last kind holds.
pub(super) const fn kind_of(family: LinkFamily) -> RouteKind {
    match family {
        LinkFamily::Nvlink | LinkFamily::Xgmi => RouteKind::Nvlink,
        LinkFamily::Pcie | LinkFamily::C2c | LinkFamily::Socket => RouteKind::Peer,
        LinkFamily::Memory => RouteKind::Staged,
        LinkFamily::Network => RouteKind::Network,
    }
}
