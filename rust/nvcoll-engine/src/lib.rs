//! The engine: runs schedules that were proved, on memory that ranks share. The home of unsafe.
//!
//! Rooms, from the lowest to the highest. A room uses only rooms above it in this table (`tests/rooms.rs` checks this).
//!
//! | room | what it holds |
//! |---|---|
//! | [`system`] | usable CPUs, placement of threads, detection of forks |
//! | [`sync`] | progress words, stamps, records, doorbells, the abort word; the single-flight cache and the try-lock |
//! | [`call`] | what every rank must call alike, and its form in a record |
//! | [`error`] | what can go wrong |
//! | [`deadline`] | when a wait gives up: at its deadline, or when the user interrupts |
//! | [`kernel`] | folds of k sources into m destinations, per dtype, op and instruction set |
//! | [`memory`] | blocks, buffers, staging, strided copies, footprints, the world that ranks share |
//! | [`auto`] | the algorithm of `auto`, the work split, the length of a tile |
//! | [`program`] | proofs, bound programs, their cache, batches, counts of calls |
//! | [`run`] | execution by tile and by rank, workers, the end of a failed call, faults for tests |
//! | [`messages`] | sends and receives: streams between pairs of ranks, matching, transfers |
//! | [`ranks`] | node, team, member, splits |
//! | [`join`] | how the processes of a job find each other, and the sockets between them |
//! | [`processes`] | ranks that are processes: their memory, the guard, the exit status, the recorder |
//! | [`roofline`] | what two hand-written loops could reach, for benchmarks |

pub mod auto;
pub mod call;
pub mod deadline;
pub mod error;
pub mod join;
pub mod kernel;
pub mod memory;
pub mod messages;
pub mod processes;
pub mod program;
pub mod ranks;
pub mod roofline;
pub mod run;
pub mod sync;
pub mod system;

pub use deadline::{Deadline, UntilDeadline, WaitLimit};
pub use error::{Error, Result};
pub use memory::buffers::Buffers;
pub use memory::originals::OriginalArray;
