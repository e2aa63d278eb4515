//! Kernels: fold k sources into m destinations.
//!
//! ```text
//! for every block of elements:
//!     acc = load(src[0]);  for s in 1..k: acc = fold(acc, load(src[s]))        in source order, in the accumulation type
//!     finish(acc)                                                              divide, round once
//!     for d in 0..m: store(dst[d], acc)
//! ```
//!
//! All sources of a block are read before a destination is written, so a destination may be exactly a source. One generic
//! routine (`fold`) is compiled once per instruction set; the compiler vectorises it, and since it neither reassociates
//! nor fuses, every instruction set gives the same bits. Only non-temporal stores and the conversions of float16 are spelled
//! out. **A dtype is one row of `element`, an op one arm of `arm`**, and a line of `select` each; `tests/reference` says the same things slowly.
//!
//! A kernel is chosen once, when a plan is bound; a call is one indirect jump. Cost: every source read once, every
//! destination written once. What it does not do: check anything, or set the floating-point environment
//! ([`FloatEnvironment`] does, once per call of a plan).

mod arm;
mod bfloat16;
mod complex;
mod copy;
mod element;
mod environment;
mod float16;
mod float8;
mod fold;
mod half;
mod isa;
mod left_fold;
mod number;
mod ordered;
mod prefetch;
mod run;
mod select;
mod stream;
mod wide;

pub use arm::Arm;
pub(crate) use copy::stream_bytes;
pub use environment::FloatEnvironment;
pub use isa::Isa;
pub use left_fold::{LeftFold, Vector};
pub use run::{Args, Kernel};
pub use select::select;
