//! Several nodes of one kind, with a network between them.
//!
//! ```text
//! n0.gpu0 ─ n0.pcie0 ─ n0.nic0 ──┐                  ┌── n1.nic0 ─ …
//! n0.gpu1 ─ n0.pcie1 ─ n0.nic1 ─┐└─ rail0 ─ spine   │              rail r joins the r-th NICs of all nodes;
//!                               └── rail1 ───┘ └────┴── …          the spine joins the rails, and blocks nothing
//! ```
//!
//! NICs are spread evenly over the GPUs of a node: the k-th of m hangs where GPU k g/m of g hangs, at its PCIe switch or
//! socket. A rack of NVLink is one node, and each of its trays has the NICs of a node: the k-th of every tray is on rail k.
//! A network is one row of `hardware/networks.toml`: its medium, ports per NIC, NICs per node, and the PCIe behind a NIC.
//! Source: NVIDIA DGX SuperPOD reference architecture (rail-optimised fat tree).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::hardware::media::{self, LinkFamily};
use crate::hardware::{Device, DeviceKind, Fabric, Link};
use crate::units::Rate;

/// A network.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What it is called, as `ib-ndr-8`: medium and NICs per node.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// The medium of a port.
    pub medium: String,
    /// How many ports of it a NIC has.
    pub ports: u32,
    /// How many NICs a node has, or a tray of a rack, each on a rail of its own.
    pub nics: u32,
    /// The PCIe generation behind a NIC, as a medium.
    pub host_medium: String,
    /// Its lanes.
    pub host_lanes: u32,
    /// Whether NICs reach the memory of GPUs; otherwise what they send is staged.
    pub gpu_direct: bool,
    /// Where the numbers are from.
    pub source: String,
}

impl Network {
    /// Returns what all NICs of a node send together, at line rate.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a medium that no table has.
    pub fn line_rate(&self) -> Result<Rate> {
        let port = media::named(&self.medium)?.lane_gbps;
        Ok(Rate::from_gbps(port * f64::from(self.ports * self.nics)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworksFile {
    network: Vec<Network>,
}

/// Returns every network.
pub fn networks() -> &'static [Network] {
    static TABLE: OnceLock<Vec<Network>> = OnceLock::new();
    TABLE.get_or_init(|| {
        toml::from_str::<NetworksFile>(include_str!("hardware/networks.toml"))
            .expect("a test reads the table that is shipped")
            .network
    })
}

/// Finds a network by name.
///
/// # Errors
/// [`Error::Unknown`].
pub fn network(name: &str) -> Result<&'static Network> {
    networks().iter().find(|network| network.name == name).ok_or_else(|| Error::Unknown {
        kind: "network",
        name: name.to_owned(),
        known: networks().iter().map(|network| network.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Chosen: as many GPUs as any cluster has that people ask about; the graph takes some 500 bytes for each.
const MOST_GPUS: u32 = 1 << 17;

/// Joins `nodes` copies of `node` by a network.
///
/// # Errors
/// [`Error::Description`] if there are no nodes or too many, if the node is a cluster itself, or if it has nothing to which a
/// NIC could be attached.
pub fn cluster(node: &Fabric, nodes: u32, network: &Network) -> Result<Fabric> {
    let name = format!("{}x{nodes}+{}", node.name, network.name);
    let wrong = |message: String| Error::Description { origin: name.clone(), message };
    let gpus = node.gpus();
    if nodes == 0 || u64::from(nodes) * gpus.len() as u64 > u64::from(MOST_GPUS) {
        return Err(wrong(format!("{nodes} nodes: it must be from 1 to {}", MOST_GPUS as usize / gpus.len())));
    }
    if node.nodes() > 1 || node.of_kind(DeviceKind::Nic).next().is_some() {
        return Err(wrong("the node has a network already: pass a single node".to_owned()));
    }
    let seats = seats(node, &gpus, network.nics).map_err(&wrong)?;
    let trays = seats.len() as u32 / network.nics;
    let mut all = Fabric {
        title: format!("{nodes} x ({}), {}", node.title, network.title),
        devices: Vec::new(),
        links: Vec::new(),
        sources: node.sources.iter().chain([&network.source]).cloned().collect(),
        ..node.clone()
    };
    all.abilities.gpu_direct &= network.gpu_direct;
    all.name.clone_from(&name);
    all.add_rails(network, nodes * trays)?;
    for nth in 0..nodes {
        all.add_node(node, nth, network, &seats)?;
    }
    Ok(all)
}

/// For each NIC of each tray, the device of a node at which it hangs.
fn seats(node: &Fabric, gpus: &[usize], nics: u32) -> std::result::Result<Vec<usize>, String> {
    let is_host = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
    let host_of = |gpu: usize| {
        let own = |link: &&Link| link.from == gpu && is_host(node.devices[link.to].kind);
        node.links.iter().find(own).map(|link| link.to)
    };
    let mut trays: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for &gpu in gpus {
        trays.entry(node.devices[gpu].tray).or_default().push(gpu);
    }
    let nics = nics as usize;
    let at = trays.values().flat_map(|tray| (0..nics).map(move |nic| tray[nic * tray.len() / nics]));
    let seat = |gpu: usize| {
        host_of(gpu).ok_or_else(|| format!("{} hangs at no PCIe switch or socket", node.devices[gpu].name))
    };
    at.map(seat).collect()
}

impl Fabric {
    /// Adds a rail for each NIC of a box, at the position of its number; there are so many boxes.
    fn add_rails(&mut self, network: &Network, boxes: u32) -> Result<()> {
        let medium = media::named(&network.medium)?;
        if medium.family != LinkFamily::Network {
            let message = format!("{} is no medium of networks", medium.name);
            return Err(Error::Description { origin: network.name.clone(), message });
        }
        let switch = |name| Device { name, kind: DeviceKind::NetworkSwitch, node: None, tray: None, chips: 1 };
        self.devices.extend((0..network.nics).map(|rail| switch(format!("rail{rail}"))));
        let rails = network.nics as usize;
        if rails > 1 {
            self.devices.push(switch("spine".to_owned()));
            (0..rails).for_each(|rail| self.join(rail, rails, medium, network.ports * boxes));
        }
        Ok(())
    }

    fn add_node(&mut self, node: &Fabric, nth: u32, network: &Network, seats: &[usize]) -> Result<()> {
        let first = self.devices.len();
        let named =
            |device: &Device| Device { name: format!("n{nth}.{}", device.name), node: Some(nth), ..device.clone() };
        self.devices.extend(node.devices.iter().map(named));
        for link in &node.links {
            self.links.push(Link { from: first + link.from, to: first + link.to, ..*link });
        }
        let (port, host) = (media::named(&network.medium)?, media::named(&network.host_medium)?);
        for (nic, &seat) in seats.iter().enumerate() {
            let (at, name) = (self.devices.len(), format!("n{nth}.nic{nic}"));
            self.devices.push(Device { name, kind: DeviceKind::Nic, node: Some(nth), tray: None, chips: 1 });
            self.join(first + seat, at, host, network.host_lanes);
            self.join(at, nic % network.nics as usize, port, network.ports);
        }
        Ok(())
    }
}
