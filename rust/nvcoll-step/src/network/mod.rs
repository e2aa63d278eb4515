//! Groups of ranks on a machine, and what collectives among them cost.
//!
//! ```text
//! group: size, stride ─seats─▶ shape: ranks per node × nodes, groups that share a node's cards
//!                        │
//!                        └─ranks─▶ Fabric::of_communicator ─▶ Predictor ─▶ curve over sizes ─▶ seconds
//!                                                                                             │
//!                    groups that share cards: at least their bytes / the rate of the cards ───┤ the largest counts
//!                    bandwidths that the owner measured: at least the bytes / these ──────────┘
//! ```
//!
//! A step asks for the same groups again and again, with other bytes: each group has one predictor and one curve per collective,
//! which are made when they are first asked for. A price is for a call from a framework. More bytes take less time only where
//! NCCL changes to a faster algorithm between two sizes of the curve. Source: ours; the closed forms are from
//! [`nvcoll_fabric::predict`].
//!
//! **Sharing.** Groups of one kind run at the same time: with 8 GPUs in a node and one of each in a group, eight groups leave the
//! node by its cards. Closed forms know one group. The bound adds up what all of them bring to the cards of a node.
//!
//! Collectives of unlike kinds at the same time share what [`Network::needs`] says of each: recorded steps do so, max-min fair, in virtual
//! time. Planned steps are closed forms and do not.
//!
//! **What is not here.** Which groups are near each other in a tapered network.

mod curve;
mod measured;
mod seats;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nvcoll_fabric::nccl::NcclSettings;
use nvcoll_fabric::predict::{Pattern, Predictor, Server};
use nvcoll_fabric::Fabric;

use crate::error::{Error, Result};
use curve::Curve;
use measured::Bandwidths;
pub use measured::MeasuredBandwidth;
use seats::Seats;
pub use seats::{Group, Shape};

/// The part of the line rate of a node's cards that groups reach which share them. Chosen; measured rings of one group over all
/// cards reach 0.77 to 0.98 (`network.ring` of the predictions).
const SHARED_CARDS: f64 = 0.85;

/// The bytes of a call whose time is latency. Chosen.
const FEW_BYTES: f64 = 4096.0;

/// The parts of a GPU's links that a collective takes while it runs alone.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Needs {
    /// Of the ports to other GPUs of the node.
    pub ports: f64,
    /// Of its share of the network cards.
    pub cards: f64,
}

/// The first ranks of a machine, and the cost of collectives among groups of them.
#[derive(Debug)]
pub struct Network {
    pub(crate) machine: Fabric,
    version: Option<String>,
    settings: NcclSettings,
    /// The GPUs of a node.
    domain: u32,
    /// Bytes per second of the cards of a node at line rate; none for one node.
    cards: Option<f64>,
    /// The most ranks on one host, which is a node, or a tray of a rack.
    pub(crate) ranks_of_host: u32,
    measured: Bandwidths,
    groups: Mutex<HashMap<Group, Arc<Priced>>>,
}

/// A group with what is known of its cost.
#[derive(Debug)]
struct Priced {
    seats: Seats,
    predictor: OnceLock<Result<Predictor>>,
    curves: [OnceLock<Result<Curve>>; Pattern::ALL.len()],
}

impl Network {
    /// Makes the network of the first `gpus` ranks of a machine, with a version of NCCL (the newest known if none) and its settings.
    ///
    /// # Errors
    /// [`Error::Layout`] if the machine has fewer GPUs, or none are asked for; [`Error::Gpu`] for nodes of unlike numbers of GPUs.
    pub fn of(machine: &Fabric, version: Option<&str>, settings: &NcclSettings, gpus: u32) -> Result<Self> {
        let (name, count) = (&machine.name, machine.world_size());
        if gpus == 0 || gpus > count {
            return Err(Error::layout(format!(
                "it takes {gpus} GPUs and {name} has {count}: pass a layout of 1 to {count}, or a machine of {gpus}"
            )));
        }
        let domain = domain(machine)?;
        let ranks: Vec<u32> = (0..gpus).collect();
        let host = |gpu: usize| (machine.devices[gpu].node, machine.devices[gpu].tray);
        let mut hosts: Vec<_> = machine.gpus().into_iter().take(gpus as usize).map(host).collect();
        hosts.sort_unstable();
        Ok(Self {
            machine: machine.of_communicator(&ranks)?,
            version: version.map(str::to_owned),
            settings: settings.clone(),
            domain,
            ranks_of_host: hosts.chunk_by(|one, other| one == other).map(<[_]>::len).max().unwrap_or(0) as u32,
            cards: machine.port_rates().network.map(|share| share.0 as f64 * f64::from(domain)),
            measured: Bandwidths::default(),
            groups: Mutex::default(),
        })
    }

    /// Adds bus bandwidths that the owner of the machine measured: no price is below what they say.
    ///
    /// # Errors
    /// [`Error::Step`] for a table that is none.
    pub fn with_measured(self, rows: &[MeasuredBandwidth]) -> Result<Self> {
        Ok(Self { measured: Bandwidths::of(rows)?, ..self })
    }

    /// Returns the number of GPUs of a node, or of a rack that NVLink joins.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns the number of ranks.
    pub fn gpus(&self) -> u32 {
        self.machine.world_size()
    }

