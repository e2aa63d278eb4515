//! The engine: runs schedules that were proved, on memory that ranks share. The home of unsafe.
//!
//! | module | what it holds |
//! |---|---|
//! | [`node`], `driver` | ranks driven by one caller: its programs; how it runs them |
//! | [`team`], [`member`] | ranks that are threads and call for themselves: all of a run; one of a communicator |
//! | `groups`, `memberships` | how ranks split into smaller worlds; every communicator of one rank |
//! | [`call`], `buffers` | what is called, and with what |
//! | [`choice`], [`tuning`] | which algorithm `auto` is, and by which table |
//! | [`batch`] | calls that are launched as one |
//! | [`tallies`], [`tally`] | how often a node was asked for what; one count of it |
//! | [`proofs`], [`program`], `programs` | its proof, the proof bound to dtype, op and counts, and which are kept |
//! | [`making`] | what takes long to make: one thread makes it, others wait, and nobody holds a lock meanwhile |
//! | [`sharing`], `strands`, `by_tile`, `by_rank` | how a program is shared out among workers, and the two ways to run it |
//! | `stores` | whether large calls store past the caches |
//! | [`kernel`] | fold k sources into m destinations, per dtype, op and instruction set |
//! | [`sync`], `world` | progress words, stamps, records, doorbells, abort; and where they are |
//! | `deadline`, `overlap`, `failing` | when a rank gives up, what it refuses, what it does last |
//! | [`strided`] | arrays with gaps: copies to and from packed memory, and which arrays share a byte |
//! | [`roofline`] | what two hand-written loops could reach, for benchmarks |
//! | [`cpus`], [`memory`], `forks` | what the system says: usable CPUs, blocks of memory, whether the process was forked |
//! | [`pool`], `processors`, `busy` | worker threads, where they run, and what one thread at a time may use |

pub mod batch;
mod buffers;
pub mod busy;
mod by_rank;
mod by_tile;
pub mod call;
pub mod choice;
pub mod cpus;
mod deadline;
mod driver;
pub mod error;
mod failing;
mod forks;
mod groups;
pub mod kernel;
pub mod making;
pub mod member;
mod memberships;
pub mod memory;
pub mod node;
mod overlap;
pub mod pool;
mod processors;
pub mod program;
mod programs;
pub mod proofs;
pub mod roofline;
pub mod sharing;
mod staging;
mod stores;
mod strands;
pub mod strided;
pub mod sync;
pub mod tallies;
pub mod tally;
pub mod team;
pub mod tuning;
mod world;

pub use buffers::Buffers;
pub use deadline::Deadline;
pub use error::{Error, Result};
