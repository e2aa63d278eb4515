//! Decisions before a program is made: the algorithm of `auto`, the work split, and the length of a tile.

pub mod choice;
pub(crate) mod components;
pub mod tuning;
pub mod work_split;
