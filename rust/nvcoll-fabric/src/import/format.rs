//! What formats are, and what their readers share: the abilities of GPUs, and NVSwitches.

use crate::error::Result;
use crate::hardware::gpus::Gpu;
use crate::hardware::media::Medium;
use crate::hardware::Origin;
use crate::hardware::{Abilities, Device, DeviceKind, Fabric};

/// A format in which a machine can be described.
#[derive(Debug)]
pub struct TextFormat {
    /// The name of the format, as `nvidia-smi topo -m`.
    pub name: &'static str,
    /// The usual end of the names of such files, as `.txt`.
    pub ending: &'static str,
    /// How a machine gets to such a text, in an error's words.
    pub made_by: &'static str,
    /// Says whether a text is written in this format.
    pub(super) is_written_so: fn(&str) -> bool,
    pub(super) reader: Reader,
}

/// Reads a text; the last argument is what errors call it.
#[derive(Debug)]
pub(super) enum Reader {
    /// The text names its GPUs in a field of their own.
    NamesGpus(fn(&str, &str) -> Result<Fabric>),
    /// The caller names the GPUs where the text does not.
    TakesGpu(fn(&str, Option<&'static Gpu>, &str) -> Result<Fabric>),
}

impl TextFormat {
    /// Says whether the caller may name the model of the GPUs, because some texts do not.
    pub fn takes_gpu(&self) -> bool {
        matches!(self.reader, Reader::TakesGpu(_))
    }

    /// Starts the machine of a text about some GPUs of a model: without devices and links.
    pub(super) fn machine(&self, gpu: &'static Gpu, gpus: usize, origin: &str) -> Fabric {
        Fabric {
            name: origin.to_owned(),
            title: format!("{gpus} x {}, as {} has it", gpu.title, self.name),
            gpu,
            devices: Vec::new(),
            links: Vec::new(),
            abilities: abilities_of(gpu),
            ram_gib: None,
            sources: vec![format!("{} of {origin}; rates of {}", self.name, gpu.source)],
            origin: Origin::default(),
        }
    }
}

/// Checks that NVLinks match the model: where every GPU has equally few at a switch, or the model's NVLinks need a
/// bridge, it is another model.
pub(super) fn check_switch_links(lanes: &[u32], gpu: &Gpu) -> std::result::Result<(), String> {
    match lanes {
        [_, ..] if gpu.needs_bridge => {
            Err(format!("NVLinks of a {} lead over a bridge, here they lead to a switch: it is another GPU", gpu.title))
        }
        [first, others @ ..] if *first < gpu.nvlinks && others.iter().all(|other| other == first) => Err(format!(
            "every GPU has {first} NVLinks to the switch, a {} has {}: it is another GPU",
            gpu.title, gpu.nvlinks
        )),
        _ => Ok(()),
    }
}

/// Returns the abilities of a machine with GPUs of a model and no NVSwitch.
fn abilities_of(gpu: &Gpu) -> Abilities {
    let is_for_games = ["GeForce", "TITAN RTX"].iter().any(|name| gpu.title.contains(name));
    Abilities {
        peer_access: !is_for_games,
        multicast: false,
        switch_reduction: false,
        gpu_direct: !is_for_games,
        forwards: false,
    }
}

/// The NVSwitch of GPUs of this compute capability and later reduces and multicasts. Cited: NCCL, `src/transport/nvls.cc`.
const FIRST_SM_OF_NVLS: u32 = 90;

impl Fabric {
    pub(super) fn add(&mut self, name: String, kind: DeviceKind) -> usize {
        self.devices.push(Device::new(name, kind, Some(0)));
        self.devices.len() - 1
    }

    /// Adds an NVSwitch and joins GPUs to it, each by its number of NVLinks. The switch has NVLS if the GPUs are Hopper or
    /// later and every GPU of the machine is joined to it.
    pub(super) fn add_nvswitch(&mut self, medium: &'static Medium, lanes: impl IntoIterator<Item = (usize, u32)>) {
        let switch = self.add("nvswitch".to_owned(), DeviceKind::Nvswitch);
        let mut joined = 0;
        for (gpu, lanes) in lanes {
            self.join(gpu, switch, medium, lanes);
            joined += 1;
        }
        let is_new = self.gpu.sm.is_some_and(|sm| sm >= FIRST_SM_OF_NVLS);
        let has_nvls = is_new && joined == self.world_size();
        if is_new && !has_nvls {
            self.sources.push("a GPU without a link to NVSwitch leaves the machine without NVLS".to_owned());
        }
        (self.abilities.multicast, self.abilities.switch_reduction) = (has_nvls, has_nvls);
    }
}
