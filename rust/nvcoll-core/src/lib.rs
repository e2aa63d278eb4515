//! The core of nvcoll: schedules of collective communication, written once and used three times.
//!
//! ```text
//! algorithm ─build─▶ Schedule ─lower─▶ Schedule ─verify─▶ Verified        (the engine runs Verified, the fabric costs Schedule)
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`words`], [`connected_components`] | numbers in sentences; the connected components of a graph |
//! | [`partition`], [`limits`] | chunks and tiles as element ranges; the largest worlds and schedules |
//! | [`interrupt`], [`error`] | a way for callers to stop long work; what can go wrong |
//! | [`dtype`], [`op`] | the element types and the reduce operations, one row each |
//! | [`collective`], [`counts`] | the contracts: the promises of each collective; parts as element counts |
//! | [`schedule`], `size`, [`runnable`] | step, view, queue, dependency, schedule; its size; whether one machine can run it |
//! | `cells` | the memory of a program, divided into numbered cells |
//! | `depend` | dependencies and queues, derived from the sequential program |
//! | [`builder`] | the program that an algorithm writes |
//! | [`lower`] | mapped schedules rewritten for the staged and the pushed path, and for small calls |
//! | [`algorithm`], [`compose`] | the algorithms, one file each, and their registry; collectives over groups of ranks |
//! | [`verify`] | the proof |
//! | [`cost`] | bytes and waits, counted from a schedule |
//! | [`text`] | print, parse and compare schedules |
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
