//! Machines, and how long calls take on them: predictions, NCCL's choice, simulations.

mod conditions;
pub(crate) mod door;
pub(crate) mod fabric;
mod fabric_cache;
pub(crate) mod nccl;
pub(crate) mod prediction;
pub(crate) mod settings;
mod simulate;
pub(crate) mod timeline;
