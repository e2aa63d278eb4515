//! What links are made of: one row per medium, in `media.toml`.

use std::sync::{LazyLock, Mutex, PoisonError};

use serde::{de, Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Result;
use crate::tables;

/// A kind of link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// What it is called, as `nvlink4`.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Of what family it is.
    pub family: LinkFamily,
    /// Decimal GB/s of one lane (PCIe) or link (NVLink, network port) in one direction, as the datasheet says.
    pub lane_gbps: f64,
    /// What part of that a long transfer reaches.
    pub efficiency: f64,
    /// Nanoseconds until the first byte is across.
    pub latency_ns: u64,
    /// The longest chunk of NVLS in KiB that the network's plugin sets for NCCL; none if it leaves NCCL's own.
    #[serde(default)]
    pub nvls_chunk_kib: Option<u64>,
    /// Where the numbers are from, and whether they are cited or fitted.
    pub source: String,
}

impl<'de> Deserialize<'de> for &'static Medium {
    /// Reads the name of a medium.
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        named(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// Writes the name of a medium that is shipped.
pub(super) fn by_name<S: Serializer>(medium: &&'static Medium, to: S) -> std::result::Result<S::Ok, S::Error> {
    medium.name.serialize(to)
}

nvcoll_core::names! {
    /// Of what family a medium is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum LinkFamily {
        /// NVLink, to a switch or to another GPU.
        Nvlink = "nvlink",
        /// AMD's Infinity Fabric between GPUs.
        Xgmi = "xgmi",
        /// PCI Express.
        Pcie = "pcie",
        /// Coherent links between a processor and a GPU.
        C2c = "c2c",
        /// Between sockets.
        Socket = "socket",
        /// To memory.
        Memory = "memory",
        /// Between nodes.
        Network = "network",
    }
}

impl LinkFamily {
    /// Says whether it is for GPUs only: to each other, or to their switch.
    pub const fn joins_gpus(self) -> bool {
        matches!(self, LinkFamily::Nvlink | LinkFamily::Xgmi)
    }
}

/// Returns every medium.
pub fn all() -> &'static [Medium] {
    static TABLE: LazyLock<Vec<Medium>> = LazyLock::new(|| tables::rows(include_str!("media.toml"), "medium"));
    &TABLE
}

/// Finds a medium by name.
///
/// # Errors
/// [`crate::Error::Unknown`].
pub fn named(name: &str) -> Result<&'static Medium> {
    tables::named("medium", name, all(), |medium| &medium.name)
}

/// Returns a medium of networks with another rate in Gbit/s, efficiency or latency: the same one for the same numbers, so that
/// links of equal media are equal.
pub(crate) fn altered(
    base: &'static Medium,
    gbit: Option<f64>,
    efficiency: Option<f64>,
    latency_ns: Option<u64>,
) -> &'static Medium {
    let mut wanted = Medium {
        lane_gbps: gbit.map_or(base.lane_gbps, |gbit| gbit / 8.0),
        efficiency: efficiency.unwrap_or(base.efficiency),
        latency_ns: latency_ns.unwrap_or(base.latency_ns),
        ..base.clone()
    };
    if let Some(gbit) = gbit.filter(|_| wanted.lane_gbps != base.lane_gbps) {
        let first = |text: &str, by: char| text.split(by).next().unwrap_or_default().to_owned();
        wanted.name = format!("{}-{gbit}", first(&base.name, '-'));
        wanted.title = format!("{} {gbit} Gbit/s", first(&base.title, ' '));
    }
    kept(wanted)
}

/// Returns the medium with these fields: the same one for the same fields. Each stays in memory.
pub(crate) fn kept(wanted: Medium) -> &'static Medium {
    static MADE: Mutex<Vec<&'static Medium>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all().iter().chain(made.iter().copied()).find(|medium| **medium == wanted);
    known.unwrap_or_else(|| {
        let medium: &'static Medium = Box::leak(Box::new(wanted));
        made.push(medium);
        medium
    })
}
