//! What the engine asks the operating system: usable CPUs, where threads run, and whether the process was forked.

pub mod cpus;
pub(crate) mod process;
pub(crate) mod processors;
