//! The entry points of the CUDA runtime, version 12 and 13.
//!
//! Each does what its name says in terms of the modules beside this one, and returns the number of an error. Where the two
//! versions give one name to two signatures, the version that the GPU says decides.
mod cute;
mod devices;
mod entry;
mod graphs;
mod launches;
mod memory;
mod streams;
mod symbols;

pub(crate) use devices::device_of;
pub(crate) use memory::copy;
use memory::copy_and_wait;
