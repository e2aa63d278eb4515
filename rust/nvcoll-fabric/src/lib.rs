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
//! | [`error`] | what can go wrong between a description of hardware and a time |
//! | [`units`] | rates and times as integers |
//! | [`tables`] | tables that are shipped: rows that are found by name |
//! | [`hardware`] | devices, links, media, GPU models: what a machine is made of |
//! | [`max_min`] | the shares of a link that flows get at once |
//! | [`topology`] | how devices are joined: networks, routes, flows |
//! | [`preset`] | the machines that are shipped, one TOML file each |
//! | [`import`] | machines from text: what nvidia-smi and NCCL print, descriptions in TOML |
//! | [`machines`] | machines by what people type: names, numbers of GPUs, files, clusters, changes |
//! | [`floor`] | the lower bound of the time of any schedule |
//! | [`nccl`] | what NCCL would choose and its own estimate: its cost model, per version |
//! | [`simulate`] | a schedule in virtual time: when each rank ends, which link is the bottleneck |
//! | [`predict`] | how long NCCL's collectives take: closed forms over physical constants |
#![forbid(unsafe_code)]

pub mod error;
pub mod floor;
pub mod hardware;
pub mod import;
pub mod machines;
pub mod max_min;
pub mod nccl;
pub mod predict;
pub mod preset;
pub mod simulate;
pub mod tables;
pub mod topology;
pub mod units;

pub use error::{Error, Result};
pub use hardware::Fabric;
pub use machines::machines;
