//! Sockets of the processors of a host, which texts about NUMA nodes do not name.
//!
//! A processor can show itself as several NUMA nodes (NPS of AMD, SNC of Intel). Linux numbers the nodes of the first socket
//! first. So three rules derive sockets from nodes:
//!
//! - two nodes or fewer are sockets;
//! - more are two sockets: the lower and the upper half of the next power of two. Chosen: machines with GPUs and four sockets
//!   are rare, and a single socket with four nodes looks the same, so the machine's sources say what was done. They are
//!   taken for EPYC, which servers divide most often, joined as in the boxes that are shipped;
//! - every processor of Arm and POWER is one node.

use crate::error::Result;
use crate::hardware::gpus::Gpu;
use crate::hardware::{media, DeviceKind, Fabric};

/// Returns the socket of each NUMA node of a host, from 0 in the order of the nodes, and whether sockets have several nodes.
pub(super) fn of_nodes(nodes: &[u32], are_sockets: bool) -> (Vec<usize>, bool) {
    let all =
        nodes.iter().max().map_or(1, |last| last.saturating_add(1).checked_next_power_of_two().unwrap_or(u32::MAX));
    let is_divided = !are_sockets && all > 2;
    let number = |node: u32| if is_divided { u32::from(node >= all / 2) } else { node };
    let mut numbers: Vec<u32> = nodes.iter().map(|&node| number(node)).collect();
    let places = numbers.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let place = |number: &u32| numbers.binary_search(number).expect("every number was listed");
    (places.iter().map(place).collect(), is_divided)
}

/// What a machine's sources say where sockets have several nodes.
pub(super) const DIVIDED: &str =
    "more than two NUMA nodes are taken for two sockets of EPYC (NPS) with 3 links between them; for others add to the name of the \
     machine, as `with socket upi2 x3`";

/// What sockets are joined by where a text does not say which they are. Chosen: the slowest that NCCL counts for processors
/// with that generation of PCIe.
pub(super) fn between(gpu: &Gpu) -> &str {
    match (gpu.c2c, gpu.pcie.name.as_str()) {
        (Some(c2c), _) => &c2c.name,
        (None, "pcie5" | "pcie6") => "upi2",
        (None, _) => "upi1",
    }
}

/// The memory of a socket, which no format describes. Chosen: as processors of that generation of PCIe have it, and Grace as
/// in the machines that are shipped.
fn memory(gpu: &Gpu) -> (&'static str, u32) {
    match (gpu.c2c, gpu.pcie.name.as_str()) {
        (Some(_), _) => ("ddr5", 16),
        (None, "pcie5" | "pcie6") => ("ddr5", 8),
        (None, _) => ("ddr4", 6),
    }
}

impl Fabric {
    /// Adds the sockets on which devices are, joined to each other; `is_divided` says whether they have several NUMA nodes.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] for a medium that no table has.
    pub(super) fn add_sockets(&mut self, socket_of: &[usize], is_divided: bool) -> Result<Vec<usize>> {
        let is_epyc = is_divided && self.gpu.c2c.is_none();
        let (medium, links) = if is_epyc { ("epyc", 3) } else { (between(self.gpu), 1) };
        let mut added = Vec::new();
        for _ in 0..socket_of.iter().max().map_or(1, |last| last + 1) {
            added.push(self.add_socket(&added, (medium, links))?);
        }
        if is_divided {
            self.sources.push(DIVIDED.to_owned());
        } else if added.len() > 1 && self.gpu.c2c.is_none() {
            self.sources.push(format!(
                "the text does not say what joins the sockets: it is taken to be 1 x {}, the slowest with that PCIe; for \
                 another add to the name of the machine, as `{} with socket epyc x3`",
                media::named(medium)?.title,
                self.name
            ));
        }
        Ok(added)
    }

    /// Adds a socket with its memory, and joins it to others by links of a medium.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] for a medium that no table has.
    pub(super) fn add_socket(&mut self, others: &[usize], (medium, links): (&str, u32)) -> Result<usize> {
        let number = self.of_kind(DeviceKind::Socket).count();
        let socket = self.add(format!("socket{number}"), DeviceKind::Socket);
        let at = self.add(format!("memory{number}"), DeviceKind::Memory);
        let (memory, channels) = memory(self.gpu);
        self.join(socket, at, media::named(memory)?, channels);
        let between = media::named(medium)?;
        others.iter().for_each(|&other| self.join(other, socket, between, links));
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::of_nodes;

    #[test]
    fn nodes_of_one_socket_are_one_socket() {
        assert_eq!(of_nodes(&[0, 1], false), (vec![0, 1], false));
        assert_eq!(of_nodes(&[1], false), (vec![0], false));
        assert_eq!(of_nodes(&[3, 1, 7, 5], false), (vec![0, 0, 1, 1], true));
        assert_eq!(of_nodes(&[0, 1, 2, 3], false), (vec![0, 0, 1, 1], true));
        assert_eq!(of_nodes(&[0, 1, 2, 3], true), (vec![0, 1, 2, 3], false));
        assert_eq!(of_nodes(&[u32::MAX, 0], false), (vec![1, 0], true));
        assert_eq!(of_nodes(&[], false), (vec![], false));
    }
}
