//! How a thread waits for another one: it pauses, then gives its turns away, and at last sleeps.
//!
//! ```text
//! pause, some times ─▶ give a turn away, some times ─▶ sleep until woken
//!                       └─ late turns took too long ───▶ sleep until woken
//! ```
//!
//! On an idle processor a turn that is given away comes back within a microsecond, and a wake-up costs tens of them. Beside a
//! busy process it is the other way round. The turn comes back when the scheduler has taken the processor from that process,
//! after milliseconds, while a thread that is woken from sleep runs at once. Ranks that make small calls give a few turns
//! away in each. So each thread has a budget: late turns may take 1/32 of its time, and 8 ms at once. A thread that has spent
//! its budget only pauses and sleeps until it has some again. A peer that computes for some milliseconds now and then also
//! makes turns late; the 8 ms are for it.
//!
//! Source: the virtual scheduling form of the leaky bucket (ATM Forum, Traffic Management 4.0, 1996): one time stamp per
//! thread, no timer.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::atomic;

/// A turn that takes longer came back late. Chosen: less than the slice of a busy process, which is 3 or 4 ms on Linux, and
/// more than the step of a peer that runs meanwhile.
pub const LONGEST_TURN: Duration = Duration::from_millis(1);

/// Late turns may take this part of a thread's time: one in 32. Chosen.
const PART: u32 = 32;

/// Late turns may take this long at once. Chosen: two slices of a busy process.
const AT_ONCE: Duration = Duration::from_millis(8);

/// The number of pauses before a waiting worker yields. Measured: where ranks exceed processors, or share one for a
/// while, 100 pauses (5 us) cost small calls a tenth to a half of their time; fewer than 10 gain nothing more. Between four processes on
/// one CPU, calls of 8 bytes take 94 us, with 100 pauses 139, without a turn 152; a quota of one CPU for two or four shows no difference.
/// So affinity and quota change nothing here.
const PAUSES: u32 = 10;

/// The number of yields before a waiting worker sleeps, unless one takes long. Chosen: a wake-up costs tens of
/// microseconds, a yield less than one.
const TURNS: u32 = 100;

/// What a waiting thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It stays on its processor.
    Pause,
    /// It lets other threads run, by [`give_way`].
    GiveWay,
    /// It sleeps until it is woken.
    Sleep,
}

/// One wait: how often the thread has looked so far.
#[derive(Debug)]
pub struct Backoff {
    pauses: u32,
    turns: u32,
}

impl Backoff {
    /// Begins a wait of at most `pauses` pauses, and then `turns` turns that are given away, before the thread sleeps.
    pub fn new(pauses: u32, turns: u32) -> Self {
        Self { pauses, turns }
    }

    /// Begins the wait of a rank for another one.
    pub fn of_rank() -> Self {
        Self::new(PAUSES, TURNS)
    }

    /// Looks once more in vain: returns what to do next.
    #[inline]
    pub fn look(&mut self) -> Next {
        self.look_at(Instant::now)
    }

    /// Returns what to do next; `now` reads the clock, which is asked for turns only.
    #[inline]
    fn look_at(&mut self, now: impl FnOnce() -> Instant) -> Next {
        if self.pauses > 0 {
            self.pauses -= 1;
            return Next::Pause;
        }
        if self.turns == 0 || PAID_BY.get().is_some_and(|paid_by| paid_by > now() + PART * AT_ONCE) {
            return Next::Sleep;
        }
        self.turns -= 1;
        Next::GiveWay
    }

    /// Waits once: by a pause, by a turn, or by `sleep`.
    #[inline]
    pub fn wait(&mut self, sleep: impl FnOnce()) {
        match self.look() {
            Next::Pause => atomic::pause(),
            Next::GiveWay => give_way(),
            Next::Sleep => sleep(),
        }
    }
}

thread_local! {
    /// When this thread will have paid for its late turns, at the rate of [`PART`].
    static PAID_BY: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets another thread run, and counts the time that it took if it came back late.
#[inline]
pub fn give_way() {
    let began = Instant::now();
    atomic::give_way();
    turn_came_back(began, Instant::now());
}

#[inline]
fn turn_came_back(began: Instant, now: Instant) {
    let took = now.saturating_duration_since(began);
    if took > LONGEST_TURN {
        let from = PAID_BY.get().map_or(now, |paid_by| paid_by.max(now));
        PAID_BY.set(Some(from + PART * took));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns how often a thread pauses, gives way and sleeps in 20 looks that begin at `now`, if its turns take so long.
    fn looks(now: &mut Instant, turn: Duration) -> [u32; 3] {
        let (mut backoff, mut counts) = (Backoff::new(3, 10), [0; 3]);
        for _ in 0..20 {
            let next = backoff.look_at(|| *now);
            if next == Next::GiveWay {
                let began = std::mem::replace(now, *now + turn);
                turn_came_back(began, *now);
            }
            counts[next as usize] += 1;
        }
        counts
    }

    const SHORT: Duration = Duration::from_micros(1);
    const SLICE: Duration = Duration::from_millis(4);

    #[test]
    fn on_an_idle_processor_every_turn_is_given_away_before_the_thread_sleeps() {
        let mut now = Instant::now();
        assert_eq!(looks(&mut now, SHORT), [3, 10, 7]);
        assert_eq!(looks(&mut now, LONGEST_TURN), [3, 10, 7], "a peer's step is not a busy process");
    }

    #[test]
    fn beside_a_busy_process_late_turns_take_a_thirtieth_of_the_time() {
        let mut now = Instant::now();
        let (began, mut late) = (now, Duration::ZERO);
        while now < began + Duration::from_secs(10) {
            late += SLICE * looks(&mut now, SLICE)[1];
            now += Duration::from_micros(50);
        }
        assert!((300..340).contains(&late.as_millis()), "{late:?}");
        now += Duration::from_secs(1);
        assert_eq!(looks(&mut now, SHORT), [3, 10, 7], "the process is gone");
    }

    #[test]
    fn a_peer_that_computes_now_and_then_stops_nobody_from_giving_turns_away() {
        let mut now = Instant::now();
        assert_eq!(looks(&mut now, AT_ONCE / 10), [3, 10, 7]);
        turn_came_back(now - AT_ONCE, now);
        assert_eq!(looks(&mut now, SHORT), [3, 10, 7]);
    }

    #[test]
    fn a_late_turn_counts_if_it_ends_the_wait() {
        let mut now = Instant::now();
        let mut backoff = Backoff::new(0, 10);
        assert_eq!(backoff.look_at(|| now), Next::GiveWay);
        turn_came_back(now, now + 3 * SLICE); // what the thread waited for has happened meanwhile: it does not look again
        now += 3 * SLICE;
        assert_eq!(looks(&mut now, SHORT), [3, 0, 17]);
    }
}
