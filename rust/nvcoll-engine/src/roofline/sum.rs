//! The loops of the roofline: four registers of sums go through all buffers, for AVX-512, AVX2 and anything else.
//!
//! For 2, 4 and 8 buffers the compiler knows the number, keeps the addresses in registers and unrolls. The first sums are
//! made one by one, until the first buffer is at a line.

use std::ops::Range;

/// A cache line of floats.
const LINE: usize = 16;

/// The kind of stores for the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// Ordinary stores.
    Plain,
    /// Non-temporal stores, where the buffers have the same offset within a line and the processor has such stores;
    /// else ordinary.
    NonTemporal,
}

/// Sums a range of all buffers into all buffers.
///
/// # Safety
/// The range of every buffer is valid for reads and writes that nobody else does; buffers are disjoint.
pub(super) unsafe fn sum(buffers: &[*mut f32], range: Range<usize>, stores: StoreMode) {
    let elements_to_line = |x: &*mut f32| (x.wrapping_add(range.start).addr().wrapping_neg() / size_of::<f32>()) % LINE;
    let odd = elements_to_line(&buffers[0]);
    let is_alike = buffers.iter().all(|x| elements_to_line(x) == odd);
    let (peeled, rest) = if range.len() < 8 * LINE { (range.end, range.end) } else { (range.start + odd, range.end) };
    // SAFETY: both ranges are in the caller's; the instruction set was detected; buffers that lie alike are at a line after
    // `odd` elements.
    unsafe {
        sum_one_by_one(buffers, range.start..peeled);
        #[cfg(target_arch = "x86_64")]
        {
            let is_streaming = stores == StoreMode::NonTemporal && is_alike;
            if is_x86_feature_detected!("avx512f") {
                return avx512::choose(buffers, peeled..rest, is_streaming);
            } else if is_x86_feature_detected!("avx2") {
                return avx2::choose(buffers, peeled..rest, is_streaming);
            }
        }
        let _ = (stores, is_alike);
        sum_one_by_one(buffers, peeled..rest);
    }
}

/// Sums a range element by element into every buffer.
///
/// # Safety
/// Every buffer is valid for reads and writes of the range, which no other thread touches; there is a buffer.
unsafe fn sum_one_by_one(buffers: &[*mut f32], range: Range<usize>) {
    for i in range {
        // SAFETY: `i` is in the caller's range.
        unsafe {
            let total = buffers[1..].iter().fold(*buffers[0].add(i), |total, x| total + *x.add(i));
            buffers.iter().for_each(|x| *x.add(i) = total);
        }
    }
}

macro_rules! loops {
    ($name:ident, $feature:literal, $lanes:literal, $load:ident, $add:ident, $store:ident, $stream:ident) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            use core::arch::x86_64::{_mm_sfence, $add, $load, $store, $stream};
            use std::ops::Range;

            /// # Safety
            /// What [`super::sum`] demands; the instruction set is there; if `is_streaming`, buffers begin the range at a
            /// line.
            pub(super) unsafe fn choose(buffers: &[*mut f32], range: Range<usize>, is_streaming: bool) {
                // SAFETY: `choose` demands what `sum` does.
                unsafe {
                    match (buffers.len(), is_streaming) {
                        (2, false) => sum::<2, false>(buffers, range),
                        (4, false) => sum::<4, false>(buffers, range),
                        (8, false) => sum::<8, false>(buffers, range),
                        (2, true) => sum::<2, true>(buffers, range),
                        (4, true) => sum::<4, true>(buffers, range),
                        (8, true) => sum::<8, true>(buffers, range),
                        (_, false) => sum::<0, false>(buffers, range),
                        (_, true) => sum::<0, true>(buffers, range),
                    }
                }
            }

            /// `N` is the number of buffers, or 0 for any number.
            ///
            /// # Safety
            /// As `choose`.
            #[target_feature(enable = $feature)]
            unsafe fn sum<const N: usize, const STREAMS: bool>(buffers: &[*mut f32], range: Range<usize>) {
                let known: [*mut f32; N] = std::array::from_fn(|r| buffers[r]);
                let buffers = if N == 0 { buffers } else { &known };
                let (mut i, end) = (range.start, range.end);
                // SAFETY: four registers at a time lie below `end`; ordinary stores are unaligned ones, and the others are
                // at a line as the caller says.
                unsafe {
                    while i + 4 * $lanes <= end {
                        let x = buffers[0].add(i);
                        let mut a = $load(x);
                        let mut b = $load(x.add($lanes));
                        let mut c = $load(x.add(2 * $lanes));
                        let mut d = $load(x.add(3 * $lanes));
                        for next in &buffers[1..] {
                            let x = next.add(i);
                            a = $add(a, $load(x));
                            b = $add(b, $load(x.add($lanes)));
                            c = $add(c, $load(x.add(2 * $lanes)));
                            d = $add(d, $load(x.add(3 * $lanes)));
                        }
                        for to in buffers {
                            let x = to.add(i);
                            if STREAMS {
                                $stream(x, a);
                                $stream(x.add($lanes), b);
                                $stream(x.add(2 * $lanes), c);
                                $stream(x.add(3 * $lanes), d);
                            } else {
                                $store(x, a);
                                $store(x.add($lanes), b);
                                $store(x.add(2 * $lanes), c);
                                $store(x.add(3 * $lanes), d);
                            }
                        }
                        i += 4 * $lanes;
                    }
                    super::sum_one_by_one(buffers, i..end);
                    if STREAMS {
                        _mm_sfence();
                    }
                }
            }
        }
    };
}

loops!(avx512, "avx512f", 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps, _mm512_stream_ps);
loops!(avx2, "avx2", 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps, _mm256_stream_ps);
