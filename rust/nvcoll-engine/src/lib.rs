//! The engine: runs schedules that were proved, on memory that ranks share. The home of unsafe.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kernel`] | fold k sources into m destinations, per dtype, op and instruction set |
//! | [`sync`] | progress words, stamps, records, doorbells, abort |
//! | [`cpus`], [`memory`], [`pool`] | what the machine offers: usable CPUs, blocks of memory, worker threads |

pub mod cpus;
pub mod kernel;
pub mod memory;
pub mod pool;
pub mod sync;
