//! The step of training: what each rank computes, sends and keeps, and how long it takes on a machine.
//!
//! ```text
//! model × layout × software ─plan─▶ TrainingStep ─price(machine, GPU)─▶ seconds, parts, memory, interval
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`network`] | groups of ranks on a machine, and what collectives among them cost |
//! | [`pipeline`] | the order in which stages work on micro-batches, and when they end: virtual time |
#![forbid(unsafe_code)]

pub mod network;
pub mod pipeline;
