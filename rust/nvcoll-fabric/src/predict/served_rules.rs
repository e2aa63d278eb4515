//! The rules by which model servers choose among their kernels and NCCL: the rows of `servers.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{de, Deserialize, Deserializer, Serialize};

use crate::error::Result;
use crate::tables;

nvcoll_core::names! {
    /// A model server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Server {
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// TensorRT-LLM.
        Trtllm = "trtllm",
    }
}

impl Server {
    /// Finds a server by name.
    ///
    /// # Errors
    /// [`crate::error::Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        tables::named("server", name, Self::ALL, Self::name)
    }

    /// Returns the title and the version whose rule is known.
    pub(super) fn row(self) -> &'static ServerRow {
        TABLES.server.iter().find(|row| row.name == self).expect("every server has a row")
    }
}

/// The interconnect over which ranks of one node read the memory of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerLink {
    /// NVLink between every two GPUs, or from all to a switch.
    Nvlink,
    /// PCIe, from GPU to GPU.
    Pcie,
}

/// A server whose rule is known. The table also has its source.
#[derive(Debug, Deserialize)]
pub(super) struct ServerRow {
    name: Server,
    pub(super) title: String,
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    server: Server,
    link: PeerLink,
    #[serde(default)]
    sm: Vec<u32>,
    ranks: BTreeMap<String, Vec<SizeLimit>>,
}

/// A kernel and the sizes up to which it runs.
#[derive(Debug, PartialEq)]
pub(super) struct SizeLimit {
    /// The name of the kernel, or `NCCL`.
    pub(super) kernel: String,
    /// The largest size in bytes.
    pub(super) last: u64,
}

impl<'de> Deserialize<'de> for SizeLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = || {
            let [kernel, sign, number, unit] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let bytes = number.parse::<u64>().ok()? << if unit == "MiB" { 20 } else { 10 };
            Some(Self { kernel: String::from(kernel), last: bytes - u64::from(sign == "<") })
        };
        read().ok_or_else(|| de::Error::custom(format!("`{text}` is no limit as `one_shot < 8 MiB`")))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    server: Vec<ServerRow>,
    rule: Vec<Rule>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    tables::read(include_str!("servers.toml"), "servers.toml").expect("a test reads the table that is shipped")
});

/// Returns the kernels that a server weighs, with their largest sizes, in its order.
pub(super) fn limits(server: Server, link: PeerLink, sm: u32, ranks: u32) -> &'static [SizeLimit] {
    let fits =
        |rule: &&Rule| rule.server == server && rule.link == link && (rule.sm.is_empty() || rule.sm.contains(&sm));
    let found = TABLES.rule.iter().find(fits).and_then(|rule| rule.ranks.get(&ranks.to_string()));
    found.map_or(&[], Vec::as_slice)
}
