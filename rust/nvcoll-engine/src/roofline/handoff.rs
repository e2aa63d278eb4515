//! The handoff between two processors: the time until a store of one is seen by the other.
//!
//! ```text
//! thread a    store 1 ─▶        sees 2, stores 3 ─▶                  a handoff is half of a round trip
//! thread b            sees 1, stores 2 ─▶        sees 3, …
//! ```
//!
//! Ranks that wait for each other pay it in every wait, and where they write lines that a peer has read. Processors of one core complex
//! take 20 to 60 ns, others 100 to 250 ns (measured). A virtual machine moves between the two, so benchmarks print it beside their times.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::wait_until;
use crate::system::processors;

/// A line, and the one that is fetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// Round trips of a measurement, and those before the clock starts. Chosen: a fraction of a millisecond.
const TRIPS: u32 = 2000;
const WARM: u32 = 200;

/// Measurements. The least counts, because other programs only add time. Chosen.
const MEASUREMENTS: usize = 5;

/// Returns the time from a store on one of two processors until the other one sees it. The numbers are the system's; a processor that
/// this process may not use is replaced by any other.
pub fn handoff([first, second]: [usize; 2]) -> Duration {
    let measure = |_| {
        let line = Line::default();
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| {
                processors::confine_this_thread(&[second]);
                trips(&line, 1);
            });
            // A thread of its own, so that the caller stays where it is.
            let ask = scope.spawn(|| {
                processors::confine_this_thread(&[first]);
                trips(&line, 0)
            });
            let time = ask.join();
            _ = answer.join();
            time.unwrap_or(Duration::MAX)
        })
    };
    (0..MEASUREMENTS).map(measure).min().unwrap_or(Duration::MAX) / (2 * (TRIPS - WARM))
}

/// Makes the trips of one thread, which stores after each even (0) or odd (1) number; returns the time of those that count.
fn trips(line: &Line, parity: u32) -> Duration {
    let mut began = Instant::now();
    for trip in 0..TRIPS {
        if trip == WARM {
            began = Instant::now();
        }
        let awaited = 2 * trip + parity;
        // Acquire and Release: pair with the other thread's, as all waits between ranks do.
        wait_until(|| line.0.load(Ordering::Acquire) == awaited);
        line.0.store(awaited + 1, Ordering::Release);
    }
    if parity == 0 {
        wait_until(|| line.0.load(Ordering::Acquire) == 2 * TRIPS);
    }
    began.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_takes_time_also_on_one_processor() {
        let own = processors::allowed();
        for pair in [[own[0], own[0]], [own[0], own[own.len() - 1]], [0, usize::MAX]] {
            assert!(handoff(pair) > Duration::ZERO);
        }
    }
}
