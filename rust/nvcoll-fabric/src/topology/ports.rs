//! What the ports of one GPU carry, at line rate: the figures of a datasheet beside which a prediction is read.

use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::units::Rate;

/// Line rates, one way, of what the first GPU sends over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRates {
    /// All links to the other GPUs of its node: NVLinks where these join all of them, else its link to the host.
    pub gpu: Rate,
    /// Its share of the network cards of its node; none where there is no other node.
    pub network: Option<Rate>,
}

impl Fabric {
    /// Returns what the ports of the first GPU carry. The work is a few looks at each link.
    pub fn port_rates(&self) -> PortRates {
        let gpus = self.gpus();
        let node = self.devices[gpus[0]].node;
        let of_node: Vec<usize> = gpus.iter().copied().filter(|&gpu| self.devices[gpu].node == node).collect();
        let over_nvlink = self.hops_from(gpus[0], |_| true, LinkFamily::joins_gpus);
        let has_nvlink = of_node.len() > 1 && of_node.iter().all(|&gpu| over_nvlink[gpu].is_some());
        let is_taken = |link: &&Link| match link.medium.family {
            LinkFamily::Nvlink | LinkFamily::Xgmi => has_nvlink,
            LinkFamily::Pcie | LinkFamily::C2c => !has_nvlink,
            _ => false,
        };
        let cards = sum(self.network_ports(node));
        let share = Rate(cards.0 / of_node.len() as u64);
        PortRates {
            gpu: sum(self.links.iter().filter(|link| link.from == gpus[0]).filter(is_taken)),
            network: (cards.0 > 0 && self.nodes() > 1).then_some(share),
        }
    }

    /// Returns the links from the network cards of a node to switches.
    pub(crate) fn network_ports(&self, node: Option<u32>) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| {
            let (from, to) = (&self.devices[link.from], &self.devices[link.to]);
            from.kind == DeviceKind::Nic && from.node == node && to.kind == DeviceKind::NetworkSwitch
        })
    }
}

fn sum<'a>(links: impl Iterator<Item = &'a Link>) -> Rate {
    Rate(links.map(|link| link.line_rate().0).sum())
}
