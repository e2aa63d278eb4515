//! What the engine asks the operating system: the clock, usable CPUs, available memory, where threads run, and whether the process was forked.

pub mod caches;
pub mod clock;
pub mod cpus;
pub mod memory;
pub(crate) mod other_process;
pub(crate) mod process;
pub(crate) mod processors;
