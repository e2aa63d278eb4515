//! Machines from text: what programs print, and descriptions in TOML.
//!
//! **A format is one file here, with a `mod` line and a line in [`FORMATS`].** The first format that recognises a text
//! reads it; names of files decide nothing. The command line, the Python binding and the message about an unknown text
//! all go through this table.

mod description;
mod nccl_xml;
mod nvidia_smi;

use crate::error::{Error, Result};
use crate::hardware::gpus::{self, Gpu};
use crate::hardware::media::Medium;
use crate::hardware::{media, Abilities, Device, DeviceKind, Fabric};

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
    is_written_so: fn(&str) -> bool,
    reader: Reader,
}

/// Reads a text; the last argument is what errors call it.
#[derive(Debug)]
enum Reader {
    /// The text names its GPUs.
    NamesGpus(fn(&str, &str) -> Result<Fabric>),
    /// The caller names the GPUs, because the text does not.
    NeedsGpu(fn(&str, &'static Gpu, &str) -> Result<Fabric>),
}

/// Every format, in the order in which texts are tried.
pub static FORMATS: &[TextFormat] = &[nvidia_smi::FORMAT, nccl_xml::FORMAT, description::FORMAT];

impl TextFormat {
    /// Says whether the caller has to name the model of the GPUs.
    pub fn needs_gpu(&self) -> bool {
        matches!(self.reader, Reader::NeedsGpu(_))
    }
}

impl Fabric {
    /// Reads a machine from a text of any known format. `gpu` is the model of its GPUs, for formats that do not name
    /// one; `origin` is what errors call the text.
    ///
    /// # Errors
    /// [`Error::Description`] if no format recognises the text, if `gpu` is missing or not wanted, or with what is wrong
    /// in the text; [`Error::Unknown`] for a GPU that no table has.
    pub fn from_text(text: &str, gpu: Option<&str>, origin: &str) -> Result<Fabric> {
        let wrong = |message: String| Err(Error::Description { origin: origin.to_owned(), message });
        let Some(format) = FORMATS.iter().find(|format| (format.is_written_so)(text)) else {
            let known: Vec<String> = FORMATS.iter().map(|one| format!("{} ({})", one.name, one.made_by)).collect();
            return wrong(format!("it is written in no format that is read: pass {}", known.join(", or ")));
        };
        match (&format.reader, gpu) {
            (Reader::NamesGpus(read), None) => read(text, origin),
            (Reader::NeedsGpu(read), Some(gpu)) => read(text, gpus::named(gpu)?, origin),
            (Reader::NamesGpus(_), Some(_)) => wrong(format!("{} names its GPUs itself: leave `gpu` out", format.name)),
            (Reader::NeedsGpu(_), None) => {
                wrong(format!("{} does not say which GPUs it is about: pass gpu, as --gpu h100-sxm", format.name))
            }
        }
    }
}

/// Checks that NVLinks are those of the model: where every GPU has equally few at a switch, it is another model.
fn check_switch_links(lanes: &[u32], gpu: &Gpu) -> std::result::Result<(), String> {
    match lanes {
        [first, others @ ..] if *first < gpu.nvlinks && others.iter().all(|other| other == first) => Err(format!(
            "every GPU has {first} NVLinks to the switch, a {} has {}: it is another GPU",
            gpu.title, gpu.nvlinks
        )),
        _ => Ok(()),
    }
}

/// Returns the abilities of a machine with GPUs of a model and no NVSwitch.
fn abilities_of(gpu: &Gpu) -> Abilities {
    let is_for_games = gpu.title.contains("GeForce");
    Abilities { peer_access: !is_for_games, multicast: false, switch_reduction: false, gpu_direct: !is_for_games }
}

/// GPUs with this many NVLinks have a switch that reduces and multicasts: Hopper and later. Cited: NVIDIA H100 datasheet.
const LINKS_OF_HOPPER: u32 = 18;

impl Fabric {
    fn add(&mut self, name: String, kind: DeviceKind) -> usize {
        self.devices.push(Device { name, kind, node: Some(0), tray: None, chips: 1 });
        self.devices.len() - 1
    }

    /// Adds an NVSwitch and joins GPUs to it, each by its number of NVLinks. The switch has NVLS if the GPUs are Hopper or later.
    fn add_nvswitch(&mut self, medium: &'static Medium, lanes: impl IntoIterator<Item = (usize, u32)>) {
        let switch = self.add("nvswitch".to_owned(), DeviceKind::Nvswitch);
        lanes.into_iter().for_each(|(gpu, lanes)| self.join(gpu, switch, medium, lanes));
        let has_nvls = self.gpu.nvlinks >= LINKS_OF_HOPPER;
        (self.abilities.multicast, self.abilities.switch_reduction) = (has_nvls, has_nvls);
    }

    /// Adds a socket with its memory, and joins it to all earlier sockets by the medium `between`.
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

/// The memory of a socket, which no format describes. Chosen.
const MEMORY: &str = "ddr4";
const MEMORY_CHANNELS: u32 = 6;
