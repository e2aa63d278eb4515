//! The ranks: a node whose ranks one caller drives, teams of threads and jobs of processes that each call for one rank, and the mesh of
//! sockets between processes.

#[cfg(all(test, not(loom)))]
mod call_counts_tests;
#[cfg(target_os = "linux")]
mod guard;
mod lane;
pub mod member;
pub(crate) mod memberships;
#[cfg(target_os = "linux")]
pub mod mesh;
pub mod node;
#[cfg(target_os = "linux")]
mod process_exit;
#[cfg(target_os = "linux")]
pub mod processes;
pub(crate) mod rank_end;
#[cfg(target_os = "linux")]
pub mod recorder;
pub(crate) mod shrink;
pub(crate) mod split;
pub(crate) mod subset;
pub mod team;
mod tender;
pub(crate) mod words;
