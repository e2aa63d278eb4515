//! The roofline: the speed of two hand-written nested loops over the same buffers. They share nothing with the kernels or the executor.
//! Benchmarks run them beside nvcoll, in the same rounds and on the same memory.
//!
//! ```text
//! thread t    for i in its share of 0..count:  sum = x[0][i] + x[1][i] + …  in order;  x[r][i] = sum  for every r
//! ```
//!
//! An in-place all-reduce must read and write every buffer once, and the loops do no more. There are no ranks, no schedule and no waits
//! between ranks. Each run starts its threads, pins them to processors of their own, and has them meet at a barrier. The clock starts
//! after the barrier and stops when the last thread is done.
//!
//! Cost: `2 * n * count * 4` bytes. It has no other dtypes and ops.

mod handoff;
mod sum;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::system::processors;

pub use handoff::handoff;
pub use sum::StoreMode;

/// The number of spins before a waiting thread yields. Chosen: longer than a barrier takes where every thread has a processor.
const SPINS: u32 = 1 << 14;

/// The buffers of a run, for its threads.
#[derive(Clone, Copy)]
struct Starts<'a>(&'a [*mut f32]);

// SAFETY: these are addresses; threads write disjoint index ranges of what they name, during the call that borrows them.
unsafe impl Send for Starts<'_> {}

/// Sums `count` floats of every buffer into every buffer on `threads` threads, of which the caller is one; returns the time that took.
///
/// # Panics
/// If there is no thread or no buffer, or a thread cannot be started.
///
/// # Safety
/// Buffers are disjoint, aligned to 4 bytes, and valid for reads and writes of `count` floats that nobody else touches.
pub unsafe fn run(threads: usize, buffers: &[*mut f32], count: usize, stores: StoreMode) -> Duration {
    let n = buffers.len();
    assert!(threads > 0 && n > 0, "{threads} threads and {n} buffers: pass at least one of each");
    let processors = processors::allowed();
    // A woken thread often shares the processor of its waker, and two spinning threads on one processor measure the scheduler.
    let pin = |thread: usize| {
        if let Some(&processor) = processors.get(thread % processors.len().max(1)) {
            processors::confine_this_thread(&[processor]);
        }
    };
    let share = count.div_ceil(threads).next_multiple_of(64);
    let sum_share = |starts: Starts<'_>, thread: usize| {
        let range = (share * thread).min(count)..(share * (thread + 1)).min(count);
        // SAFETY: the caller vouches for `count` elements of every buffer; shares are disjoint and end at the count.
        unsafe { sum::sum(starts.0, range, stores) };
    };
    let (starts, arrived, is_started, finished) =
        (Starts(buffers), AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let (pin, sum_share, arrived, is_started, finished) = (&pin, &sum_share, &arrived, &is_started, &finished);
            let work = move || {
                pin(thread);
                // Release: pairs with the Acquire of the caller, who then starts the clock.
                arrived.fetch_add(1, Ordering::Release);
                // Acquire: pairs with the Release of the caller.
                wait_until(|| is_started.load(Ordering::Acquire));
                sum_share(starts, thread);
                // Release: pairs with the last Acquire of the caller; the sums of this thread come before it.
                finished.fetch_add(1, Ordering::Release);
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                is_started.store(true, Ordering::Release); // the threads that were started end
                panic!("thread {thread} of {threads} cannot be started: {error}");
            }
        }
        pin(0);
        // Acquire: pairs with the Release of each thread that arrives.
        wait_until(|| arrived.load(Ordering::Acquire) == threads - 1);
        let start = Instant::now();
        // Release: pairs with the Acquire of the threads.
        is_started.store(true, Ordering::Release);
        sum_share(starts, 0);
        // Acquire: pairs with the Release of each thread that is done; the sums of all are visible afterwards.
        wait_until(|| finished.load(Ordering::Acquire) == threads - 1);
        let time = start.elapsed();
        processors::confine_this_thread(&processors);
        time
    })
}

fn wait_until(condition: impl Fn() -> bool) {
    let mut spins = 0;
    while !condition() {
        spins += 1;
        if spins < SPINS {
            std::hint::spin_loop()
        } else {
            std::thread::yield_now()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_sums_what_it_is_given_wherever_it_lies() {
        for (threads, n) in [(1, 1), (1, 2), (2, 3), (3, 4), (2, 8), (2, 9)] {
            for (count, skew) in [(0, 0), (1, 0), (63, 1), (1003, 0), (1003, 1), (20_000, 0), (20_000, 5)] {
                for stores in [StoreMode::Plain, StoreMode::NonTemporal] {
                    let fill = |r: usize| {
                        (0..count + n * skew).map(move |i: usize| i.wrapping_sub(r * skew) as f32 + r as f32)
                    };
                    let mut memory: Vec<Vec<f32>> = (0..n).map(|r| fill(r).collect()).collect();
                    let at = |(r, x): (usize, &mut Vec<f32>)| x[r * skew..].as_mut_ptr();
                    let buffers: Vec<*mut f32> = memory.iter_mut().enumerate().map(at).collect();
                    // SAFETY: live vectors with `count` floats from the addresses on.
                    unsafe { run(threads, &buffers, count, stores) };
                    for (r, x) in memory.iter().enumerate() {
                        let mut sums = x[r * skew..][..count].iter().enumerate();
                        assert!(sums.all(|(i, sum)| *sum == (n * i + n * (n - 1) / 2) as f32), "{threads} {n}");
                    }
                }
            }
        }
    }
}
