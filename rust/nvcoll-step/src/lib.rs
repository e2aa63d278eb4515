//! The step of work: what each rank computes, sends and keeps, and how long it takes on a machine.
//!
//! ```text
//! model × layout × software ─plan─▶ WorkStep ─price(machine, GPU)─▶ seconds, parts, memory, interval
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`error`] | what can go wrong between a layout and the time of a step |
//! | `tables` | tables that are shipped: rows that are found by name |
//! | [`software`] | how a framework runs a step |
//! | [`attention`] | one kernel of attention |
//! | [`recurrent`] | layers that keep a state of a fixed size for each sequence |
//! | [`model`] | transformers: their dimensions and parameters |
//! | `matrices` | the matrices of a layer on one rank |
//! | [`network`] | groups of ranks on a machine, and what collectives among them cost |
//! | [`pipeline`] | the order in which stages work on micro-batches, and when they end: virtual time |
//! | [`recipe`] | what is trained, and where its state is kept |
//! | [`layout`] | how a batch and a model are divided among GPUs |
//! | [`memory_constants`] | memory that no allocator counts, for the virtual GPU, too |
//! | [`memory`] | what a rank keeps, and whether it fits |
//! | [`parts`] | where the time of a step goes |
//! | [`step`] | the step: groups and operations, in layers or on streams; its JSON, and what is refused |
//! | [`builder`] | calls of a dry run or of a reader of traces to a step on streams |
//! | [`planner`] | model, layout and software to a step |
//! | [`options`] | layouts in the short words of the field; sweeps, and what to try next |
//! | [`constants`] | physical effects with their ranges |
//! | [`compute`] | what an operation costs on a GPU |
//! | [`pricing`] | what a step costs on a machine |
//! | [`serving`] | model servers: iterations, layouts, requests |
#![forbid(unsafe_code)]

pub mod attention;
pub mod builder;
pub mod compute;
pub mod constants;
pub mod error;
pub mod layout;
mod matrices;
pub mod memory;
pub mod memory_constants;
pub mod model;
pub mod network;
pub mod options;
pub mod parts;
pub mod pipeline;
pub mod planner;
pub mod pricing;
pub mod recipe;
pub mod recurrent;
pub mod serving;
pub mod software;
pub mod step;
mod tables;

pub use error::{Error, Result};
