//! What the engine asks the operating system: usable CPUs, available memory, where threads run, and whether the process was forked.

pub mod cpus;
#[cfg(target_os = "linux")]
pub mod memory;
pub(crate) mod process;
pub(crate) mod processors;
