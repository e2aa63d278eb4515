//! The core of nvcoll: schedules of collective communication, written once and used three times.
//!
//! ```text
//! algorithm ─build─▶ Schedule ─lower─▶ Schedule ─verify─▶ Verified        (the engine runs Verified, the fabric costs Schedule)
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`dtype`], [`op`] | the element types and the reduce operations, one row each |
//! | [`collective`] | the contracts: the promises of each collective |
//! | [`counts`], [`partition`] | parts, chunks and tiles as element ranges |
//! | [`schedule`] | step, view, queue, dependency, schedule |
//! | [`builder`], [`compose`] | the program that an algorithm writes; collectives over groups of ranks |
//! | `cells` | the memory of a program, divided into numbered cells |
//! | `depend` | dependencies and queues, derived from the sequential program |
//! | [`algorithm`] | the algorithms, one file each, and their registry |
//! | [`limits`], `size` | the largest worlds and schedules; the size of one schedule |
//! | [`interrupt`] | a way for callers to stop long work |
//! | [`lower`] | mapped schedules rewritten for the staged and the pushed path |
//! | [`verify`] | the proof |
//! | [`cost`] | bytes and waits, counted from a schedule |
//! | [`text`], [`words`] | print, parse and compare schedules; numbers in sentences |
//! | [`connected_components`] | the connected components of a graph |
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod builder;
mod cells;
pub mod collective;
pub mod compose;
pub mod connected_components;
pub mod cost;
pub mod counts;
mod depend;
pub mod dtype;
pub mod error;
pub mod interrupt;
pub mod limits;
pub mod lower;
pub mod op;
pub mod partition;
pub mod runnable;
pub mod schedule;
mod size;
pub mod text;
pub mod verify;
pub mod words;

pub use error::{Error, Result};
