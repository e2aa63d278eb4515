//! What a machine is made of: devices, the links between them, and what they are able to do.
//!
//! ```text
//! gpu0 ══18 x nvlink4══ nvswitch ══ gpu1          a device has a kind; a link has a medium, a number of lanes and two
//!   │                                             directions, which are two links here
//! 16 x pcie5
//!   │
//! pcie0 ── socket0 ── memory0                     what passes through memory is staged: PCIe is crossed twice
//!   │
//! nic0 ── 1 x ndr ── rail0                        another node lies beyond
//! ```
//!
//! Rates are the rates of the datasheet times an efficiency that has a name and a source ([`media`]). Ranks are the GPUs, in the
//! order in which they are described. Several switch chips over which every transfer is striped evenly are one device with
//! `chips`: no transfer depends on the chip.

pub(crate) mod describe;
pub(crate) mod gpu_names;
pub mod gpus;
pub mod media;
pub(crate) mod names;
pub mod network;
pub mod origin;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::units::{Ps, Rate};
use gpus::Gpu;
use media::Medium;
use network::Network;
use origin::Change;

/// How a machine was made; of one that was described nothing is here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Origin {
    /// One node and the network, if the machine is a cluster.
    pub cluster: Option<Arc<(Fabric, Network)>>,
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// The whole machine, of which these are some GPUs: cards hang where its GPUs do.
    pub whole: Option<Arc<Fabric>>,
}

/// A machine, or several with a network between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    /// What it is called, as `hgx-h100`.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// The model of its GPUs.
    pub gpu: &'static Gpu,
    /// All devices.
    pub devices: Vec<Device>,
    /// All links, each of one direction.
    pub links: Vec<Link>,
    /// What it can do besides moving bytes.
    pub abilities: Abilities,
    /// The least and the most GiB of RAM of a host, if they are known: of a node, or of a tray of a rack.
    pub ram_gib: Option<[u32; 2]>,
    /// Where its numbers are from.
    pub sources: Vec<String>,
    /// Of what it was made.
    pub origin: Origin,
}

/// A part of a machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Device {
    /// What it is called, as `gpu0`; in a cluster `n1.gpu0`.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The node in which it is, from 0; a network switch is in none.
    pub node: Option<u32>,
    /// The tray of a rack GPU, which has network cards of its own. `None` in a single box.
    pub tray: Option<u32>,
    /// The number of its chips.
    pub chips: u32,
    /// Of a network card, the Mbit/s of its ports together, where a text says it.
    pub port_mbits: Option<u32>,
    /// The host bridge of its socket below which it hangs, where a text names several of one socket.
    pub host_bridge: Option<u32>,
}

impl Device {
    /// Makes a device of one chip.
    pub(crate) fn new(name: String, kind: DeviceKind, node: Option<u32>) -> Self {
        Self { name, kind, node, tray: None, chips: 1, port_mbits: None, host_bridge: None }
    }
}

nvcoll_core::names! {
    /// What a device is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DeviceKind {
        /// A GPU: a rank.
        Gpu = "gpu",
        /// A switch of NVLinks.
        Nvswitch = "nvswitch",
        /// A switch of PCIe.
        PcieSwitch = "pcie_switch",
        /// A processor socket with its root complex.
        Socket = "socket",
        /// The memory of a socket, through which staged transfers go.
        Memory = "memory",
        /// A network card.
        Nic = "nic",
        /// A switch, or a rail, of a network.
        NetworkSwitch = "network_switch",
    }
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Where it begins: a position in `devices`.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// What it is made of.
    pub medium: &'static Medium,
    /// How many lanes or links of that medium it has.
    pub lanes: u32,
}

impl Link {
    /// Returns what its datasheet says.
    pub fn line_rate(&self) -> Rate {
        Rate::from_gbps(self.medium.lane_gbps * f64::from(self.lanes))
    }

    /// Returns what a long transfer reaches alone.
    pub fn rate(&self) -> Rate {
        Rate::from_gbps(self.medium.lane_gbps * f64::from(self.lanes) * self.medium.efficiency)
    }

    /// Returns how long the first byte takes.
    pub fn latency(&self) -> Ps {
        self.medium.latency_ns * 1000
    }
}

/// What a machine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abilities {
    /// GPUs reach each other's memory over PCIe; otherwise such transfers are staged in the memory of the receiver's socket.
    pub peer_access: bool,
    /// Its NVSwitch sends what one GPU writes to many.
    pub multicast: bool,
    /// Its NVSwitch reduces what one GPU reads from many.
    pub switch_reduction: bool,
    /// Network cards reach GPU memory.
    pub gpu_direct: bool,
    /// GPUs pass on what is sent to others: over NVLink or its like, and to the card of a GPU that has it.
    #[serde(default)]
    pub forwards: bool,
}

