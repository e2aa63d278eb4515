//! Decisions before a program is made: the algorithm of `auto`, the work split, and the length of a tile.

pub mod choice;
pub(crate) mod components;
pub mod estimate;
mod fusible;
pub mod tuning;
mod tuning_table;
pub mod work_split;
