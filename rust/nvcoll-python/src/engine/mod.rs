//! What calls of the engine need beside it: its errors and the GIL, proofs, rows of `auto`, facts of this machine.

pub(crate) mod error;
pub(crate) mod facts;
pub(crate) mod gil;
mod handoff;
pub(crate) mod proofs;
pub(crate) mod rows;

pub(crate) use rows::register;
