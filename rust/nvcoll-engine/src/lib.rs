//! The engine: runs schedules that were proved, on memory that ranks share.

pub mod kernel;
pub mod sync;
