//! Several nodes of one kind, with a network between them.
//!
//! ```text
//! n0.gpu0 ─ n0.pcie0 ─ n0.nic0 ──┐                  ┌── n1.nic0 ─ …
//! n0.gpu1 ─ n0.pcie1 ─ n0.nic1 ─┐└─ rail0 ─ spine   │              rail r joins the r-th NICs of all nodes;
//!                               └── rail1 ───┘ └────┴── …          the spine joins the rails, and blocks nothing
//! ```
//!
//! NICs are spread evenly over the GPUs of a node: the k-th of m hangs where GPU k g/m of g hangs, at its PCIe switch or
//! socket. A node that has cards of its own, as most that are read from a file, keeps those that lie nearest to these GPUs,
//! of the speed of the network first; its other cards (for storage, for management) are left out. A rack of NVLink is one
//! node, and each of its trays has the NICs of a node: the k-th of every tray is on rail k.
//! A network is one row of `hardware/networks.toml`: its medium, ports per NIC, NICs per node, and the PCIe behind a NIC.
//! Source: NVIDIA DGX SuperPOD reference architecture (rail-optimised fat tree).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::hardware::media::{self, LinkFamily, Medium};
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
/// [`Error::Description`] if there are no nodes or too many, if the node is a cluster itself, if it has nothing to which a
/// NIC could be attached, or if it has cards of its own that are fewer than the network's.
pub fn cluster(node: &Fabric, nodes: u32, network: &Network) -> Result<Fabric> {
    let name = format!("{}x{nodes}+{}", node.name, network.name);
    let wrong = |message: String| Error::Description { origin: name.clone(), message };
    let gpus = node.gpus();
    if nodes == 0 || u64::from(nodes) * gpus.len() as u64 > u64::from(MOST_GPUS) {
        return Err(wrong(format!("{nodes} nodes: it must be from 1 to {}", MOST_GPUS as usize / gpus.len())));
    }
    if node.nodes() > 1 || node.of_kind(DeviceKind::NetworkSwitch).next().is_some() {
        return Err(wrong("the node has a network already: pass a single node".to_owned()));
    }
    let (node, cards) = &if node.of_kind(DeviceKind::Nic).next().is_some() {
        with_own_cards(node, &gpus, network).map_err(&wrong)?
    } else {
        let host = media::named(&network.host_medium)?;
        let seats = seats(node, &gpus, network.nics).map_err(&wrong)?;
        let card = |seat| Card { seat, medium: host, lanes: network.host_lanes };
        (node.clone(), seats.into_iter().map(card).collect())
    };
    let trays = cards.len() as u32 / network.nics;
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
        all.add_node(node, nth, network, cards)?;
    }
    Ok(all)
}

/// A network card of a node: the device at which it hangs, and the link to it.
struct Card {
    seat: usize,
    medium: &'static Medium,
    lanes: u32,
}

/// Chosen: what a card says of its speed and the line rate of a network may differ by this part, as 180 and 200 Gbit/s do.
const SPEED_TOLERANCE: f64 = 0.15;

/// Divides a node that has cards into the node without them and the cards that join a network: for rail k of each tray the
/// card that is nearest to the GPU which the rail belongs to, and on no other rail. Cards of the network's speed, or of an
/// unknown one, come first; the node's sources say where the network's speed replaces that of its cards.
fn with_own_cards(
    node: &Fabric,
    gpus: &[usize],
    network: &Network,
) -> std::result::Result<(Fabric, Vec<Card>), String> {
    let mut free: Vec<usize> = node.of_kind(DeviceKind::Nic).collect();
    let (nics, trays) = (network.nics as usize, trays(node, gpus));
    let mbits =
        media::named(&network.medium).map_err(|error| error.to_string())?.lane_gbps * 8e3 * f64::from(network.ports);
    let other_speed =
        |at: usize| node.devices[at].port_mbits.filter(|own| (f64::from(*own) / mbits - 1.0).abs() > SPEED_TOLERANCE);
    if free.len() < nics * trays.len() {
        let message = "take a network with as many, or a node without cards";
        return Err(format!("the node has {} network cards, the network {nics} per node: {message}", free.len()));
    }
    let is_nic = |at: usize| node.devices[at].kind == DeviceKind::Nic;
    let mut kept = Vec::with_capacity(node.devices.len());
    let places: Vec<usize> = node
        .devices
        .iter()
        .enumerate()
        .map(|(at, device)| {
            if !is_nic(at) {
                kept.push(device.clone());
            }
            kept.len().saturating_sub(1)
        })
        .collect();
    let (mut cards, mut replaced) = (Vec::with_capacity(nics * trays.len()), None);
    for (tray, rail) in trays.iter().flat_map(|tray| (0..nics).map(move |rail| (tray, rail))) {
        let away = hops_on_host(node, tray[rail * tray.len() / nics]);
        let place = |&at: &usize| (other_speed(free[at]).is_some(), away[free[at]], at);
        let nearest = (0..free.len()).min_by_key(place).expect("there are as many cards as rails");
        replaced = replaced.or(other_speed(free[nearest]));
        let nic = free.remove(nearest);
        let link = node.links.iter().find(|link| link.to == nic && !is_nic(link.from));
        let link = link.ok_or_else(|| format!("{} hangs at nothing", node.devices[nic].name))?;
        cards.push(Card { seat: places[link.from], medium: link.medium, lanes: link.lanes });
    }
    let is_kept = |link: &&Link| !is_nic(link.from) && !is_nic(link.to);
    let moved = |link: &Link| Link { from: places[link.from], to: places[link.to], ..*link };
    let links = node.links.iter().filter(is_kept).map(moved).collect();
    let mut sources = node.sources.clone();
    if let Some(own) = replaced {
        let own = f64::from(own) / 1e3;
        sources.push(format!(
            "network cards of {} have {own} Gbit/s, not the {} of {}",
            node.name,
            mbits / 1e3,
            network.name
        ));
    }
    Ok((Fabric { devices: kept, links, sources, ..node.clone() }, cards))
}

