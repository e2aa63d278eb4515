//! The step of training: what each rank computes, sends and keeps, and how long it takes on a machine.
//!
//! ```text
//! model × layout × software ─plan─▶ TrainingStep ─price(machine, GPU)─▶ seconds, parts, memory, interval
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`attention`] | one kernel of attention |
//! | [`error`] | what can go wrong between a layout and the time of a step |
//! | `tables` | tables that are shipped: rows that are found by name |
//! | [`model`] | transformers: their dimensions and parameters |
//! | [`software`] | how a framework runs a step |
//! | [`layout`] | how a batch and a model are divided among GPUs |
//! | [`network`] | groups of ranks on a machine, and what collectives among them cost |
//! | [`pipeline`] | the order in which stages work on micro-batches, and when they end: virtual time |
//! | [`memory`] | what a rank keeps, and whether it fits |
//! | [`training_step`] | the step: groups, blocks, roles; its JSON |
//! | [`recorded`] | what ranks of a real script did on streams: the other kind of step |
//! | `recorded_check` | what is refused of it |
//! | [`planner`] | model, layout and software to a step |
//! | [`constants`] | physical effects with their ranges |
//! | [`compute`] | what an operation costs on a GPU |
//! | [`pricing`] | what a step costs on a machine |
#![forbid(unsafe_code)]

pub mod attention;
pub mod compute;
pub mod constants;
pub mod error;
pub mod layout;
pub mod memory;
pub mod model;
pub mod network;
pub mod pipeline;
pub mod planner;
pub mod pricing;
pub mod recorded;
mod recorded_check;
pub mod software;
mod tables;
pub mod training_step;

pub use error::{Error, Result};
