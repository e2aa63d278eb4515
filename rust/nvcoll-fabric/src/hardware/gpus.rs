//! Models of GPUs: one row each, in `gpus.toml`.

use std::sync::LazyLock;

use serde::{de, Deserialize, Deserializer};

pub use super::gpu_names::gpus_called;
use super::media::Medium;
use crate::error::Result;
use crate::tables;

/// A model of GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What it is called, as `h100-sxm`.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Its generation: constants of protocols are of a generation, never of a system.
    pub generation: Generation,
    /// The bandwidth of its memory in decimal GB/s.
    pub memory_gbps: f64,
    /// Its compute capability, as 90; AMD's have none.
    pub sm: Option<u32>,
    /// The medium of its NVLinks (xGMI links for AMD), if it has any.
    pub nvlink: Option<&'static Medium>,
    /// How many of those it has.
    #[serde(default)]
    pub nvlinks: u32,
    /// Whether its NVLinks need a bridge, which a machine may lack; NVLinks of other models are soldered to the board.
    #[serde(default)]
    pub needs_bridge: bool,
    /// The medium of its PCIe.
    pub pcie: &'static Medium,
    /// The lanes of that.
    pub pcie_lanes: u32,
    /// The medium of its coherent link to a processor, which it then has instead of PCIe.
    pub c2c: Option<&'static Medium>,
    /// The GPUs of a fully connected board of this model, if there is one.
    pub full_board: Option<u32>,
    /// What it computes, holds in memory and draws, where that is known.
    pub compute: Option<Compute>,
    /// The model from which it differs in memory or power alone: no text shows which of the two it is, so it is used only by name.
    pub variant_of: Option<String>,
    /// How texts name it; a variant is named as what it is a variant of.
    #[serde(default)]
    pub known_by: KnownBy,
    /// Where the numbers are from.
    pub source: String,
}

/// What a model of GPU computes, holds in memory and draws. Rates are dense TFLOP/s of matrix products, accumulated in fp32 where a
/// datasheet has both; none for a dtype that it lacks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Its streaming multiprocessors, or AMD's compute units.
    pub sms: u32,
    /// The memory of its name in GB.
    pub memory_gb: f64,
    /// The memory that programs see, in GiB.
    pub usable_gib: f64,
    /// The limit of its power in watts.
    pub watts: f64,
    /// TFLOP/s in fp16.
    pub fp16: Option<f64>,
    /// TFLOP/s in bf16.
    pub bf16: Option<f64>,
    /// TFLOP/s in fp8.
    pub fp8: Option<f64>,
    /// TFLOP/s in fp4.
    pub fp4: Option<f64>,
}

/// How texts name a model of GPU.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownBy {
    /// Vendor and device of PCI, as `10de:2330`.
    pub pci: Vec<String>,
    /// How names that `nvidia-smi -L` and `amd-smi` print begin, without the maker's.
    pub names: Vec<String>,
    /// AMD's name of its instruction set, as `gfx942`.
    pub gfx: Option<String>,
}

impl<'de> Deserialize<'de> for &'static Gpu {
    /// Reads the name of a model.
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        named(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

impl Gpu {
    /// Says whether its NVLinks are soldered to the board, so that no machine of several lacks them.
    pub(crate) fn has_soldered_nvlinks(&self) -> bool {
        self.nvlinks > 0 && !self.needs_bridge
    }

    /// Says whether it is another model but for memory or power.
    pub(crate) fn is_variant_of(&self, other: &Gpu) -> bool {
        self.variant_of.as_ref() == Some(&other.name)
    }
}

/// A generation of GPUs, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// K80.
    Kepler,
    /// P100.
    Pascal,
    /// V100, TITAN V.
    Volta,
    /// T4, RTX 20, TITAN RTX.
    Turing,
    /// A100, A10, A30, A40, RTX 30.
    Ampere,
    /// L4, L20, L40S, RTX 40.
    Ada,
    /// H100, H200, GH200, H20.
    Hopper,
    /// B200, B300, GB200, GB300, RTX 50, RTX PRO 6000.
    Blackwell,
    /// MI210, MI250X; MI50 and MI100 are counted here, because no constant of older ones is known.
    Cdna2,
    /// MI300X, MI308X, MI325X.
    Cdna3,
    /// MI350X, MI355X.
    Cdna4,
}

/// Makers, as they stand before the names of models.
const MAKERS: [&str; 4] = ["NVIDIA ", "Tesla ", "AMD ", "Instinct "];

/// Finds a model by the name that `nvidia-smi -L` or `amd-smi` prints, as `NVIDIA A100-SXM4-80GB`.
pub(crate) fn of_printed_name(printed: &str) -> Option<&'static Gpu> {
    let name = MAKERS.iter().fold(printed.trim(), |name, maker| match name.get(..maker.len()) {
        Some(start) if start.eq_ignore_ascii_case(maker) => &name[maker.len()..],
        _ => name,
    });
    let is_whole = |rest: &str| {
        !rest.starts_with(|letter: char| letter.is_alphanumeric()) && !rest.contains("PCIe") && !rest.contains("NVL")
    };
    let begins = |start: &&String| {
        name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start) && is_whole(&name[start.len()..]))
    };
    let length = |gpu: &'static Gpu| gpu.known_by.names.iter().filter(&begins).map(String::len).max();
    all().iter().filter_map(|gpu| Some((length(gpu)?, gpu))).max_by_key(|(length, _)| *length).map(|(_, gpu)| gpu)
}

/// Finds a model by vendor and device of PCI, as `10de:2330`.
pub(crate) fn of_pci(id: &str) -> Option<&'static Gpu> {
    all().iter().find(|gpu| gpu.known_by.pci.iter().any(|known| known == id))
}

/// Returns every model.
pub fn all() -> &'static [Gpu] {
    static TABLE: LazyLock<Vec<Gpu>> = LazyLock::new(|| tables::rows(include_str!("gpus.toml"), "gpu"));
    &TABLE
}

/// Finds a model by its name, or by any name that only one model has.
///
/// # Errors
/// [`crate::Error::Unknown`].
pub fn named(name: &str) -> Result<&'static Gpu> {
    match (tables::named("GPU", name, all(), |gpu| &gpu.name), gpus_called(name).as_slice()) {
        (Err(_), [one]) => Ok(one),
        (Err(crate::Error::Unknown { kind, name, .. }), several @ [_, _, ..]) => {
            let known = several.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", ");
            Err(crate::Error::Unknown { kind, name, known })
        }
        (found, _) => found,
    }
}
