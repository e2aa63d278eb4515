//! The links of a run: the links of the fabric with their damage, and the memory of each GPU, which is a link too.
//!
//! ```text
//! number  0 .. links             the fabric's, by position; damaged ones slower, cut ones never on a route
//!         links .. links + n     the memory of rank 0 .. n
//! ```

use std::collections::HashMap;

use super::fitted_costs::HopLatencies;
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::hardware::media::LinkFamily;
use crate::hardware::{DeviceKind, Fabric, Link};
use crate::topology::route::Router;
use crate::units::{Ps, Rate};

/// The links of a run, and how ranks reach each other over them.
pub(super) struct LinkTable {
    /// The fabric without cut links.
    pub(super) fabric: Fabric,
    router: Router,
    /// For each link of `fabric`, which has no cut links, its position in the fabric that was given.
    positions: Vec<u32>,
    /// For each link number, bytes per second.
    pub(super) rates: Vec<u64>,
    /// For each link number, its latency.
    pub(super) latencies: Vec<Ps>,
    /// What a whole route takes instead.
    pub(super) hops: Option<HopLatencies>,
    /// For each link of the fabric, whether it leads to another node.
    is_network: Vec<bool>,
    /// For each rank, the device that it is.
    pub(super) devices: Vec<u32>,
    routes: HashMap<(u32, u32), Vec<u32>>,
    /// For each device, the NVSwitches that it is linked to: (switch, link up, link down), the widest first.
    switches: HashMap<u32, Vec<Port>>,
}

/// What decides the latency of a route, whatever the settings.
#[derive(Clone, Copy, Default)]
pub(super) struct Delay {
    /// The sum of the latencies of its links.
    sum: Ps,
    /// Whether it has a link of the fabric, and whether one of them leads to another node.
    is_hop: bool,
    is_network: bool,
}

/// The two links between a GPU and an NVSwitch.
#[derive(Clone, Copy)]
pub(super) struct Port {
    pub(super) switch: u32,
    pub(super) up: u32,
    pub(super) down: u32,
}

impl LinkTable {
    /// Prepares a fabric for `world_size` ranks.
    ///
    /// # Errors
    /// [`Error::Unable`] if the fabric has fewer GPUs, or settings name what it has not.
    pub(super) fn of(fabric: &Fabric, world_size: u32, settings: &Settings) -> Result<Self> {
        let unable = |message: String| Error::Unable { fabric: fabric.name.clone(), message };
        let have = fabric.world_size();
        if have < world_size {
            return Err(unable(format!(
                "it has {have} GPUs, the schedule is of {world_size} ranks: take a larger fabric or a schedule of {have}"
            )));
        }
        let mut rates: Vec<u64> = match &settings.fitted {
            Some(fitted) => fitted.rates.iter().map(|rate| rate.0).collect(),
            None => fabric.links.iter().map(|link| link.rate().0).collect(),
        };
        for damage in &settings.damages {
            let rate = rates.get_mut(damage.link).ok_or_else(|| {
                unable(format!("there is no link {} to damage, it has {}", damage.link, fabric.links.len()))
            })?;
            let left = u128::from(*rate) * u128::from(damage.left.num) / u128::from(damage.left.den);
            *rate = left.try_into().unwrap_or(u64::MAX);
        }
        let positions: Vec<u32> = (0..fabric.links.len() as u32).filter(|&link| rates[link as usize] > 0).collect();
        let links = positions.iter().map(|&link| fabric.links[link as usize]).collect();
        let devices = fabric.gpus().into_iter().take(world_size as usize);
        let devices: Vec<u32> = devices.map(|device| device as u32).collect();
        let mut latencies: Vec<Ps> = fabric.links.iter().map(Link::latency).collect();
        rates.extend(devices.iter().map(|_| Rate::from_gbps(fabric.gpu.memory_gbps).0));
        latencies.extend(devices.iter().map(|_| 0));
        let is_network = fabric.links.iter().map(|link| link.medium.family == LinkFamily::Network).collect();
        let fabric = Fabric { links, ..fabric.clone() };
        let mut links = Self {
            router: Router::of(&fabric),
            fabric,
            positions,
            rates,
            latencies,
            hops: settings.fitted.as_ref().map(|fitted| fitted.hops),
            is_network,
            devices,
            routes: HashMap::new(),
            switches: HashMap::new(),
        };
        links.switches = links.ports();
        Ok(links)
    }

