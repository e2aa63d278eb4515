//! Non-temporal stores: they go to memory without fetching the line first, and are ordered by a fence only.

/// Says whether a place can take non-temporal stores.
#[inline(always)]
pub(super) fn is_aligned(to: *const u8) -> bool {
    cfg!(target_arch = "x86_64") && to as usize % 16 == 0
}

/// Stores a value whose size is a multiple of 16 bytes.
///
/// # Safety
/// `to` is aligned to 16 bytes and valid for writes of the value.
#[inline(always)]
pub(super) unsafe fn store<T>(to: *mut u8, value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let from: *const __m128i = std::ptr::from_ref(value).cast();
        for i in 0..size_of::<T>() / 16 {
            // SAFETY: `i` is inside the value; `to` is aligned and valid as the caller says; SSE2 is the baseline.
            unsafe { _mm_stream_si128(to.cast::<__m128i>().add(i), _mm_loadu_si128(from.add(i))) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast(), to, size_of::<T>());
    }
}

/// Orders earlier non-temporal stores before later stores.
#[inline(always)]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is the baseline of x86-64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}
