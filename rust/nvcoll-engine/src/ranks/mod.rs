//! The ranks: a node whose ranks one caller drives, teams of threads that each call for one rank, and the mesh of sockets between
//! ranks that are processes.

#[cfg(all(test, not(loom)))]
mod call_counts_tests;
pub mod member;
pub(crate) mod memberships;
#[cfg(target_os = "linux")]
pub mod mesh;
pub mod node;
pub(crate) mod split;
pub mod team;
