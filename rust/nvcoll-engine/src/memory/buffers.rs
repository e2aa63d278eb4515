//! The buffers of a rank in a call: addresses that kernels read, and the scalar.

/// The buffers and the scalar of one rank. Buffer k of [`Buffers::place`] is the k-th word.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Buffers {
    /// The address of the input.
    pub input: *mut u8,
    /// The address of the output; in place, that of the input.
    pub output: *mut u8,
    pub(crate) scratch: *mut u8,
    pub(crate) staging: *mut u8,
    /// The rank's scalar in premul_sum, else 1.
    pub scalar: f64,
}

// SAFETY: a `Buffers` is addresses and a number. Following an address is unsafe and happens in `Program::run_task` and
// `Program::run_piece`, whose callers cite the proof for which thread may do so when.
unsafe impl Send for Buffers {}
// SAFETY: a shared `Buffers` is only read; of what its addresses lead to, the argument for `Send` holds.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Makes the buffers of a rank; the engine sets scratch and staging.
    pub fn new(input: *mut u8, output: *mut u8, scalar: f64) -> Self {
        Self { input, output, scratch: std::ptr::null_mut(), staging: std::ptr::null_mut(), scalar }
    }

    /// Makes the buffers of a rank whose record has not been read yet.
    pub(crate) fn unknown() -> Self {
        Self::new(std::ptr::null_mut(), std::ptr::null_mut(), 1.0)
    }

    /// Returns the offset, in the list of all ranks' buffers, of the address of input (0), output, scratch or staging
    /// (3).
    pub(crate) fn place(rank: u32, buffer: u32) -> u32 {
        rank * size_of::<Self>() as u32 + buffer * size_of::<*mut u8>() as u32
    }

    /// Returns the address at a place.
    ///
    /// # Safety
    /// The place is of a rank that `all` has.
    #[inline]
    pub(crate) unsafe fn at(all: &[Self], place: u32) -> *mut u8 {
        debug_assert!((place as usize) < size_of_val(all));
        // SAFETY: the place is of a rank that `all` has, as demanded; the first four words of every entry are addresses.
        unsafe { *all.as_ptr().byte_add(place as usize).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_buffer_of_a_rank() {
        let address = |n: usize| n as *mut u8;
        let of = |n| Buffers {
            scratch: address(n + 2),
            staging: address(n + 3),
            ..Buffers::new(address(n), address(n + 1), 1.0)
        };
        let all = [of(10), of(20), of(30)];
        for (rank, n) in [(0, 10), (1, 20), (2, 30)] {
            for buffer in 0..4 {
                // SAFETY: the rank is below 3.
                assert_eq!(unsafe { Buffers::at(&all, Buffers::place(rank, buffer)) }, address(n + buffer as usize));
            }
        }
    }
}
