//! A fabric from its description in TOML.
//!
//! ```toml
//! gpu = "rtx3090"
//! abilities = { peer_access = false, multicast = false, switch_reduction = false, gpu_direct = false }
//! sources = ["..."]                  `abilities` may have `forwards = true`, too
//! gpus_per_tray = 4                  of a rack, whose trays have network cards each; without it, one box
//! ram_gib = [64, 128]                the least and the most of a host: of the box, or of a tray; without it, not known
//!
//! [[machines]]                       one or more: what of it there is, under a name
//! name = "rtx3090-2-bridge"
//! title = "2 x RTX 3090 with an NVLink bridge"
//! gpus = 2                           the first two; without it, all
//! gpu = "rtx3090ti"                  instead of the model above
//! peer_access = true                 instead of what `abilities` says
//! board = true                       of a machine that is shipped, as `stock = true`: see `machines/`
//!
//! [[devices]]
//! names = "gpu[0-1]"                 one device for each name
//! kind = "gpu"
//!
//! [[links]]
//! from = "gpu0"                      both directions, for every pair of a `from` and a `to`; with `in_order = true` the
//! to = "gpu1"                        first of one with the first of the other, the second with the second
//! medium = "nvlink3-bridge"
//! lanes = 4
//! ```

use serde::Deserialize;

use super::gpus::Gpu;
use super::media::Medium;
use super::{names, Abilities, Device, DeviceKind, Fabric, Origin};
use crate::error::{Error, Result};
use crate::tables;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    gpu: &'static Gpu,
    abilities: Abilities,
    sources: Vec<String>,
    gpus_per_tray: Option<u32>,
    ram_gib: Option<[u32; 2]>,
    pub(crate) machines: Vec<MachineVariant>,
    devices: Vec<DevicesRow>,
    links: Vec<LinksRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineVariant {
    pub(crate) name: String,
    title: String,
    gpu: Option<&'static Gpu>,
    gpus: Option<u32>,
    peer_access: Option<bool>,
    /// The board or rack on which its model of GPU is sold.
    #[serde(default)]
    pub(crate) board: bool,
    /// What cards of the model do with the drivers of their maker.
    #[serde(default)]
    pub(crate) stock: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DevicesRow {
    names: String,
    kind: DeviceKind,
    #[serde(default = "one")]
    chips: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksRow {
    from: String,
    to: String,
    medium: &'static Medium,
    lanes: u32,
    #[serde(default)]
    in_order: bool,
}

fn one() -> u32 {
    1
}

impl Description {
    /// Makes one of its machines.
    ///
    /// # Errors
    /// [`Error::Description`] with what is wrong.
    pub(crate) fn build(&self, machine: &MachineVariant, origin: &str) -> Result<Fabric> {
        let peer_access = machine.peer_access.unwrap_or(self.abilities.peer_access);
        let mut fabric = Fabric {
            name: machine.name.clone(),
            title: machine.title.clone(),
            gpu: machine.gpu.unwrap_or(self.gpu),
            devices: Vec::new(),
            links: Vec::new(),
            abilities: Abilities { peer_access, ..self.abilities },
            ram_gib: self.ram_gib.map(|[a, b]| [a.min(b), a.max(b)]),
            sources: self.sources.clone(),
            origin: Origin::default(),
        };
        for devices in &self.devices {
            fabric.add_devices(devices, self.gpus_per_tray).map_err(|message| wrong(origin, message))?;
        }
        for links in &self.links {
            for (from, to) in fabric.ends(links).map_err(|message| wrong(origin, message))? {
                fabric.join(from, to, links.medium, links.lanes);
            }
        }
        fabric.check().map_err(|message| wrong(origin, message))?;
        match machine.gpus {
            Some(gpus) => Ok(Fabric { ram_gib: fabric.ram_gib, ..fabric.among(&(0..gpus).collect::<Vec<_>>())? }),
            None => Ok(fabric),
        }
    }
}

fn wrong(origin: &str, message: String) -> Error {
    Error::Description { origin: origin.to_owned(), message }
}

/// Reads a description of one machine; `origin` is what to call it in errors.
///
/// # Errors
/// [`Error::Description`] with what is wrong.
pub(crate) fn parse(text: &str, origin: &str) -> Result<Fabric> {
    let description: Description = tables::read(text, origin)?;
    match description.machines.as_slice() {
        [machine] => description.build(machine, origin),
        machines => Err(wrong(origin, format!("it describes {} machines: describe one", machines.len()))),
    }
}

impl Fabric {
    fn add_devices(&mut self, devices: &DevicesRow, gpus_per_tray: Option<u32>) -> std::result::Result<(), String> {
        if gpus_per_tray == Some(0) {
            return Err("gpus_per_tray is 0: a tray has GPUs, or there is none".to_owned());
        }
        for name in names::expand(&devices.names)? {
            if self.device(&name).is_some() {
                return Err(format!("there are two devices called {name}"));
            }
            let node = (devices.kind != DeviceKind::NetworkSwitch).then_some(0);
            let tray_of = |gpus: u32| gpus_per_tray.map(|each| gpus / each);
            let tray = (devices.kind == DeviceKind::Gpu).then(|| tray_of(self.world_size())).flatten();
            self.devices.push(Device { tray, chips: devices.chips, ..Device::new(name, devices.kind, node) });
        }
        Ok(())
    }

    fn ends(&self, links: &LinksRow) -> std::result::Result<Vec<(usize, usize)>, String> {
        if links.lanes == 0 {
            return Err(format!("the link from {} to {} has no lane", links.from, links.to));
        }
        let positions = |pattern: &str| -> std::result::Result<Vec<usize>, String> {
            let find =
                |name: String| self.device(&name).ok_or_else(|| format!("a link ends at {name}, which is no device"));
            names::expand(pattern)?.into_iter().map(find).collect()
        };
        let (from, to) = (positions(&links.from)?, positions(&links.to)?);
        if links.in_order {
            if from.len() != to.len() {
                return Err(format!("{} and {} are not equally many, as in_order asks", links.from, links.to));
            }
            return Ok(from.into_iter().zip(to).collect());
        }
        let pairs = from.iter().flat_map(|&a| to.iter().map(move |&b| (a, b)));
        // A pattern on both sides means every pair once.
        Ok(if from == to { pairs.filter(|(a, b)| a < b).collect() } else { pairs.collect() })
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.world_size() == 0 {
            return Err("it has no GPU".to_owned());
        }
        let myself = self.links.iter().find(|link| link.from == link.to);
        myself.map_or(Ok(()), |link| Err(format!("a link leads from {0} to {0}", self.devices[link.from].name)))
    }
}
