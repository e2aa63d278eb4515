//! The words of NCCL's model: algorithms, protocols, collectives, classes of paths, and rules of versions.

use nvcoll_core::collective::{Collective, ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER};
use serde::Deserialize;

use crate::error::Result;
use crate::tables;

nvcoll_core::names! {
    /// An algorithm of NCCL, in the order in which ties are broken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum NcclAlgorithm {
        /// Two trees over nodes, chains inside them.
        Tree = "Tree",
        /// Rings over all GPUs.
        Ring = "Ring",
        /// The NVSwitch reduces and multicasts.
        Nvls = "NVLS",
        /// The NVSwitch reduces and multicasts inside nodes, and a tree joins the nodes.
        NvlsTree = "NVLSTree",
        /// Parallel aggregated trees: one GPU per node.
        Pat = "PAT",
    }
}

impl NcclAlgorithm {
    /// Finds an algorithm by the name that NCCL prints, in any case.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        in_any_case("algorithm of NCCL", name, Self::ALL, Self::name)
    }
}

nvcoll_core::names! {
    /// A protocol of NCCL.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Protocol {
        /// 8 bytes at a time, half of them flags: no fence, half the bandwidth.
        Ll = "LL",
        /// 128 bytes at a time, 8 of them flags.
        Ll128 = "LL128",
        /// Large chunks and a fence.
        Simple = "Simple",
    }
}

impl Protocol {
    /// Finds a protocol by the name that NCCL prints, in any case.
    ///
    /// # Errors
    /// [`crate::Error::Unknown`].
    pub fn named(name: &str) -> Result<Self> {
        in_any_case("protocol of NCCL", name, Self::ALL, Self::name)
    }
}

/// Finds a name that may be written in any case.
fn in_any_case<T: Copy, const N: usize>(
    kind: &'static str,
    name: &str,
    all: [T; N],
    name_of: fn(T) -> &'static str,
) -> Result<T> {
    let found = all.into_iter().find(|&one| name_of(one).eq_ignore_ascii_case(name));
    found.map_or_else(|| tables::named(kind, name, all, name_of), Ok)
}

/// A collective for which NCCL has a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
}

impl Function {
    pub(super) const ALL: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::Broadcast, Self::Reduce];

    pub(super) fn collective(self) -> &'static Collective {
        match self {
            Self::AllReduce => &ALL_REDUCE,
            Self::AllGather => &ALL_GATHER,
            Self::ReduceScatter => &REDUCE_SCATTER,
            Self::Broadcast => &BROADCAST,
            Self::Reduce => &REDUCE,
        }
    }
}

/// The classes of paths between devices, as NCCL's topology search orders them, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PathClass {
    /// No path: one GPU.
    #[default]
    Local,
    /// NVLink, directly or through an NVSwitch.
    Nvl,
    /// NVLink through another GPU.
    Nvb,
    /// At most one PCIe switch.
    Pix,
    /// PCIe switches.
    Pxb,
    /// C2C to the processor, PCIe from there.
    P2c,
    /// NVLink to the GPU beside the network card.
    Pxn,
    /// Through the processor.
    Phb,
    /// Through two processors.
    Sys,
}

/// What NCCL_ALGO does: its rule, from the oldest version to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AlgoRule {
    /// It is of all_reduce. Who names neither ring nor tree gets both.
    AllReduceOnly,
    /// It is of all collectives, and the others keep their rings. Who names neither ring nor tree gets both, also beside NVLS.
    RingStaysBesideNvls,
    /// The same, unless NVLS is named on one node, or NVLSTree on several.
    RingStays,
    /// A collective that is left nothing gets rings, with every protocol.
    RingIsBackup,
    /// A collective that is left nothing gets rings, with the protocols that it is left.
    RingIsBackupByProtocol,
    /// A collective that is left nothing fails. Each may have a list of its own.
    ByFunction,
}

/// The longest chunk of a tree over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TreeChunks {
    /// An eighth of the buffers: 512 KiB.
    OfBuffers,
    /// 64 KiB from four nodes on.
    ShortFromFour,
    /// The same, but of Blackwell by cards, GPUs per node and the path to the card.
    ByCards,
}
