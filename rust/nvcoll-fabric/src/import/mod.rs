//! Machines from text: what programs print, and descriptions in TOML.
//!
//! **A format is one file here, with a `mod` line and a line in [`FORMATS`].** The first format that recognises a text
//! reads it; names of files decide nothing. The command line, the Python binding and the message about an unknown text
//! all go through this table.

mod amd_smi;
mod description;
mod format;
mod model;
mod nccl_dump;
mod nccl_xml;
mod nvidia_smi;
mod sockets;

pub use format::TextFormat;

use crate::error::{Error, Result};
use crate::hardware::{gpus, Fabric};
use format::Reader;

/// Every format, in the order in which texts are tried.
pub static FORMATS: &[TextFormat] = &[amd_smi::FORMAT, nvidia_smi::FORMAT, nccl_xml::FORMAT, description::FORMAT];

impl Fabric {
    /// Reads a machine from a text of any known format. `gpu` is the model of its GPUs, for texts that do not name one;
    /// `origin` is what errors call the text.
    ///
    /// # Errors
    /// [`Error::Description`] if no format recognises the text, if `gpu` is missing, contradicts the text or is not wanted,
    /// or with what is wrong in the text; [`Error::Unknown`] for a GPU that no table has.
    pub fn from_text(text: &str, gpu: Option<&str>, origin: &str) -> Result<Fabric> {
        let wrong = |message: String| Err(Error::Description { origin: origin.to_owned(), message });
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        if text.trim().is_empty() {
            return wrong("it is empty".to_owned());
        }
        let Some(format) = FORMATS.iter().find(|format| (format.is_written_so)(text)) else {
            let known: Vec<String> = FORMATS.iter().map(|one| format!("{} ({})", one.name, one.made_by)).collect();
            return wrong(format!("it is written in no format that is read: pass {}", known.join(", or ")));
        };
        match (&format.reader, gpu) {
            (Reader::NamesGpus(read), None) => read(text, origin),
            (Reader::TakesGpu(read), gpu) => read(text, gpu.map(gpus::named).transpose()?, origin),
            (Reader::NamesGpus(_), Some(_)) => wrong(format!("{} names its GPUs itself: leave `gpu` out", format.name)),
        }
    }
}

/// What editors on Windows put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';
