//! The end of a wait: a deadline or the user's wish, both looked at often.

use std::time::{Duration, Instant};

use crate::deadline::{Deadline, WaitLimit};

/// The longest wait between two looks at the deadline and the user's wish. Chosen: a person does not notice it.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The reason to give up a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GiveUp {
    /// The deadline has passed.
    Late,
    /// The user wishes it.
    Interrupted,
}

/// Says whether to give up.
pub(super) fn give_up(limit: &mut WaitLimit<'_>) -> Option<GiveUp> {
    if limit.is_interrupted() {
        return Some(GiveUp::Interrupted);
    }
    limit.deadline.has_passed().then_some(GiveUp::Late)
}

/// Returns the time to wait before the next look.
pub(super) fn until_next_look(deadline: Deadline) -> Duration {
    let left = deadline.at().map_or(LONGEST_WAIT, |at| at.saturating_duration_since(Instant::now()));
    left.min(LONGEST_WAIT)
}
