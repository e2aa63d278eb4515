//! The execution of programs: by tile or by rank, on which threads, waits for peers, and the end of a failed call.

pub(crate) mod by_rank;
pub(crate) mod by_tile;
pub(crate) mod driver;
pub mod fault;
pub mod issued_calls;
pub mod pool;
pub(crate) mod progress_thread;
pub(crate) mod quiesce;
pub(crate) mod report;
pub mod wait;
pub(crate) mod wait_graph;
