//! Lowering: rewrites a mapped schedule for another path. Authors assume that every rank's memory is mapped. Lowering runs before the
//! proof, so the engine runs exactly the schedule that was proved.

mod early;
mod staging;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::schedule::{Path, Schedule};

pub use early::stage_early;
pub use staging::Fifo;

/// Rewrites a mapped schedule for `path`, with the default number of slots.
///
/// # Errors
/// [`crate::Error::Build`] if the schedule is not mapped; [`crate::Error::TooLarge`] if the result would be too large.
pub fn lower(schedule: &Schedule, path: Path) -> Result<Schedule> {
    lower_interruptible(schedule, path, &Interrupt::never())
}

/// Rewrites a mapped schedule for `path`, as [`lower`] does, until it is interrupted.
///
/// # Errors
/// As [`lower`], and [`crate::Error::Interrupted`].
pub fn lower_interruptible(schedule: &Schedule, path: Path, interrupt: &Interrupt) -> Result<Schedule> {
    check_mapped(schedule)?;
    match path {
        Path::Mapped => Ok(schedule.clone()),
        Path::Staged | Path::Pushed => {
            staging::lower(schedule, path, Fifo { channels: 1, slots: path.slots() }, interrupt)
        }
    }
}

/// Rewrites a mapped schedule so that ranks push through FIFOs, as NCCL does.
///
/// # Errors
/// [`crate::Error::Build`] if the schedule is not mapped, or `fifo` is out of bounds or makes too many chunks;
/// [`crate::Error::TooLarge`] if the result would be too large.
pub fn push(schedule: &Schedule, fifo: Fifo) -> Result<Schedule> {
    push_interruptible(schedule, fifo, &Interrupt::never())
}

/// Rewrites a mapped schedule so that ranks push through FIFOs, as [`push`] does, until it is interrupted.
///
/// # Errors
/// As [`push`], and [`crate::Error::Interrupted`].
pub fn push_interruptible(schedule: &Schedule, fifo: Fifo, interrupt: &Interrupt) -> Result<Schedule> {
    check_mapped(schedule)?;
    staging::lower(schedule, Path::Pushed, fifo, interrupt)
}

fn check_mapped(schedule: &Schedule) -> Result<()> {
    match schedule.path {
        Path::Mapped => Ok(()),
        path => Err(Error::Build(format!("a {} schedule cannot be lowered again: pass a mapped one", path.name()))),
    }
}
