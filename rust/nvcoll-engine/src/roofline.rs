//! The roofline: what two loops over the same buffers could reach, written by hand and sharing nothing with the kernels.
//!
//! Each thread owns a share of the index range, adds all ranks' elements in order and stores the sum to all ranks: the least
//! that an in-place all-reduce can read and write. Threads meet at a spinning barrier; time runs from there to the last
//! thread's end. No ranks, no schedule, no waiting between ranks. Benchmarks run it beside nvcoll in the same rounds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct Addresses<'a>(&'a [*mut f32]);

// SAFETY: threads write disjoint index ranges of what the addresses name.
unsafe impl Sync for Addresses<'_> {}

impl Addresses<'_> {
    fn all(&self) -> &[*mut f32] {
        self.0
    }
}

/// Sums `count` floats of every buffer into every buffer with `threads` threads; returns the time that took.
///
/// # Safety
/// Every address is valid for reads and writes of `count` floats that nobody else touches.
pub unsafe fn all_reduce_sum(buffers: &[*mut f32], count: usize, threads: usize) -> Duration {
    let (arrived, buffers) = (AtomicUsize::new(0), Addresses(buffers));
    let share = count.div_ceil(threads).next_multiple_of(64);
    let work = |thread: usize| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < threads {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let range = (share * thread).min(count)..(share * (thread + 1)).min(count);
        // SAFETY: the caller's; the ranges of threads are disjoint.
        unsafe { sum(buffers.all(), range) };
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let mine = work(0);
        helpers.into_iter().map(|helper| helper.join().expect("the loop does not panic")).chain([mine]).collect()
    });
    let first = spans.iter().map(|span| span.0).min().expect("there is a thread");
    let last = spans.iter().map(|span| span.1).max().expect("there is a thread");
    last - first
}

unsafe fn sum(buffers: &[*mut f32], range: std::ops::Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: AVX-512 is there; the rest is the caller's.
        return unsafe { sum_avx512(buffers, range) };
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is there; the rest is the caller's.
        return unsafe { sum_avx2(buffers, range) };
    }
    // SAFETY: the caller's.
    unsafe { sum_plain(buffers, range) }
}

unsafe fn sum_plain(buffers: &[*mut f32], range: std::ops::Range<usize>) {
    for i in range {
        // SAFETY: `i` is below the count.
        unsafe {
            let mut total = *buffers[0].add(i);
            for buffer in &buffers[1..] {
                total += *buffer.add(i);
            }
            for buffer in buffers {
                *buffer.add(i) = total;
            }
        }
    }
}

macro_rules! vector_sum {
    ($name:ident, $feature:literal, $lanes:literal, $load:ident, $add:ident, $store:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $name(buffers: &[*mut f32], range: std::ops::Range<usize>) {
            use core::arch::x86_64::*;
            let (mut i, end) = (range.start, range.end);
            // SAFETY: four registers at a time lie below `end`; loads and stores are unaligned ones.
            unsafe {
                while i + 4 * $lanes <= end {
                    let first = buffers[0].add(i);
                    let mut a = $load(first);
                    let mut b = $load(first.add($lanes));
                    let mut c = $load(first.add(2 * $lanes));
                    let mut d = $load(first.add(3 * $lanes));
                    for buffer in &buffers[1..] {
                        let next = buffer.add(i);
                        a = $add(a, $load(next));
                        b = $add(b, $load(next.add($lanes)));
                        c = $add(c, $load(next.add(2 * $lanes)));
                        d = $add(d, $load(next.add(3 * $lanes)));
                    }
                    for buffer in buffers {
                        let to = buffer.add(i);
                        $store(to, a);
                        $store(to.add($lanes), b);
                        $store(to.add(2 * $lanes), c);
                        $store(to.add(3 * $lanes), d);
                    }
                    i += 4 * $lanes;
                }
                sum_plain(buffers, i..end);
            }
        }
    };
}
vector_sum!(sum_avx512, "avx512f", 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps);
vector_sum!(sum_avx2, "avx2", 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_sums_what_it_is_given() {
        let mut buffers: Vec<Vec<f32>> = (0..3).map(|r| (0..1003).map(|i| (i + r) as f32).collect()).collect();
        let addresses: Vec<*mut f32> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
        // SAFETY: three live vectors of 1003 floats.
        unsafe { all_reduce_sum(&addresses, 1003, 2) };
        assert!(buffers.iter().all(|b| b.iter().enumerate().all(|(i, x)| *x == (3 * i + 3) as f32)));
    }
}
