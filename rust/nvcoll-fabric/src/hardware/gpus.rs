//! Models of GPUs: one row each, in `gpus.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::error::{Error, Result};

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
    pub nvlink: Option<String>,
    /// How many of those it has.
    #[serde(default)]
    pub nvlinks: u32,
    /// Whether its NVLinks need a bridge, which a machine may lack; those of other models are soldered to the board.
    #[serde(default)]
    pub needs_bridge: bool,
    /// The medium of its PCIe.
    pub pcie: String,
    /// The lanes of that.
    pub pcie_lanes: u32,
    /// Where the numbers are from.
    pub source: String,
}

impl Gpu {
    /// Says whether its NVLinks are soldered to the board, so that no machine of several lacks them.
    pub(crate) fn has_soldered_nvlinks(&self) -> bool {
        self.nvlinks > 0 && !self.needs_bridge
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
    /// V100.
    Volta,
    /// T4, RTX 20.
    Turing,
    /// A100, RTX 30.
    Ampere,
    /// L4, L40S, RTX 40.
    Ada,
    /// H100, H200, GH200, H20.
    Hopper,
    /// B200, B300, GB200, GB300, RTX 50.
    Blackwell,
    /// MI250X.
    Cdna2,
    /// MI300X.
    Cdna3,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpusFile {
    gpu: Vec<Gpu>,
}

/// Returns every model.
pub fn all() -> &'static [Gpu] {
    static TABLE: OnceLock<Vec<Gpu>> = OnceLock::new();
    TABLE.get_or_init(|| {
        toml::from_str::<GpusFile>(include_str!("gpus.toml")).expect("a test reads the table that is shipped").gpu
    })
}

/// Finds a model by name.
///
/// # Errors
/// [`Error::Unknown`].
pub fn named(name: &str) -> Result<&'static Gpu> {
    all().iter().find(|gpu| gpu.name == name).ok_or_else(|| Error::Unknown {
        kind: "GPU",
        name: name.to_owned(),
        known: all().iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}
