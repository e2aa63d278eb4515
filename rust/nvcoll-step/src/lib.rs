//! The step of training: what each rank computes, sends and keeps, and how long it takes on a machine.
//!
//! ```text
//! model × layout × software ─plan─▶ TrainingStep ─price(machine, GPU)─▶ seconds, parts, memory, interval
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`error`] | what can go wrong between a layout and the time of a step |
//! | `tables` | tables that are shipped: rows that are found by name |
//! | [`model`] | transformers: their dimensions and parameters |
//! | [`software`] | how a framework runs a step |
//! | [`network`] | groups of ranks on a machine, and what collectives among them cost |
//! | [`pipeline`] | the order in which stages work on micro-batches, and when they end: virtual time |
#![forbid(unsafe_code)]

pub mod error;
pub mod model;
pub mod network;
pub mod pipeline;
pub mod software;
mod tables;

pub use error::{Error, Result};
