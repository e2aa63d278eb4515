//! The end of a wait: a deadline or the user's wish, both looked at often. A rank that waits long in a join says for whom.

use std::io::{stderr, Write};
use std::time::{Duration, Instant};

use crate::deadline::{Deadline, WaitLimit};
use crate::join::settings::JobSettings;
use crate::sync::condition::IsInterrupted;

/// The longest wait between two looks at the deadline and the user's wish. Chosen: a person does not notice it.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// The time that a rank waits for others before it prints so, as with torch's store. Chosen: jobs start within seconds.
const SILENCE: Duration = Duration::from_secs(30);

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

/// The wait of a rank for the others of its job.
pub(super) struct JoinWait<'a> {
    limit: WaitLimit<'a>,
    /// `None` after it was printed.
    said_at: Option<Instant>,
}

impl<'a> JoinWait<'a> {
    /// Begins to wait.
    pub(super) fn new(deadline: Deadline, is_interrupted: IsInterrupted<'a>) -> Self {
        Self { limit: WaitLimit::new(deadline, is_interrupted), said_at: Some(Instant::now() + SILENCE) }
    }

    /// Returns the time at which the rank gives up.
    pub(super) fn deadline(&self) -> Deadline {
        self.limit.deadline
    }

    /// Says whether to give up. After a long wait the rank tells the user once what is missing.
    pub(super) fn give_up(&mut self, settings: &JobSettings, missing: impl FnOnce() -> String) -> Option<GiveUp> {
        if let Some(words) = self.words(settings, missing) {
            // There may be nobody to tell.
            _ = writeln!(stderr(), "{words}");
        }
        give_up(&mut self.limit)
    }

    fn words(&mut self, settings: &JobSettings, missing: impl FnOnce() -> String) -> Option<String> {
        self.said_at.take_if(|at| *at <= Instant::now())?;
        let (JobSettings { rank, world_size, job, .. }, missing) = (settings, missing());
        let waited = SILENCE.as_secs();
        Some(format!("nvcoll: rank {rank} of {world_size} waits to join job {job:?}, for {waited} s now: {missing}"))
    }
}

/// Returns the time to wait before the next look.
pub(super) fn until_next_look(deadline: Deadline) -> Duration {
    let left = deadline.at().map_or(LONGEST_WAIT, |at| at.saturating_duration_since(Instant::now()));
    left.min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_says_once_for_whom_it_waits_long() {
        let settings =
            JobSettings { rank: 2, world_size: 3, job: "j".into(), token: None, deadline: Deadline::after(None) };
        let mut never = || false;
        let mut wait = JoinWait::new(settings.deadline, &mut never);
        let missing = || "rank 0 has not come".into();
        assert_eq!(wait.words(&settings, missing), None, "not yet");
        wait.said_at = Some(Instant::now());
        let words = wait.words(&settings, missing).unwrap();
        assert_eq!(words, "nvcoll: rank 2 of 3 waits to join job \"j\", for 30 s now: rank 0 has not come");
        assert_eq!(wait.words(&settings, missing), None, "once");
    }
}
