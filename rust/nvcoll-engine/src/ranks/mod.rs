//! The ranks: a node whose ranks one caller drives, and teams of threads that each call for one rank.

pub mod member;
pub(crate) mod memberships;
pub mod node;
pub(crate) mod split;
#[cfg(all(test, not(loom)))]
mod tallies_tests;
pub mod team;
