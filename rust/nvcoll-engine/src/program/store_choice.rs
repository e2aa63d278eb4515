//! The choice of stores in large and in staged calls, plain or streaming, by measurement during use.
//!
//! A plain store to a line that is in no cache reads the line first. A streaming (non-temporal) store does not, but it evicts the line.
//! The faster one depends on the processor, the sizes and the other programs: plain is up to 2.7 times slower on memory that is only
//! written, and up to 3 times faster on memory that was just read (measured).
//!
//! Staging is memory that a peer has read: a plain store waits until the peer's processor gives the line up. Where the two processors
//! share no cache, that takes 100 to 250 ns, and streaming is 2 to 3.5 times faster from 64 KiB on. Where they share one, plain is up to
//! twice as fast (measured). A virtual machine can go from one to the other within a minute. No table would hold.
//!
//! ```text
//! plain, once round the ring │ plain │ streaming │ …    │ the kind that was fastest, `INTERVAL` times as many calls
//!                              the last `ROUNDS` of a kind count
//! ```
//!
//! Plain stores come first and go round the whole ring of staging (`staging_ring.rs`), because streaming stores leave its lines in no
//! cache. How a streaming store finds its line matters little.
//!
//! Every rank counts alike, so all try the same kind in the same call. The clock of a call starts at the first step, since a peer that
//! comes late says nothing of stores, and stops when the peers are done too ([`TimedStores::learn`]): else the root of a broadcast
//! would choose what is fast for the root. The least time counts. The choice changes time, never bits.
//!
//! Source: ours; it is a bandit that explores first, again and again, since the arms change (Sutton and Barto, chapter 2).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::sync::atomic::pause;

/// The stores of a call that bypass the caches. Each kind includes the kinds before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streaming {
    /// None.
    #[default]
    Nothing,
    /// Those to user memory that no other step touches.
    Outputs,
    /// Also those to staging.
    Staging,
}

/// How many trials of a kind in a row count. Chosen: the first call of all meets fresh pages.
const ROUNDS: usize = 2;

/// Calls from one row of trials to the next, for each call of a kind's trials. Chosen: of two kinds, one that is 3 times slower costs
/// less than 4 %.
const INTERVAL: usize = 64;

/// The timings of the kinds of stores for one program.
#[derive(Debug)]
pub(crate) struct StoreChoice {
    /// Each with its least time in the last row of trials.
    kinds: Vec<(Streaming, Duration)>,
    /// The number of the next call since the last row of trials began.
    call: usize,
}

impl StoreChoice {
    /// Makes the choice between plain stores and these kinds.
    pub(crate) fn of(kinds: impl IntoIterator<Item = Streaming>) -> Self {
        let all = [Streaming::Nothing].into_iter().chain(kinds);
        Self { kinds: all.map(|kind| (kind, Duration::MAX)).collect(), call: 0 }
    }

    /// Returns the kind of the next call, and whether it is a trial that counts. `warm_up` calls go round the ring.
    pub(crate) fn next(&mut self, warm_up: usize) -> (Streaming, bool) {
        let call = self.call;
        self.call = (call + 1) % (INTERVAL * (warm_up + self.kinds.len() * ROUNDS));
        let Some(trial) = call.checked_sub(warm_up) else { return (Streaming::Nothing, false) };
        if let Some((kind, least)) = self.kinds.get_mut(trial / ROUNDS) {
            if trial.is_multiple_of(ROUNDS) {
                *least = Duration::MAX;
            }
            return (*kind, true);
        }
        (self.fastest(), false)
    }

    /// Returns the kind that was fastest in the last trials, plain stores before there were any.
    pub(crate) fn fastest(&self) -> Streaming {
        self.kinds.iter().min_by_key(|(_, least)| *least).map_or_else(Streaming::default, |(kind, _)| *kind)
    }

    /// Records the time of a trial.
    pub(crate) fn learn(&mut self, kind: Streaming, time: Duration) {
        let of_kind = self.kinds.iter_mut().filter(|(of, _)| *of == kind);
        of_kind.for_each(|(_, least)| *least = time.min(*least));
    }
}

/// One call that chose how it stores, from its begin until it is learned from.
#[derive(Debug)]
pub(crate) struct TimedStores<'a> {
    choice: &'a Mutex<StoreChoice>,
    pub(crate) kind: Streaming,
    /// When a trial began.
    began: Option<Instant>,
    has_moved: bool,
}

