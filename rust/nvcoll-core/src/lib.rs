//! The core of nvcoll: schedules of collective communication, written once and used three times.
//!
//! ```text
//! algorithm ─build─▶ Schedule ─lower─▶ Schedule ─verify─▶ Verified        (the engine runs Verified, the fabric costs Schedule)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`dtype`], [`op`] | one row per element type, one row per reduce operation |
//! | [`collective`] | the contracts: what each collective promises |
//! | [`counts`], [`partition`] | parts, chunks and tiles as element ranges |
//! | [`schedule`] | step, view, queue, dependency, schedule |
//! | [`builder`], [`compose`] | how algorithms are written |
//! | `cells` | the memory that a program names, divided and numbered |
//! | `depend` | dependencies and queues, derived from the sequential program |
//! | [`algorithm`] | the algorithms, one file each, and their registry |
//! | [`limits`], `size` | how large worlds and schedules may be, to be described and to run; how large one is |
//! | [`interrupt`] | how a caller stops long work |
//! | [`lower`] | mapped program to staged program |
//! | [`verify`] | the proof |
//! | [`cost`] | bytes and waits, counted from a schedule |
//! | [`text`], [`words`] | print, parse, diff; numbers in sentences |
//! | [`connected_components`] | groups of what pairs tie together |
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
pub mod schedule;
mod size;
pub mod text;
pub mod verify;
pub mod words;

pub use error::{Error, Result};
