//! The fabric: hardware as data, and what a schedule costs on it. No byte moves here.
//!
//! ```text
//! preset | TOML | nvidia-smi topo -m | NCCL XML ─▶ Fabric ─route─▶ which links a transfer crosses
//!                                                    │
//!                  Schedule (of nvcoll-core) ────────┴─▶ time: nccl (its own formula) · predict · simulate · floor
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`hardware`] | devices, links, media, GPU models: what a machine is made of |
//! | [`nccl`] | what NCCL would choose and its own estimate: its cost model, per version |
//! | [`preset`] | the machines that are shipped, one TOML file each |
//! | [`import`] | machines from text: what nvidia-smi and NCCL print, descriptions in TOML |
//! | [`cluster`] | several nodes and the network between them |
//! | [`network`], `switches` | the network that is shipped or described; its tiers of switches |
//! | `equal_nodes` | clusters of equal nodes: a few nodes answer for all |
//! | [`route`] | which links a transfer between two GPUs crosses |
//! | `matrix` | how pairs are joined, in the words of nvidia-smi |
//! | [`max_min`], [`rates`] | what transfers that go on at once leave each other; pairs alone, at once, and cuts |
//! | `max_flow`, `flow_network` | the largest flow between devices, and the cut that limits it |
//! | [`floor`] | the lower bound of the time of any schedule |
//! | `excerpt` | a few equal nodes that stand for a large cluster |
//! | [`ports`] | what the ports of one GPU carry, as its datasheet says |
//! | [`predict`] | how long NCCL's collectives take: closed forms over physical constants |
//! | [`simulate`] | a schedule in virtual time: when each rank ends, which link is the bottleneck |
//! | [`units`] | rates and times as integers |
#![forbid(unsafe_code)]

pub mod cluster;
mod equal_nodes;
pub mod error;
mod excerpt;
pub mod floor;
mod flow_network;
pub mod hardware;
pub mod import;
mod matrix;
mod max_flow;
pub mod max_min;
pub mod nccl;
pub mod network;
pub mod ports;
pub mod predict;
pub mod preset;
pub mod rates;
pub mod route;
pub mod simulate;
mod switches;
pub mod units;

pub use error::{Error, Result};
pub use hardware::Fabric;