impl<'a> TimedStores<'a> {
    /// Begins a call, and chooses. `warm_up` calls go round the ring of staging.
    pub(crate) fn begin(choice: &'a Mutex<StoreChoice>, warm_up: usize) -> Self {
        let (kind, is_trial) = lock(choice).next(warm_up);
        Self { choice, kind, began: is_trial.then(Instant::now), has_moved: false }
    }

    /// Notes whether steps ran since the last look. The time until the first one is not of the stores.
    #[inline]
    pub(crate) fn note(&mut self, has_moved: bool) {
        self.has_moved |= has_moved;
        if let (false, Some(began)) = (self.has_moved, &mut self.began) {
            *began = Instant::now();
        }
    }

    /// Records the time of the call, which succeeded, if it was a trial: the time until the peers were done, as long as that is not more
    /// than twice the time of this rank.
    pub(crate) fn learn(self, are_peers_done: impl Fn() -> bool) {
        let Some(began) = self.began else { return };
        let most = 2 * began.elapsed();
        while !are_peers_done() && began.elapsed() < most {
            pause();
        }
        lock(self.choice).learn(self.kind, began.elapsed());
    }
}

fn lock(choice: &Mutex<StoreChoice>) -> MutexGuard<'_, StoreChoice> {
    choice.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Streaming; 2] = [Streaming::Outputs, Streaming::Staging];

    /// The calls round the ring, and from one row of trials of so many kinds to the next.
    const WARM_UP: usize = 6;
    const fn interval(kinds: usize) -> usize {
        INTERVAL * (WARM_UP + kinds * ROUNDS)
    }

    /// Returns the number of calls of each kind among `calls`, given the microseconds of a call of each.
    fn run(stores: &mut StoreChoice, calls: usize, times: [u64; 3]) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..calls {
            let (kind, is_trial) = stores.next(WARM_UP);
            if is_trial {
                stores.learn(kind, Duration::from_micros(times[kind as usize]));
            }
            counts[kind as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_fastest_kind_is_used_and_the_others_are_tried_seldom() {
        for fastest in 0..3 {
            let times = std::array::from_fn(|kind| if kind == fastest { 100 } else { 300 });
            let counts = run(&mut StoreChoice::of(BOTH), 10 * interval(3), times);
            let tried = |kind| 10 * (ROUNDS + if kind == 0 { WARM_UP } else { 0 });
            let others = (0..3).filter(|&kind| kind != fastest).map(tried).sum::<usize>();
            let expected = |kind| if kind == fastest { 10 * interval(3) - others } else { tried(kind) };
            assert_eq!(counts, std::array::from_fn(expected));
        }
    }

    #[test]
    fn a_change_is_noticed_at_the_next_trials() {
        let mut stores = StoreChoice::of([Streaming::Staging]);
        run(&mut stores, interval(2), [100, 0, 300]);
        assert_eq!(run(&mut stores, interval(2), [1000, 0, 400])[0], WARM_UP + ROUNDS, "plain ones have become slow");
        assert_eq!(run(&mut stores, interval(2), [100, 0, 400])[2], ROUNDS, "and fast");
    }

    #[test]
    fn plain_stores_are_tried_when_all_lines_of_the_ring_were_stored_plainly() {
        let mut stores = StoreChoice::of([Streaming::Staging]);
        run(&mut stores, interval(2), [300, 0, 100]);
        let kinds: Vec<_> = (0..WARM_UP + ROUNDS + 1).map(|_| stores.next(WARM_UP)).collect();
        assert!(kinds[..WARM_UP].iter().all(|&next| next == (Streaming::Nothing, false)));
        assert_eq!(
            kinds[WARM_UP..],
            [(Streaming::Nothing, true), (Streaming::Nothing, true), (Streaming::Staging, true)]
        );
    }

    #[test]
    fn one_slow_call_changes_nothing() {
        let mut stores = StoreChoice::of([Streaming::Staging]);
        run(&mut stores, WARM_UP + 1, [50_000, 0, 0]);
        assert_eq!(run(&mut stores, interval(2) - WARM_UP - 1, [100, 0, 300])[2], ROUNDS);
    }

    #[test]
    fn a_trial_waits_for_peers_but_not_for_ever() {
        let choice = Mutex::new(StoreChoice::of([]));
        for come_at_last in [true, false] {
            let trial = TimedStores::begin(&choice, 0);
            std::thread::sleep(Duration::from_millis(10));
            let looks = std::cell::Cell::new(0);
            trial.learn(|| looks.replace(looks.get() + 1) == 1 && come_at_last);
            assert_eq!(looks.get() == 2, come_at_last);
        }
    }
}
