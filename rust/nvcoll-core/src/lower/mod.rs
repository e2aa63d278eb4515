//! Lowering: from the path an author assumes (every rank's memory is mapped) to the path there is. Schedule to schedule,
//! before the proof: what was proved is what runs.

mod staged;

use crate::error::Result;
use crate::schedule::{Path, Schedule};

/// Rewrites a mapped schedule for `path`.
///
/// # Errors
/// [`crate::Error::Build`] if the schedule is not a mapped one.
pub fn lower(schedule: &Schedule, path: Path) -> Result<Schedule> {
    match path {
        Path::Mapped => Ok(schedule.clone()),
        Path::Staged => staged::lower(schedule),
    }
}
