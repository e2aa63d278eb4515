//! Non-temporal stores, a line at a time. They write to memory without fetching the line first, and only a fence orders them.
//!
//! The width of the instruction matters: on a Sapphire Rapids with 8 destinations, lines stored in four 16-byte pieces ran at a quarter
//! of the speed of lines stored in one piece (measured). Processors without such stores in Rust get ordinary ones.

/// The size of a cache line. Cited: x86-64. Elsewhere it is the unit of copying.
pub(super) const LINE_BYTES: usize = 64;

/// The non-temporal stores of an instruction set.
pub(super) trait Stream {
    /// Says whether an address can take such stores.
    fn is_possible_at(to: *const u8) -> bool;

    /// Stores one line.
    ///
    /// # Safety
    /// [`Stream::is_possible_at`] holds for `to`; both pointers are valid for [`LINE_BYTES`]; the instruction set is
    /// available.
    unsafe fn store_line(to: *mut u8, line: *const u8);

    /// Orders earlier stores of this kind before later stores.
    fn fence();
}

/// Ordinary stores.
#[cfg(not(target_arch = "x86_64"))]
pub(super) struct Baseline;

#[cfg(not(target_arch = "x86_64"))]
impl Stream for Baseline {
    fn is_possible_at(_to: *const u8) -> bool {
        false
    }

    unsafe fn store_line(to: *mut u8, line: *const u8) {
        // SAFETY: both pointers are valid for a line, as `Stream::store_line` demands.
        unsafe { std::ptr::copy_nonoverlapping(line, to, LINE_BYTES) };
    }

    fn fence() {}
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512, Baseline};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Stream, LINE_BYTES};
    use core::arch::x86_64::{
        _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512, _mm_loadu_si128, _mm_sfence,
        _mm_stream_si128,
    };

    macro_rules! streams {
        ($($(#[$doc:meta])* $name:ident: $bytes:literal bytes, $load:ident, $store:ident;)*) => {$(
            $(#[$doc])*
            pub(in super::super) struct $name;

            impl Stream for $name {
                #[inline(always)]
                fn is_possible_at(to: *const u8) -> bool {
                    to.addr() % $bytes == 0
                }

                #[inline(always)]
                unsafe fn store_line(to: *mut u8, line: *const u8) {
                    for at in (0..LINE_BYTES).step_by($bytes) {
                        // SAFETY: `at` is inside the line; `to` is aligned to the instruction's width and both are valid,
                        // as the caller says.
                        unsafe { $store(to.add(at).cast(), $load(line.add(at).cast())) };
                    }
                }

                #[inline(always)]
                fn fence() {
                    // SAFETY: SSE is in the baseline of x86-64.
                    unsafe { _mm_sfence() };
                }
            }
        )*};
    }

    streams! {
        /// Four pieces to a line.
        Baseline: 16 bytes, _mm_loadu_si128, _mm_stream_si128;
        /// Two pieces to a line.
        Avx2: 32 bytes, _mm256_loadu_si256, _mm256_stream_si256;
        /// A line in one piece.
        Avx512: 64 bytes, _mm512_loadu_si512, _mm512_stream_si512;
    }
}
