//! The fabric: hardware as data, and what a schedule costs on it. No byte moves here.
//!
//! ```text
//! preset | TOML | nvidia-smi topo -m | NCCL XML ─▶ Fabric ─route─▶ which links a transfer crosses
//!                                                    │
//!                  Schedule (of nvcoll-core) ────────┴─▶ time: nccl (its own formula) · simulated · floor
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`hardware`] | devices, links, media, GPU models: what a machine is made of |
//! | [`preset`] | the machines that are shipped, one TOML file each |
//! | [`route`] | which links a transfer between two GPUs crosses |
//! | [`units`] | rates and times as integers |
#![forbid(unsafe_code)]

pub mod error;
pub mod hardware;
pub mod preset;
pub mod route;
pub mod units;

pub use error::{Error, Result};
pub use hardware::Fabric;
