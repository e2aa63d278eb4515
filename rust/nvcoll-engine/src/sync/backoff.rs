//! How a thread waits for another one: it pauses, then gives its turns away, and at last sleeps.
//!
//! ```text
//! pause, some times ─▶ give a turn away, some times ─▶ sleep until woken
//!                       └─ a turn came back late ──────▶ sleep until woken
//! ```
//!
//! On an idle processor a turn that is given away comes back within a microsecond, and a wake-up costs tens of them. Beside a
//! busy process it is the other way round: the turn comes back when the scheduler has taken the processor from that
//! process, after milliseconds, while a thread that is woken from sleep runs at once. So the first turn that comes back
//! later than a wake-up would have is the last one.

use std::time::{Duration, Instant};

use super::atomic::{give_way, pause};

/// A turn that takes longer is the last that is given away. Chosen: about what a wake-up costs.
pub const LONGEST_TURN: Duration = Duration::from_micros(50);

/// The number of pauses before a waiting worker yields. Measured: where ranks exceed processors, or share one for a
/// while, 100 pauses (5 us) cost small calls a tenth to a half of their time; fewer than 10 gain nothing more.
const PAUSES: u32 = 10;

/// The number of yields before a waiting worker sleeps, unless one takes long. Chosen: a wake-up costs tens of
/// microseconds, a yield less than one.
const TURNS: u32 = 100;

/// What a waiting thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It stays on its processor.
    Pause,
    /// It lets other threads run.
    GiveWay,
    /// It sleeps until it is woken.
    Sleep,
}

/// One wait: how often the thread has looked so far.
#[derive(Debug)]
pub struct Backoff {
    pauses: u32,
    turns: u32,
    /// When the last turn was given away.
    turn_began: Option<Instant>,
}

impl Backoff {
    /// Begins a wait of at most `pauses` pauses, and then `turns` turns that are given away, before the thread sleeps.
    pub fn new(pauses: u32, turns: u32) -> Self {
        Self { pauses, turns, turn_began: None }
    }

    /// Begins the wait of a rank for another one.
    pub fn of_rank() -> Self {
        Self::new(PAUSES, TURNS)
    }

    /// Says what to do next; `now` reads the clock, which is asked for turns only.
    #[inline]
    pub fn next(&mut self, now: impl FnOnce() -> Instant) -> Next {
        if self.pauses > 0 {
            self.pauses -= 1;
            return Next::Pause;
        }
        if self.turns == 0 {
            return Next::Sleep;
        }
        let now = now();
        let is_late = |began: Instant| now.saturating_duration_since(began) > LONGEST_TURN;
        if self.turn_began.replace(now).is_some_and(is_late) {
            self.turns = 0;
            return Next::Sleep;
        }
        self.turns -= 1;
        Next::GiveWay
    }

    /// Waits once: by a pause, by a turn, or by `sleep`.
    #[inline]
    pub fn wait(&mut self, sleep: impl FnOnce()) {
        match self.next(Instant::now) {
            Next::Pause => pause(),
            Next::GiveWay => give_way(),
            Next::Sleep => sleep(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns how often a thread pauses, gives way and sleeps in 20 looks, if its turns take so many microseconds.
    fn spent(turns_us: impl Fn(u32) -> u64) -> [u32; 3] {
        let (mut backoff, mut now, mut counts) = (Backoff::new(3, 10), Instant::now(), [0; 3]);
        for _ in 0..20 {
            let next = backoff.next(|| now);
            if next == Next::GiveWay {
                now += Duration::from_micros(turns_us(counts[1]));
            }
            counts[next as usize] += 1;
        }
        counts
    }

    #[test]
    fn on_an_idle_processor_every_turn_is_given_away_before_the_thread_sleeps() {
        assert_eq!(spent(|_| 1), [3, 10, 7]);
        assert_eq!(spent(|_| 50), [3, 10, 7], "as long as a wake-up is not later");
    }

    #[test]
    fn beside_a_busy_process_the_first_late_turn_is_the_last() {
        assert_eq!(spent(|_| 4000), [3, 1, 16]);
        assert_eq!(spent(|turn| if turn == 4 { 51 } else { 1 }), [3, 5, 12], "the fifth comes back late");
    }
}
