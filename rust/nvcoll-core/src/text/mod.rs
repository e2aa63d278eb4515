//! The text form of a schedule, for people to read, write, compare and keep.
//!
//! The text has one header line, one line per step in program order, one line per rank for its leave, and one line per early queue.
//! Columns are aligned for reading. `#` begins a comment. Blank lines and the width of blanks have no meaning.
//!
//! ```text
//! schedule all_reduce ring  world_size 2  chunks_per_part 2  path mapped  aliasing out_of_place
//! r1.q0.0  output[r1].0 = input[r0].0*s0 + input[r1].0*s1  final  after r0.enter       # *s0: the contribution of rank 0
//! r0.q1.0  output[r0].0 = output[r1].0                            after r1.enter r1.q0.0
//! leave r1  after r0.q1.0
//! ```
//!
//! The grammar, with `{x}` for any number of x and `[x]` for an optional one:
//!
//! ```text
//! schedule = header {step | enter | leave}
//! header   = "schedule" COLLECTIVE ALGORITHM "world_size" n "chunks_per_part" n "path" PATH ["slots" n] "aliasing" ALIASING
//! step     = place view {"," view} "=" source {"+" source} {"final" | "at switch"} [after]
//! enter    = "enter" rank "after" rank ".q" n   the early queue of the rank: its steps come before its enter
//! leave    = "leave" rank [after]
//! after    = "after" (rank ".enter" | place ["@" lag]) {rank ".enter" | place ["@" lag]}
//! source   = view ["*s" n]                      the unfolded contribution of rank n, which premul_sum scales
//! view     = buffer "[" rank "]." n [".." n]    one chunk, or the chunks from .. up to and without
//! buffer   = "input" | "output" | "scratch" n | "staging" n
//! place    = rank ".q" n "." n                  queue, and position in the queue
//! rank     = "r" n
//! ```
//!
//! Printing and parsing again gives the same schedule. The parser checks the **shape**: every named rank, chunk and step exists,
//! and every queue is numbered without gaps. It does not check the **meaning** (races, deadlocks, wrong results); that is the task
//! of [`crate::verify`]. So the text form can express wrong schedules too. A rank without a leave line leaves when its own queues
//! are done. Limitation: the name of an algorithm is one word without `#`.
//!
//! Cost: linear in the text for printing and parsing; the diff is Myers' O(N·D). Source: ours, in the manner of compiler IRs.

mod diff;
mod parse;
mod print;
mod scan;

pub use diff::diff;
pub use parse::parse;
pub use print::print;
