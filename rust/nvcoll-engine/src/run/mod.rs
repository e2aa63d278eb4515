//! How programs run: by tile or by rank, on which workers, until when, and how a failed call ends.

pub(crate) mod by_rank;
pub(crate) mod by_tile;
pub(crate) mod deadline;
pub(crate) mod driver;
pub mod pool;
pub(crate) mod quiesce;
