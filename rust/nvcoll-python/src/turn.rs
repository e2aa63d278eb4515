//! Turns: how the ranks of a process pass the interpreter on to each other without sleeping.
//!
//! Ranks that call for themselves are threads that need the GIL between two calls. Who finds it taken sleeps until it is
//! let go, and to be woken costs tens of microseconds, several times what a small call costs. So a rank that is through
//! with a call waits for a moment, awake and giving way, while another rank of this process is between two of its calls, and
//! asks for the GIL when that one is gone. Measured, 2 processors: all_gather of 4 KiB on 2 ranks takes 5 us in the place
//! of 33, all_reduce of 1 KiB on 8 ranks 35 in the place of 100.
//!
//! It is a courtesy, not a lock: nothing is guarded by it. Who has waited long enough goes ahead and takes the turn over, so
//! a rank that computes for long between its calls, or whose program has returned, costs the others a moment once.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

use nvcoll_core::interrupt::Interrupt;
use nvcoll_engine::sync::single_flight::Unlocked;
use nvcoll_engine::sync::Backoff;

use crate::gil::interrupt;

/// Pauses before giving way, and turns given away before going ahead. Measured: with 20 in all small calls are as fast as
/// with 100, and calls of a megabyte as fast as with none; 100 cost those a fifth.
const PAUSES: u32 = 10;
const TURNS: u32 = 10;

/// Whose turn it is in this process: that has one GIL, however many nodes it has.
static TURN: Turn = Turn(AtomicUsize::new(NOBODY));

const NOBODY: usize = 0;

thread_local! {
    /// Its address is the number of the thread.
    static OWN: Cell<u8> = const { Cell::new(0) };
}

/// Does a rank's call without the GIL, and waits for its turn before it asks for the GIL again.
#[inline]
pub(crate) fn in_turn<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    let me = OWN.with(|own| own.as_ptr() as usize);
    py.detach(|| {
        TURN.pass(me);
        let outcome = call();
        TURN.take(me);
        outcome
    })
}

/// Does what the engine does without a lock as a rank's call: see [`in_turn`].
pub(crate) struct InTurn<'py>(pub(crate) Python<'py>);

impl Unlocked for InTurn<'_> {
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_turn(self.0, work)
    }

    fn interrupt(&self) -> Interrupt {
        interrupt()
    }
}

struct Turn(AtomicUsize);

// Relaxed throughout: the word carries nothing, and the GIL orders what ranks do between their calls.
impl Turn {
    /// Lets others have the turn, if nobody has taken it over already.
    fn pass(&self, me: usize) {
        let _ = self.0.compare_exchange(me, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes the turn when nobody has it, or after waiting for a moment.
    fn take(&self, me: usize) {
        let (mut backoff, mut has_waited) = (Backoff::new(PAUSES, TURNS), false);
        while !has_waited {
            if self.0.compare_exchange(NOBODY, me, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
            backoff.wait(|| has_waited = true);
        }
        self.0.store(me, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(turn: &Turn) -> usize {
        turn.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_turn_is_taken_when_it_is_free_and_taken_over_from_one_that_keeps_it() {
        let turn = Turn(AtomicUsize::new(NOBODY));
        turn.take(1);
        assert_eq!(holder(&turn), 1);
        turn.take(2);
        assert_eq!(holder(&turn), 2);
        turn.pass(1);
        assert_eq!(holder(&turn), 2, "who was overtaken has nothing to pass");
        turn.pass(2);
        assert_eq!(holder(&turn), NOBODY);
    }
}
