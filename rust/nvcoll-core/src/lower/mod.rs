//! Lowering: from the path an author assumes (every rank's memory is mapped) to the path there is. Schedule to schedule,
//! before the proof: what was proved is what runs.

mod pushed;
mod single_chunk;
mod staged;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::schedule::{Path, Schedule};
use crate::size::Size;

pub use pushed::Fifo;

/// Rewrites a mapped schedule for `path`, with as many slots as the path usually has.
///
/// # Errors
/// [`crate::Error::Build`] if the schedule is not a mapped one, [`crate::Error::TooLarge`] if the result would be.
pub fn lower(schedule: &Schedule, path: Path) -> Result<Schedule> {
    lower_interruptible(schedule, path, &Interrupt::never())
}

/// Rewrites a mapped schedule for `path`, as [`lower`] does, until it is interrupted.
///
/// # Errors
/// Those of [`lower`], and [`crate::Error::Interrupted`].
pub fn lower_interruptible(schedule: &Schedule, path: Path, interrupt: &Interrupt) -> Result<Schedule> {
    check_mapped(schedule)?;
    match path {
        Path::Mapped => Ok(schedule.clone()),
        Path::Staged => {
            check_size(schedule, path, 1)?;
            staged::lower(schedule, interrupt)
        }
        Path::Pushed => pushed::lower(schedule, Fifo { channels: 1, slots: path.slots() }, interrupt),
    }
}

/// Rewrites a mapped schedule so that ranks push through FIFOs, as NCCL does.
///
/// # Errors
/// [`crate::Error::Build`] if the schedule is not a mapped one, or `fifo` is out of bounds or cuts it too finely;
/// [`crate::Error::TooLarge`] if the result would be.
pub fn push(schedule: &Schedule, fifo: Fifo) -> Result<Schedule> {
    push_interruptible(schedule, fifo, &Interrupt::never())
}

/// Rewrites a mapped schedule so that ranks push through FIFOs, as [`push`] does, until it is interrupted.
///
/// # Errors
/// Those of [`push`], and [`crate::Error::Interrupted`].
pub fn push_interruptible(schedule: &Schedule, fifo: Fifo, interrupt: &Interrupt) -> Result<Schedule> {
    check_mapped(schedule)?;
    pushed::lower(schedule, fifo, interrupt)
}

fn check_mapped(schedule: &Schedule) -> Result<()> {
    match schedule.path {
        Path::Mapped => Ok(()),
        path => Err(Error::Build(format!("a {} schedule cannot be lowered again: pass a mapped one", path.name()))),
    }
}

/// Checks the least that a lowering can have: every step is rewritten one chunk after the other, for each channel.
fn check_size(schedule: &Schedule, path: Path, channels: u32) -> Result<()> {
    let mut size = Size::default();
    for step in &schedule.steps {
        let times = step.dst[0].chunks.len() as u64 * u64::from(channels);
        size.steps += times;
        size.views += times * (step.src.len() + step.dst.len()) as u64;
    }
    size.check(|| format!("{}, lowered to {} one chunk at a time,", schedule.title(), path.name()))
}
