//! The entry points that only the CUDA driver has: contexts, mapped memory, attributes of pointers.
//!
//! Functions that do what one of the runtime does stand in the runtime's tables, behind its name. Names without a version are
//! not defined where a later version exists: `entry_point` finds that.
mod contexts;
mod mapped;
mod pointers;
