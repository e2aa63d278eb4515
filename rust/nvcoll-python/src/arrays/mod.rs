//! Python arrays as engine views: the unsafe corner of the binding.
//!
//! ```text
//! list of arrays ─┐                                            ┌─ packed: the array's own memory
//!                 ├─ Ranks ─ alike? writable? apart? ─▶ Operands                                    ─ program ─▶ BoundCall
//! one array ──────┘  address, layout, dtype, owner             └─ strided: a copy, gathered before, scattered after
//! ```
//!
//! All unsafe code of the binding is in this module; the compiler refuses it elsewhere. No address leaves the module.
//!
//! | file | subject |
//! |---|---|
//! | [`bound_call`] | calls that are ready to run, and groups of them: it passes addresses to the engine |
//! | [`repeated`] | calls of a communicator that look like earlier ones: it passes addresses too |
//! | [`message`] | the array of a send or a receive, which it passes to the engine |
//! | [`operands`] | the arrays of one call, checked; its in-place calls |
//! | [`contract`] | who calls, the arrays of each rank and their lengths |
//! | [`inferred`] | dtype and counts of a call, from its arrays |
//! | [`results`] | the result of a call; a new array like another |
//! | [`ranks`] | one argument: a list of arrays, or one array whose axis 0 is the rank |
//! | [`array`] | one array of any source |
//! | [`bound`] | the record of a numpy array in a plan, which shows that the array has not moved |
//! | [`source`] | the choice among the next three, in this order |
//! | [`numpy`], [`dlpack`], [`buffer`] | the three sources |
//! | [`in_flight`] | the arrays of calls in flight |
//! | [`element`] | dtypes as DLPack and the buffer protocol spell them |
//! | [`reason`] | reasons why an array is refused |
//! | [`passed`] | the arrays of a call as bytes, for calls across hosts |
//! | [`left_fold`] | the arrays of a fold on the calling thread: it passes addresses to the engine |
//! | [`symmetric`] | arrays that every rank can reach |
//! | [`roofline`] | the hand-written loop of benchmarks |
//!
//! The engine's `strided` has layouts, strided copies and overlap.
//!
//! **Lifetime.** Every call holds the owners of its arrays until it ends: a reference to the numpy array (`ndarray.resize` then
//! refuses), the tensor of a DLPack capsule, or an exported buffer. Plans and groups check before each run that numpy arrays have
//! not moved; they trust the lender of a tensor.
//!
//! **Limits.** No array library can stop another thread that writes an array during the call, or frees its memory with
//! `resize(refcheck=False)` or `untyped_storage().resize_`; or the caller, while a call that returned at once is in flight.
//!
//! **Cost.** A numpy array is read from its C structure, a torch tensor through its C exchange table; no attribute of a numpy array
//! is looked up. Other DLPack producers cost two calls of Python code.
//!
//! Not supported: device memory, dtypes without a row in the core's table, conversions.

mod array;
mod bound;
mod bound_call;
mod buffer;
mod contract;
mod dlpack;
mod element;
pub(crate) mod in_flight;
mod inferred;
mod left_fold;
mod message;
mod numpy;
mod operands;
mod passed;
mod ranks;
mod reason;
mod repeated;
mod results;
pub(crate) mod roofline;
mod source;
mod symmetric;

pub(crate) use bound_call::{BoundCall, Programs, SharedProgram, WordExchange};
pub(crate) use contract::Contract;
pub(crate) use left_fold::FoldArrays;
pub(crate) use message::{deliver, IssuedMessage, MessageArray, ReceivedEnvelope};
pub(crate) use operands::{Operands, Passed};
pub(crate) use passed::PassedArrays;
pub(crate) use ranks::{place_of_rank, places_of};
pub(crate) use repeated::{PlainCall, RepeatedCalls};
pub(crate) use symmetric::empty as empty_symmetric;
