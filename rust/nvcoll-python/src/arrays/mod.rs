//! Python arrays as engine views: the unsafe corner of the binding.
//!
//! ```text
//! list of arrays ─┐                                            ┌─ packed: the array's own memory
//!                 ├─ Ranks ─ alike? writable? apart? ─▶ Operands
//! one array ──────┘  address, layout, dtype, owner             └─ strided: a copy, gathered before, scattered after
//! ```
//!
//! | file | subject |
//! |---|---|
//! | [`operands`] | the arrays of one call, checked: what the engine gets; beside it, which calls are in place |
//! | [`caller`] | for whom a call speaks |
//! | [`contract`] | which arrays a rank brings, and how many elements each holds |
//! | [`inferred`] | the dtype and the counts that arrays say |
//! | [`results`], [`fresh`] | what a call returns; a new array like another |
//! | [`ranks`] | one argument: a list of arrays, or one array whose axis 0 is the rank |
//! | [`array`] | one array, whoever made it |
//! | [`bound`] | what a plan keeps of a numpy array, to see that it has not moved |
//! | [`source`] | who made it: the next three, tried in this order |
//! | [`numpy`], [`dlpack`], [`buffer`] | the three sources |
//! | [`element`] | how DLPack and the buffer protocol spell a dtype |
//! | [`reason`] | why an array cannot take part |
//!
//! Layouts, strided copies and overlap are the engine's `strided`, which knows nothing of Python.
//!
//! **What keeps the memory alive.** Every call holds the owners of its arrays until it ends: a reference to the numpy array
//! (which also makes `ndarray.resize` refuse), the tensor behind a DLPack capsule, an exported buffer. What no array library
//! lets us prevent: another thread that writes an array during the call, or frees its memory behind its owner's back
//! (`resize(refcheck=False)`, `untyped_storage().resize_`). Plans and groups look at numpy arrays again before each run, and
//! refuse those that have moved since; of a tensor on loan they trust the lender.
//!
//! **What it costs.** A numpy array is read from its C structure, a torch tensor through its C exchange table: no attribute
//! of a numpy array is looked up. Other DLPack producers pay for two calls of Python code.
//!
//! What it does not do: memory of devices, dtypes without a row in the core's table, conversions of any kind.

mod array;
mod bound;
mod buffer;
mod caller;
mod contract;
mod dlpack;
mod element;
mod fresh;
mod inferred;
mod numpy;
mod operands;
mod ranks;
mod reason;
mod results;
mod source;

pub(crate) use caller::Caller;
pub(crate) use contract::Contract;
pub(crate) use operands::{Operands, Passed};
