//! A copy of bytes by a kernel, for who has no program.

use nvcoll_core::dtype::DType;

use super::{select, Args, Arm, Isa};

/// Copies bytes with non-temporal stores, where the destination begins with a line.
///
/// # Safety
/// `from` is valid for reads of `bytes`, `to` for writes; nobody else writes the one or touches the other, and they are disjoint.
pub(crate) unsafe fn stream_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    let (src, dst) = ([from], [to]);
    let args = Args {
        src: src.as_ptr(),
        n_src: 1,
        dst: dst.as_ptr(),
        n_dst: 1,
        count: bytes,
        scalars: std::ptr::null(),
        divisor: 1,
        plain: 0,
        is_far: false,
    };
    // SAFETY: one source and one destination of that many bytes, as the caller says; a copy does not scale; the instruction set was detected.
    unsafe { select(Isa::detect(), DType::U8, Arm::Copy).run(&args) };
}
