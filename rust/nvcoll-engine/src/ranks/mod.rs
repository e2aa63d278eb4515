//! Who calls: a node whose ranks one caller drives, and ranks that are threads and call for themselves.

pub mod member;
pub(crate) mod memberships;
pub mod node;
pub(crate) mod split;
#[cfg(all(test, not(loom)))]
mod tallies_tests;
pub mod team;