    /// Returns how the groups of a kind lie on the machine.
    ///
    /// # Errors
    /// [`Error::Layout`] for a group that does not fit.
    pub fn shape(&self, group: Group) -> Result<Shape> {
        Ok(self.priced(group)?.seats.shape)
    }

    /// Returns the seconds of a collective of `nbytes`, as nccl-tests counts them, in each group of a kind at the same time. A
    /// group of one rank, and no bytes, take none.
    ///
    /// # Errors
    /// [`Error::Layout`] for a group that does not fit; [`Error::Step`] for bytes that are no number; [`Error::Fabric`] where NCCL
    /// or the closed forms do not know the collective there.
    pub fn seconds(&self, pattern: Pattern, nbytes: f64, group: Group) -> Result<f64> {
        if !nbytes.is_finite() || nbytes < 0.0 {
            return Err(Error::Step(format!("{} of {nbytes} bytes: pass a number from 0 on", pattern.name())));
        }
        let priced = self.priced(group)?;
        if group.size == 1 || nbytes == 0.0 {
            return Ok(0.0);
        }
        let shape = priced.seats.shape;
        let curve = priced.curves[pattern as usize].get_or_init(|| self.curve(&priced, pattern));
        let alone = curve.as_ref().map_err(Clone::clone)?.seconds(nbytes);
        let shared = self
            .cards
            .filter(|_| shape.siblings > 1 && shape.nodes > 1)
            .map_or(0.0, |cards| shape.leaving(pattern) * nbytes * f64::from(shape.siblings) / (SHARED_CARDS * cards));
        let measured = self.measured.seconds(pattern, nbytes, shape);
        Ok(alone.max(shared).max(measured))
    }

    /// Returns the seconds of a collective that a model server makes, as [`Network::seconds`] without bandwidths of the owner; none
    /// for a program that calls NCCL.
    ///
    /// # Errors
    /// Those of [`Network::seconds`] and [`Predictor::us_as`].
    pub fn seconds_as(&self, server: Option<Server>, pattern: Pattern, nbytes: f64, group: Group) -> Result<f64> {
        let Some(server) = server else { return self.seconds(pattern, nbytes, group) };
        let priced = self.priced(group)?;
        if group.size == 1 || nbytes == 0.0 {
            return Ok(0.0);
        }
        Ok(self.predictor(&priced)?.us_as(server, pattern, nbytes as u64)? * 1e-6)
    }

    /// Returns what a collective needs of the links of a GPU while it runs alone.
    ///
    /// It needs all of the link that limits it, but for the part of its time that a call of a few bytes takes, too: ports where the
    /// group is of one node, cards otherwise. Over nodes it needs ports as well, for the bytes that they carry.
    ///
    /// # Errors
    /// Those of [`Network::seconds_as`].
    pub fn needs(&self, server: Option<Server>, pattern: Pattern, nbytes: f64, group: Group) -> Result<Needs> {
        let (shape, seconds) = (self.shape(group)?, self.seconds_as(server, pattern, nbytes, group)?);
        if seconds <= 0.0 {
            return Ok(Needs::default());
        }
        let limiting =
            (1.0 - self.seconds_as(server, pattern, FEW_BYTES.min(nbytes), group)? / seconds).clamp(0.0, 1.0);
        if shape.nodes == 1 {
            return Ok(Needs { ports: limiting, cards: 0.0 });
        }
        let carried = if shape.local > 1 { nbytes * pattern.bus_factor(group.size) } else { 0.0 };
        let ports = (carried / (self.machine.port_rates().gpu.0 as f64 * seconds)).min(limiting);
        Ok(Needs { ports, cards: limiting })
    }

    fn priced(&self, group: Group) -> Result<Arc<Priced>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = groups.get(&group) {
            return Ok(known.clone());
        }
        let seats = Seats::of(group, self.gpus(), self.domain)?;
        let priced = Priced { seats, predictor: OnceLock::new(), curves: Default::default() };
        Ok(groups.entry(group).or_insert(Arc::new(priced)).clone())
    }

    fn curve(&self, priced: &Priced, pattern: Pattern) -> Result<Curve> {
        Curve::of(self.predictor(priced)?, pattern)
    }

    fn predictor<'p>(&self, priced: &'p Priced) -> Result<&'p Predictor> {
        let predictor = priced.predictor.get_or_init(|| {
            let part = self.machine.of_communicator(&priced.seats.ranks)?;
            Ok(Predictor::with_settings(&part, self.version.as_deref(), &self.settings)?)
        });
        predictor.as_ref().map_err(Clone::clone)
    }
}

/// Returns the number of GPUs of each node.
fn domain(machine: &Fabric) -> Result<u32> {
    let nodes: Vec<Option<u32>> = machine.gpus().into_iter().map(|gpu| machine.devices[gpu].node).collect();
    let domain = nodes.iter().take_while(|&&node| node == nodes[0]).count();
    let is_whole = |node: &[Option<u32>]| node.len() == domain && node.iter().all(|&of| of == node[0]);
    let are_alike = nodes.chunks(domain).all(is_whole) && nodes.len() / domain == machine.nodes().max(1) as usize;
    are_alike.then_some(domain as u32).ok_or_else(|| {
        let name = &machine.name;
        Error::Gpu(format!("{name}: its first node has {domain} GPUs and another has not: a step needs nodes alike"))
    })
}

#[cfg(test)]
mod tests;
