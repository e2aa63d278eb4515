//! The part of a machine on which a communicator runs: its GPUs, and the hosts in which they are.
//!
//! ```text
//! rack   tray 0: gpu0 … gpu3, 4 cards │ tray 1: gpu4 … gpu7, 4 cards │ …          ranks 0 and 2: tray 0 with four cards
//! nodes  node 0: gpu0 … gpu7, 8 cards │ node 1 │ node 2 │ …                        ranks 0, 16, 32: nodes 0, 2, 4
//! ```
//!
//! A host is what PCIe, C2C, links between sockets, and links to memory join, and what is in one tray. NCCL runs on the hosts of
//! its ranks and knows the cards of these hosts only. Devices keep their order, so nodes that are alike stay alike, and three of
//! them stand for thousands (`excerpt.rs`). [`Fabric::among`] keeps all hosts, and takes ranks in any order.
//! Cost: a few looks at each link.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use nvcoll_core::connected_components::connected_components;

use crate::error::{Error, Result};
use crate::hardware::media::LinkFamily;
use crate::hardware::{Device, DeviceKind, Fabric, Link};

impl Fabric {
    /// Returns the part of the machine on which a communicator of some ranks runs. Its nodes are numbered from 0.
    ///
    /// # Errors
    /// [`Error::Description`] for ranks that do not exist, or do not ascend.
    pub fn of_communicator(&self, ranks: &[u32]) -> Result<Fabric> {
        self.check_ranks(ranks)?;
        if !ranks.is_sorted() {
            let message = "the ranks of a communicator must ascend: pass them in the order of the machine".to_owned();
            return Err(Error::Description { origin: self.name.clone(), message });
        }
        let all = self.gpus();
        let gpus: HashSet<usize> = ranks.iter().map(|&rank| all[rank as usize]).collect();
        let nodes: BTreeSet<u32> = gpus.iter().filter_map(|&gpu| self.devices[gpu].node).collect();
        let number: BTreeMap<u32, u32> = nodes.into_iter().zip(0..).collect();
        let mut part = self.keeping(&self.is_used(&gpus));
        for device in &mut part.devices {
            device.node = device.node.and_then(|node| number.get(&node).copied());
        }
        Ok(part)
    }

    /// Returns the same machine with some of its devices, and the links between these.
    pub(crate) fn keeping(&self, is_kept: &[bool]) -> Fabric {
        let kept = (0..self.devices.len()).filter(|&at| is_kept[at]);
        let mut place = vec![None; self.devices.len()];
        kept.clone().zip(0..).for_each(|(at, new)| place[at] = Some(new));
        let moved = |link: &Link| Some(Link { from: place[link.from]?, to: place[link.to]?, ..*link });
        self.of_parts(kept.map(|at| self.devices[at].clone()).collect(), self.links.iter().filter_map(moved).collect())
    }

    /// Says of each device whether a communicator of these GPUs uses it. NVSwitches belong to the node, switches of the network
    /// to all.
    fn is_used(&self, gpus: &HashSet<usize>) -> Vec<bool> {
        let nodes: HashSet<Option<u32>> = gpus.iter().map(|&gpu| self.devices[gpu].node).collect();
        let is_switch = |device: &Device| match device.kind {
            DeviceKind::NetworkSwitch => true,
            DeviceKind::Nvswitch => nodes.contains(&device.node),
            _ => false,
        };
        let mut is_used: Vec<bool> = self.devices.iter().map(is_switch).collect();
        for host in self.hosts() {
            if host.iter().any(|&at| gpus.contains(&(at as usize))) {
                host.into_iter().for_each(|at| is_used[at as usize] = true);
            }
        }
        self.of_kind(DeviceKind::Gpu).for_each(|gpu| is_used[gpu] = gpus.contains(&gpu));
        is_used
    }

    /// Returns the devices of each host; a switch is a host of its own.
    fn hosts(&self) -> Vec<Vec<u32>> {
        let is_inside = |link: &&Link| {
            use LinkFamily::{C2c, Memory, Pcie, Socket};
            matches!(link.medium.family, Pcie | C2c | Socket | Memory)
        };
        let joined = self.links.iter().filter(is_inside).map(|link| (link.from as u32, link.to as u32));
        let mut first_of_tray = BTreeMap::new();
        let of_trays = (0..).zip(&self.devices).filter(|(_, device)| device.tray.is_some());
        let of_trays =
            of_trays.map(|(at, device)| (*first_of_tray.entry((device.node, device.tray)).or_insert(at), at));
        connected_components(self.devices.len() as u32, joined.chain(of_trays))
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::hardware::DeviceKind;
    use crate::machines::preset;
    use crate::predict::{AlgorithmFilter, CollectiveCall, Launch, Pattern, Predictor};

    #[test]
    fn a_communicator_on_all_its_hosts_is_priced_as_the_same_ranks_among_all() {
        for (name, ranks) in [
            ("hgx-h100x4+ib-ndr-8", vec![0, 8, 16, 24]),
            ("hgx-h100x2+ib-ndr-8", vec![1, 3, 5, 7, 9, 11, 13, 15]),
            ("dgx1-v100x2+ib-edr-4", vec![0, 1, 8, 9]),
            ("rtx4090-4-staged", vec![1, 3]),
        ] {
            let machine = preset(name).unwrap();
            let part = Predictor::of(&machine.of_communicator(&ranks).unwrap(), None).unwrap();
            let all = Predictor::of(&machine.among(&ranks).unwrap(), None).unwrap();
            for pattern in Pattern::ALL {
                let call = CollectiveCall { pattern, launch: Launch::Framework, forced: AlgorithmFilter::default() };
                let us = |of: &Predictor| of.us(&call, &of.weigh(&call, 1 << 24).unwrap());
                assert_eq!(us(&part), us(&all), "{} of {ranks:?} of {name}", pattern.name());
            }
        }
    }

    #[test]
    fn hosts_without_a_rank_are_left_out_with_their_cards() {
        let of = |name: &str, ranks: &[u32]| preset(name).unwrap().of_communicator(ranks).unwrap();
        let cards = |part: &crate::Fabric| part.of_kind(DeviceKind::Nic).count();
        let nodes = of("hgx-h100x6+ib-ndr-8", &[0, 1, 32, 33]);
        assert_eq!((nodes.nodes(), nodes.world_size(), cards(&nodes)), (2, 4, 16));
        let trays = of("gb200-nvl72x2+ib-ndr-4", &[0, 1, 4, 72, 73, 76]);
        assert_eq!((trays.nodes(), trays.world_size(), cards(&trays)), (2, 6, 16));
        let part = of("hgx-h100x2048+ib-ndr-8", &(0..2048).map(|node| node * 8).collect::<Vec<_>>());
        assert!(part.excerpt().is_some(), "nodes that are alike stay alike");
    }

    #[test]
    fn ranks_that_do_not_ascend_are_refused() {
        let machine = preset("hgx-h100").unwrap();
        for ranks in [&[1, 0][..], &[8], &[]] {
            assert!(matches!(machine.of_communicator(ranks), Err(Error::Description { .. })), "{ranks:?}");
        }
    }
}
