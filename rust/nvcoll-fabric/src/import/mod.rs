//! Fabrics from what real machines print. **A format is one file and one line here.**

mod nccl_xml;
mod nvidia_smi;

use crate::error::Result;
use crate::hardware::gpus::Gpu;
use crate::hardware::{media, Abilities, Device, DeviceKind, Fabric};

/// What GPUs of a model can do, and their switch, as the maker sells them.
fn abilities_of(gpu: &Gpu) -> Abilities {
    let is_for_games = gpu.title.contains("GeForce");
    let switch_folds = gpu.nvlinks >= LINKS_OF_HOPPER;
    Abilities { peer_access: !is_for_games, multicast: switch_folds, switch_folds, gpu_direct: !is_for_games }
}

/// From Hopper on GPUs have so many NVLinks, and their switches fold and multicast. Cited: NVIDIA H100 datasheet.
const LINKS_OF_HOPPER: u32 = 18;

impl Fabric {
    fn add(&mut self, name: String, kind: DeviceKind) -> usize {
        self.devices.push(Device { name, kind, node: Some(0), tray: None, chips: 1 });
        self.devices.len() - 1
    }

    /// Adds a socket with its memory, joined to the sockets there are by this medium.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`] for a medium that no table has.
    fn add_socket(&mut self, between: &str) -> Result<usize> {
        let others: Vec<usize> = self.of_kind(DeviceKind::Socket).collect();
        let socket = self.add(format!("socket{}", others.len()), DeviceKind::Socket);
        let memory = self.add(format!("memory{}", others.len()), DeviceKind::Memory);
        self.join(socket, memory, media::named(MEMORY)?, MEMORY_CHANNELS);
        let between = media::named(between)?;
        others.iter().for_each(|&other| self.join(other, socket, between, 1));
        Ok(socket)
    }
}

/// Memory of a socket, of which no format says anything. Chosen.
const MEMORY: &str = "ddr4";
const MEMORY_CHANNELS: u32 = 6;
