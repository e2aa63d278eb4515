//! Several nodes of one kind, with a network between them.
//!
//! ```text
//! n0.gpu0 ─ n0.pcie0 ─ n0.nic0 ──┐                  ┌── n1.nic0 ─ …
//! n0.gpu1 ─ n0.pcie1 ─ n0.nic1 ─┐└─ rail0 ─ spine   │              rail r joins the r-th NICs of all nodes; the spine
//!                               └── rail1 ───┘ └────┴── …          joins the rails, and blocks nothing; or other tiers
//! ```
//!
//! NICs are spread evenly over the GPUs of a node: the k-th of m hangs where GPU k g/m of g hangs, at its PCIe switch or
//! socket. A node with its own cards, as most nodes from files, keeps the cards that are nearest to these GPUs,
//! of the speed of the network first; its other cards (for storage, for management) are left out. A rack of NVLink is one
//! node, and each of its trays has the NICs of a node: the k-th of every tray is on rail k.
//! A network is described by [`Network`]: one row of `hardware/networks.toml`, or a file of the user. `switches.rs` builds
//! what stands between the nodes. Source: NVIDIA DGX SuperPOD reference architecture (rail-optimised fat tree).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hardware::media::Medium;
pub use crate::hardware::network::{network, networks, Network};
use crate::hardware::Origin;
use crate::hardware::{Device, DeviceKind, Fabric, Link};
use crate::topology::switches::Joined;

/// Chosen: more GPUs than any known cluster has; the graph takes some 500 bytes for each.
const MOST_GPUS: u32 = 1 << 17;

/// Joins `nodes` copies of the machine `whole` by a network.
///
/// # Errors
/// [`Error::Description`] if there are no nodes or too many, more than the network holds too, if the node is a cluster
/// itself, if it has nothing to which a NIC could be attached, or if it has cards of its own that are fewer than the network's;
/// and with the field of a network that is wrong.
pub fn cluster(whole: &Fabric, nodes: u32, network: &Network) -> Result<Fabric> {
    let node = whole;
    // Changes stand at the end of the name, where the grammar of machines has them.
    let changes: String = node.origin.changes.iter().map(|change| format!(" with {change}")).collect();
    let stem = node.name.strip_suffix(&changes).unwrap_or(&node.name);
    let name = format!("{stem}x{nodes}+{}{changes}", network.name);
    let wrong = |message: String| Error::Description { origin: name.clone(), message };
    network.check()?;
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
        // More cards than GPUs that take part hang at the others, too.
        let all =
            node.origin.whole.as_deref().filter(|all| {
                network.nics as usize > gpus.len() && all.devices.iter().all(|device| device.tray.is_none())
            });
        let seats = match all {
            Some(all) => seats(all, &all.gpus(), network.nics)
                .map(|seats| seats.into_iter().filter_map(|at| node.device(&all.devices[at].name)).collect::<Vec<_>>()),
            None => seats(node, &gpus, network.nics),
        };
        let seats = seats.map_err(&wrong)?;
        let card = |seat| Card { seat, medium: network.host_medium, lanes: network.host_lanes };
        (node.clone(), seats.into_iter().map(card).collect())
    };
    let trays = cards.len() as u32 / network.nics;
    let mut all = Fabric {
        title: format!("{nodes} x ({}), {}", node.title, network.title),
        devices: Vec::new(),
        links: Vec::new(),
        sources: node.sources.iter().chain([&network.source]).cloned().collect(),
        origin: Origin { cluster: Some(Arc::new((whole.clone(), network.clone()))), ..Origin::default() },
        ..node.clone()
    };
    all.abilities.gpu_direct &= network.gpu_direct;
    all.name.clone_from(&name);
    let Joined { leaves, has_joined_rails } = all.add_switches(network, nodes, trays)?;
    // What is for another rail goes over NVLink to the GPU beside it.
    all.abilities.forwards |= !has_joined_rails;
    for (nth, leaves) in (0..).zip(&leaves) {
        all.add_node(node, nth, network, cards, leaves);
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
/// unknown one, come first; the node's sources say where the network's speed replaces the speed of its cards.
fn with_own_cards(
    node: &Fabric,
    gpus: &[usize],
    network: &Network,
) -> std::result::Result<(Fabric, Vec<Card>), String> {
    let mut free: Vec<usize> = node.of_kind(DeviceKind::Nic).collect();
    let (nics, trays) = (network.nics as usize, trays(node, gpus));
    let mbits = network.medium.lane_gbps * 8e3 * f64::from(network.ports);
    let other_speed =
        |at: usize| node.devices[at].port_mbits.filter(|own| (f64::from(*own) / mbits - 1.0).abs() > SPEED_TOLERANCE);
    if free.len() < nics * trays.len() {
        let message = "take a network with equally many cards, or a node without cards";
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
        let is_host = |kind| matches!(kind, DeviceKind::PcieSwitch | DeviceKind::Socket);
        let away = node.hops_from(tray[rail * tray.len() / nics], is_host, |family| !family.joins_gpus());
        let place = |&at: &usize| (other_speed(free[at]).is_some(), away[free[at]].unwrap_or(u32::MAX), at);
        let nearest = (0..free.len()).min_by_key(place).expect("the numbers of cards and rails are equal");
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
    fn add_node(&mut self, node: &Fabric, nth: u32, network: &Network, cards: &[Card], leaves: &[usize]) {
        let first = self.devices.len();
        let named =
            |device: &Device| Device { name: format!("n{nth}.{}", device.name), node: Some(nth), ..device.clone() };
        self.devices.extend(node.devices.iter().map(named));
        for link in &node.links {
            self.links.push(Link { from: first + link.from, to: first + link.to, ..*link });
        }
        let port = network.port();
        for (nic, card) in cards.iter().enumerate() {
            let at = self.devices.len();
            self.devices.push(Device::new(format!("n{nth}.nic{nic}"), DeviceKind::Nic, Some(nth)));
            self.join(first + card.seat, at, card.medium, card.lanes);
            self.join(at, leaves[nic % leaves.len()], port, network.ports);
        }
    }
}