/// How well predictions of a fabric are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Predictions were compared with measurements of systems of the class.
    Validated {
        /// The number of systems.
        systems: u32,
        /// The least and the largest number of nodes of these systems.
        nodes: (u32, u32),
    },
    /// Such systems were measured, with fewer nodes.
    Extrapolated {
        /// The largest number of nodes of a measured system.
        nodes: u32,
    },
    /// Too few systems were measured, or none.
    NotValidated,
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        match *self {
            Evidence::Validated { systems, nodes } => {
                write!(f, "validated on {}", counted(systems, "system"))?;
                match nodes {
                    (_, 0..=1) => Ok(()),
                    (least, most) if least == most => write!(f, " of {}", counted(most, "node")),
                    (least, most) => write!(f, " of {least} to {most} nodes"),
                }
            }
            Evidence::Extrapolated { nodes } => write!(f, "extrapolated from {}", counted(nodes, "node")),
            Evidence::NotValidated => f.write_str("not validated"),
        }
    }
}

impl Fabric {
    /// Returns the positions of the GPUs in `devices`: rank r is the r-th.
    pub fn gpus(&self) -> Vec<usize> {
        self.of_kind(DeviceKind::Gpu).collect()
    }

    /// Returns the positions of the devices of a kind.
    pub fn of_kind(&self, kind: DeviceKind) -> impl Iterator<Item = usize> + '_ {
        self.devices.iter().enumerate().filter(move |(_, device)| device.kind == kind).map(|(position, _)| position)
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.of_kind(DeviceKind::Gpu).count() as u32
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.devices.iter().filter_map(|device| device.node).max().map_or(0, |last| last + 1)
    }

    /// Returns a part of the machine: these devices and links.
    pub(crate) fn of_parts(&self, devices: Vec<Device>, links: Vec<Link>) -> Fabric {
        Fabric {
            name: self.name.clone(),
            title: self.title.clone(),
            gpu: self.gpu,
            devices,
            links,
            abilities: self.abilities,
            ram_gib: self.ram_gib,
            sources: self.sources.clone(),
            origin: Origin::default(),
        }
    }

    /// Joins two devices in both directions.
    pub(crate) fn join(&mut self, a: usize, b: usize, medium: &'static Medium, lanes: u32) {
        self.links.push(Link { from: a, to: b, medium, lanes });
        self.links.push(Link { from: b, to: a, medium, lanes });
    }

    /// Returns the same machine with these of its GPUs only, which are the ranks in this order; of RAM at least their share is theirs.
    ///
    /// # Errors
    /// [`Error::Description`] if a rank is named that does not exist, or twice, or none is named.
    pub fn among(&self, ranks: &[u32]) -> Result<Fabric> {
        self.check_ranks(ranks)?;
        let gpus = self.gpus();
        let mut kept: Vec<usize> = ranks.iter().map(|&rank| gpus[rank as usize]).collect();
        kept.extend((0..self.devices.len()).filter(|&position| self.devices[position].kind != DeviceKind::Gpu));
        let mut place = vec![None; self.devices.len()];
        kept.iter().enumerate().for_each(|(new, &old)| place[old] = Some(new));
        let moved = |link: &Link| Some(Link { from: place[link.from]?, to: place[link.to]?, ..*link });
        let devices = kept.iter().map(|&old| self.devices[old].clone()).collect();
        let ram_gib = self.ram_gib.map(|[least, most]| [least * ranks.len() as u32 / self.world_size(), most]);
        Ok(Fabric { ram_gib, ..self.of_parts(devices, self.links.iter().filter_map(moved).collect()) })
    }

    /// Checks that some ranks exist, that none is named twice, and that there is one.
    ///
    /// # Errors
    /// [`Error::Description`] with the rank that is wrong.
    pub fn check_ranks(&self, ranks: &[u32]) -> Result<()> {
        let wrong = |message| Err(Error::Description { origin: self.name.clone(), message });
        let mut is_named = vec![false; self.world_size() as usize];
        for &rank in ranks {
            match is_named.get_mut(rank as usize) {
                None => return wrong(format!("there is no GPU {rank}: it has {}, from 0", is_named.len())),
                Some(true) => return wrong(format!("GPU {rank} is named twice: name each GPU once")),
                Some(is_named) => *is_named = true,
            }
        }
        if ranks.is_empty() {
            return wrong("no GPU is named: name at least one".to_owned());
        }
        Ok(())
    }

    /// Returns the position of a device.
    pub fn device(&self, name: &str) -> Option<usize> {
        self.devices.iter().position(|device| device.name == name)
    }
}
