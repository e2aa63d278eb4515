//! A machine that has lost something: lanes of its GPUs, network cards, a part of the network's rate. `nvcoll check` asks what such a
//! machine would measure.

use crate::error::{Error, Result};
use crate::hardware::media::{LinkFamily, Medium};
use crate::hardware::network::Network;
use crate::hardware::origin::Change;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::cluster::cluster;

/// What a machine has lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Links of a family that end at GPUs have one lane in `part`, and at least one; none with 0.
    Lanes {
        /// The family.
        family: LinkFamily,
        /// The number of lanes, divided by the number of lanes that are left.
        part: u32,
        /// All GPUs lose lanes, or the first one of each node.
        of_all: bool,
    },
    /// The number of network cards, divided by the number of cards that are left.
    Cards(u32),
    /// The rate of a port is divided by this number.
    Rate(u32),
    /// One card with a port of another medium, and its Gbit/s, replaces all; it does not reach the memory of GPUs.
    Port(&'static Medium, f64),
    /// Network cards do not reach the memory of GPUs.
    GpuDirect,
}

impl Fabric {
    /// Returns the machine without what it has lost. A machine of one node has no network to lose.
    ///
    /// # Errors
    /// [`Error::Unable`] if the nodes and the network of several nodes are not known, if nodes lose lanes of PCIe, which are the way to
    /// their network, or if cards cannot be divided so; the errors of [`cluster`].
    pub fn damaged(&self, loss: &Loss) -> Result<Fabric> {
        if self.nodes() == 1 {
            return Ok(match *loss {
                Loss::Lanes { family, part, of_all } => self.with_fewer_lanes(family, part, of_all),
                _ => self.clone(),
            });
        }
        let (node, network) = self.parts()?;
        let unable = |message: String| Err(Error::Unable { fabric: self.name.clone(), message });
        let (mut node, mut network) = (node.clone(), network.clone());
        // Its cards come from its changes, and lose with the others.
        network.nics = self.cards().unwrap_or(network.nics);
        match *loss {
            Loss::Lanes { family: LinkFamily::Pcie, .. } => {
                return unable("GPUs with fewer lanes of PCIe are like a smaller part of the network".to_owned());
            }
            Loss::Lanes { .. } if node.devices.iter().any(|device| device.tray.is_some()) => {
                return unable(
                    "its nodes are racks: no loss of one GPU's lanes is known to be like their logs".to_owned(),
                );
            }
            Loss::Lanes { family, part, of_all } => node = node.with_fewer_lanes(family, part, of_all),
            Loss::Cards(part) if part == 0 || !network.nics.is_multiple_of(part) => {
                return unable(format!("its nodes have {} network cards, which {part} does not divide", network.nics));
            }
            Loss::Cards(part) => network.nics /= part,
            Loss::Rate(part) => network.port_gbit = Some(network.port().lane_gbps * 8.0 / f64::from(part.max(1))),
            Loss::Port(medium, gbit) => {
                let lost = Network { medium, port_gbit: Some(gbit), efficiency: None, latency_ns: None, ..network };
                network = Network { ports: 1, nics: 1, gpu_direct: false, ..lost };
            }
            Loss::GpuDirect => network.gpu_direct = false,
        }
        let is_left = |change: &&Change| match change {
            Change::Nics(_) => false,
            Change::Wider(LinkFamily::Network, _) => !matches!(loss, Loss::Port(..)),
            _ => true,
        };
        let changes: Vec<Change> = self.origin.changes.iter().filter(is_left).copied().collect();
        cluster(&node, self.nodes(), &network)?.with_changes(&changes)
    }

    fn with_fewer_lanes(&self, family: LinkFamily, part: u32, of_all: bool) -> Fabric {
        let gpus = self.gpus();
        let is_hit = |at: usize| self.devices[at].kind == DeviceKind::Gpu && (of_all || at == gpus[0]);
        let loses = |link: &Link| link.medium.family == family && (is_hit(link.from) || is_hit(link.to));
        let left = |link: &Link| match loses(link) {
            false => Some(*link),
            true => Some(Link { lanes: (link.lanes.checked_div(part)?).max(1), ..*link }),
        };
        Fabric { links: self.links.iter().filter_map(left).collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::Loss;
    use crate::hardware::media::{self, LinkFamily};
    use crate::machines::preset;

    #[test]
    fn what_a_cluster_loses_is_left_out_of_every_node() {
        let whole = preset("hgx-h100x2+ib-ndr-8").unwrap();
        let same = |loss: Loss, as_in: &str| {
            let (damaged, as_in) = (whole.damaged(&loss).unwrap(), preset(as_in).unwrap());
            assert_eq!((&damaged.devices, &damaged.links), (&as_in.devices, &as_in.links), "{loss:?}");
        };
        same(Loss::Cards(2), "hgx-h100x2+ib-ndr-4");
        same(Loss::Rate(1), "hgx-h100x2+ib-ndr-8");
        let changed = preset("hgx-h100x2+ib-ndr-8 with nics 4").unwrap();
        let (two, one) = (changed.damaged(&Loss::Cards(2)).unwrap(), "hgx-h100x2+ib-ndr-8 with nics 2");
        assert_eq!((&two.devices, &two.links), (&preset(one).unwrap().devices, &preset(one).unwrap().links));
        let half = whole.damaged(&Loss::Rate(2)).unwrap();
        let of_port = |fabric: &crate::Fabric| fabric.links.last().unwrap().line_rate();
        assert_eq!(2 * of_port(&half).0, of_port(&whole).0);
        let tcp = whole.damaged(&Loss::Port(media::named("ethernet-100").unwrap(), 25.0)).unwrap();
        assert!(!tcp.abilities.gpu_direct && tcp.devices.iter().filter(|one| one.name.contains("nic")).count() == 2);
        let slow = whole.damaged(&Loss::Lanes { family: LinkFamily::Nvlink, part: 2, of_all: false }).unwrap();
        let lanes = |of: &str| slow.links.iter().find(|link| slow.devices[link.from].name == of).unwrap().lanes;
        assert_eq!((lanes("n0.nvswitch"), lanes("n1.nvswitch")), (9, 9));
        for loss in [Loss::Cards(3), Loss::Lanes { family: LinkFamily::Pcie, part: 2, of_all: true }] {
            assert!(whole.damaged(&loss).is_err(), "{loss:?}");
        }
        assert_eq!(preset("hgx-h100").unwrap().damaged(&Loss::GpuDirect).unwrap(), preset("hgx-h100").unwrap());
    }
}
