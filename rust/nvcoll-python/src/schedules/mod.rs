//! Schedules: the builder, proofs, and the registries of what can be scheduled.

pub(crate) mod builder;
pub(crate) mod registries;
pub(crate) mod schedule;