/// Groups the GPUs of a node by their tray.
fn trays(node: &Fabric, gpus: &[usize]) -> Vec<Vec<usize>> {
    let mut trays: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for &gpu in gpus {
        trays.entry(node.devices[gpu].tray).or_default().push(gpu);
    }
    trays.into_values().collect()
}

/// Returns the number of links over PCIe and between sockets from a GPU to each device; `u32::MAX` to what it does not reach.
fn hops_on_host(node: &Fabric, gpu: usize) -> Vec<u32> {
    let mut hops = vec![u32::MAX; node.devices.len()];
    hops[gpu] = 0;
    let mut reached = vec![gpu];
    let mut next = 0;
    while let Some(&at) = reached.get(next) {
        next += 1;
        let is_passed = at == gpu || matches!(node.devices[at].kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
        for link in node.links.iter().filter(|link| is_passed && link.from == at && !link.medium.family.joins_gpus()) {
            if hops[link.to] == u32::MAX {
                hops[link.to] = hops[at] + 1;
                reached.push(link.to);
            }
        }
    }
    hops
}

/// For each NIC of each tray, the device of a node at which it hangs.
fn seats(node: &Fabric, gpus: &[usize], nics: u32) -> std::result::Result<Vec<usize>, String> {
    let is_host = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
    let host_of = |gpu: usize| {
        let own = |link: &&Link| link.from == gpu && is_host(node.devices[link.to].kind);
        node.links.iter().find(own).map(|link| link.to)
    };
    let (nics, trays) = (nics as usize, trays(node, gpus));
    let at = trays.iter().flat_map(|tray| (0..nics).map(move |nic| tray[nic * tray.len() / nics]));
    let seat = |gpu: usize| {
        host_of(gpu).ok_or_else(|| format!("{} hangs at no PCIe switch or socket", node.devices[gpu].name))
    };
    at.map(seat).collect()
}

impl Fabric {
    /// Adds a rail for each NIC of a box, at the position of its number. `boxes` is the number of boxes.
    fn add_rails(&mut self, network: &Network, boxes: u32) -> Result<()> {
        let medium = media::named(&network.medium)?;
        if medium.family != LinkFamily::Network {
            let message = format!("{} is no medium of networks", medium.name);
            return Err(Error::Description { origin: network.name.clone(), message });
        }
        let kind = DeviceKind::NetworkSwitch;
        let switch = |name| Device { name, kind, node: None, tray: None, chips: 1, port_mbits: None };
        self.devices.extend((0..network.nics).map(|rail| switch(format!("rail{rail}"))));
        let rails = network.nics as usize;
        if rails > 1 {
            self.devices.push(switch("spine".to_owned()));
            (0..rails).for_each(|rail| self.join(rail, rails, medium, network.ports * boxes));
        }
        Ok(())
    }

    fn add_node(&mut self, node: &Fabric, nth: u32, network: &Network, cards: &[Card]) -> Result<()> {
        let first = self.devices.len();
        let named =
            |device: &Device| Device { name: format!("n{nth}.{}", device.name), node: Some(nth), ..device.clone() };
        self.devices.extend(node.devices.iter().map(named));
        for link in &node.links {
            self.links.push(Link { from: first + link.from, to: first + link.to, ..*link });
        }
        let port = media::named(&network.medium)?;
        for (nic, card) in cards.iter().enumerate() {
            let (at, name) = (self.devices.len(), format!("n{nth}.nic{nic}"));
            let (kind, node) = (DeviceKind::Nic, Some(nth));
            self.devices.push(Device { name, kind, node, tray: None, chips: 1, port_mbits: None });
            self.join(first + card.seat, at, card.medium, card.lanes);
            self.join(at, nic % network.nics as usize, port, network.ports);
        }
        Ok(())
    }
}
