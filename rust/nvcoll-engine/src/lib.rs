//! The engine: runs schedules that were proved, on memory that ranks share. The home of unsafe.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kernel`] | fold k sources into m destinations, per dtype, op and instruction set |
//! | [`sync`] | progress words, stamps, records, doorbells, abort |

pub mod kernel;
pub mod sync;
