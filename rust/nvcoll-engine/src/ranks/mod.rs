//! The ranks: a node whose ranks one caller drives, and teams of threads that each call for one rank.

#[cfg(all(test, not(loom)))]
mod call_counts_tests;
pub mod member;
pub(crate) mod memberships;
pub mod node;
pub(crate) mod split;
pub mod team;
