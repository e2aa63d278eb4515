//! The time of the machine, whatever the clock of a second run shows.
use std::ffi::c_int;

/// A second in ns.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// The real time of a clock; the kernel is asked directly, since `clock_gettime` is `clock`'s.
pub(crate) fn real(clock: c_int, out: &mut libc::timespec) -> c_int {
    // SAFETY: the system call writes a time to the place, which is valid for one.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, std::ptr::from_mut(out)) as c_int }
}

/// The real monotonic time in ns.
pub(crate) fn monotonic_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    real(libc::CLOCK_MONOTONIC, &mut now);
    now.tv_sec.saturating_mul(SECOND_NS).saturating_add(now.tv_nsec)
}