    /// Returns the number of links of the fabric, cut ones too; larger link numbers are memories.
    pub(super) fn fabric_links(&self) -> usize {
        self.rates.len() - self.devices.len()
    }

    /// Returns the number of the memory of a rank.
    pub(super) fn memory_of(&self, rank: u32) -> u32 {
        self.fabric_links() as u32 + rank
    }

    /// Returns the links that a transfer between two ranks crosses.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    pub(super) fn route(&mut self, from: u32, to: u32) -> Result<&[u32]> {
        // The lookup is done twice: a borrow that is returned from one branch only would forbid the insertion.
        if !self.routes.contains_key(&(from, to)) {
            let route = self.router.route(&self.fabric, from, to)?;
            let links = route.links.iter().map(|&link| self.positions[link]).collect();
            self.routes.insert((from, to), links);
        }
        Ok(&self.routes[&(from, to)])
    }

    /// Returns what decides how long the first byte takes between two ranks.
    ///
    /// # Errors
    /// [`Error::NoPath`].
    pub(super) fn delay(&mut self, from: u32, to: u32) -> Result<Delay> {
        let links = self.route(from, to)?.to_vec();
        Ok(self.delay_over(&links))
    }

    fn delay_over(&self, links: &[u32]) -> Delay {
        let mut of_fabric = links.iter().filter_map(|&link| self.is_network.get(link as usize)).peekable();
        Delay {
            sum: links.iter().map(|&link| self.latencies[link as usize]).sum(),
            is_hop: of_fabric.peek().is_some(),
            is_network: of_fabric.any(|&is_network| is_network),
        }
    }

    /// Returns how long the first byte takes over some links.
    pub(super) fn latency_over(&self, links: &[u32]) -> Ps {
        self.latency(self.delay_over(links))
    }

    /// Returns the latency of a delay.
    pub(super) fn latency(&self, delay: Delay) -> Ps {
        match &self.hops {
            None => delay.sum,
            Some(_) if !delay.is_hop => 0,
            Some(hops) => {
                if delay.is_network {
                    hops.network
                } else {
                    hops.inside
                }
            }
        }
    }

    /// Returns the ports of ranks at one NVSwitch that they share: the first of the first rank's that all have.
    pub(super) fn star(&self, ranks: &[u32]) -> Option<Vec<Port>> {
        let ports = |rank: u32| self.switches.get(&self.devices[rank as usize]).map_or(&[][..], Vec::as_slice);
        let at = |switch: u32| -> Option<Vec<Port>> {
            ranks.iter().map(|&rank| ports(rank).iter().find(|port| port.switch == switch).copied()).collect()
        };
        ports(*ranks.first()?).iter().find_map(|port| at(port.switch))
    }

    fn ports(&self) -> HashMap<u32, Vec<Port>> {
        let fabric = &self.fabric;
        let mut downs: HashMap<(usize, usize), u32> = HashMap::new();
        for (at, link) in fabric.links.iter().enumerate() {
            if fabric.devices[link.from].kind == DeviceKind::Nvswitch {
                downs.entry((link.to, link.from)).or_insert(self.positions[at]);
            }
        }
        let mut ports: HashMap<u32, Vec<Port>> = HashMap::new();
        for (at, link) in fabric.links.iter().enumerate() {
            if fabric.devices[link.to].kind != DeviceKind::Nvswitch {
                continue;
            }
            if let Some(&down) = downs.get(&(link.from, link.to)) {
                let port = Port { switch: link.to as u32, up: self.positions[at], down };
                let of_device = ports.entry(link.from as u32).or_default();
                if of_device.iter().all(|known| known.switch != port.switch) {
                    of_device.push(port);
                }
            }
        }
        for of_device in ports.values_mut() {
            of_device.sort_by_key(|port| std::cmp::Reverse(self.rates[port.up as usize]));
        }
        ports
    }
}
