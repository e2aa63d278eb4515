//! The ranks: a node whose ranks one caller drives, teams of threads that each call for one rank, and the communicators of a rank.

pub mod member;
pub(crate) mod memberships;
pub mod node;
pub(crate) mod rank_end;
pub(crate) mod shrink;
pub(crate) mod split;
pub(crate) mod subset;
pub mod team;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod words;
