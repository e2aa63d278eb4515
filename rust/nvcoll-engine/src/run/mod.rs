//! The execution of programs: by tile or by rank, on which workers, and the end of a failed call.

pub(crate) mod by_rank;
pub(crate) mod by_tile;
pub(crate) mod driver;
pub mod fault;
pub mod pool;
pub(crate) mod quiesce;
pub(crate) mod report;
pub(crate) mod wait;
pub(crate) mod wait_graph;
