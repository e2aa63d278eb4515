//! Futexes: a thread sleeps on a word in memory that processes may share, and others wake it. The system calls, and what takes their
//! place under loom and on other systems.

use std::time::{Duration, Instant};

use super::atomic::AtomicU32;
#[cfg(all(not(loom), target_os = "linux"))]
use crate::system::clock::monotonic_ns;

/// The longest sleep, even without a deadline, which bounds the harm of a lost signal or a stopped clock. Chosen.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The most words on which a thread can sleep at once, its own among them. Cited: `FUTEX_WAITV_MAX`, linux/futex.h.
#[cfg(all(not(loom), target_os = "linux"))]
const MOST_WORDS: usize = 128;

/// Sleeps while the word has this value, until it is woken or the deadline passes. It may return early.
#[cfg(all(not(loom), target_os = "linux"))]
pub(super) fn wait_while(word: &AtomicU32, value: u32, deadline: Option<Instant>) {
    let left = deadline.map_or(LONGEST_SLEEP, |d| d.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP));
    let timeout = libc::timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
    // SAFETY: `word` is a live aligned u32 and `timeout` a live timespec; FUTEX_WAIT reads both and writes neither.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &timeout) };
}

/// Wakes all who sleep on the word.
#[cfg(all(not(loom), target_os = "linux"))]
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address of `word` as a key only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps while each word has the value beside it, for at most `longest`; says whether it slept on all of them. The first words count if
/// there are too many. A kernel before 5.16 can sleep on one word only, the first.
#[cfg(all(not(loom), target_os = "linux"))]
pub(crate) fn wait_while_all(words: &[(&AtomicU32, u32)], longest: Duration) -> bool {
    /// Cited: linux/futex.h.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct FutexWaiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX2_SIZE_U32: u32 = 2;
    let mut waiters = [FutexWaiter { value: 0, address: 0, flags: 0, reserved: 0 }; MOST_WORDS];
    let count = words.len().min(MOST_WORDS);
    for (waiter, (word, value)) in waiters.iter_mut().zip(words) {
        let address = word.as_ptr().addr() as u64;
        *waiter = FutexWaiter { value: (*value).into(), address, flags: FUTEX2_SIZE_U32, reserved: 0 };
    }
    let end = Duration::from_nanos(monotonic_ns()) + longest;
    let end = libc::timespec { tv_sec: end.as_secs() as _, tv_nsec: end.subsec_nanos() as _ };
    // SAFETY: the first `count` waiters name live aligned words; the call reads them and `end`, and writes neither.
    let slept = unsafe {
        libc::syscall(libc::SYS_futex_waitv, waiters.as_ptr(), count as u32, 0, &raw const end, libc::CLOCK_MONOTONIC)
    };
    if slept < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        wait_while(words[0].0, words[0].1, Instant::now().checked_add(longest));
        return false;
    }
    count == words.len()
}

/// Sleeps 100 microseconds, on systems without futexes. Chosen; not run on such a system yet.
#[cfg(all(not(loom), not(target_os = "linux")))]
pub(super) fn wait_while(_word: &AtomicU32, _value: u32, _deadline: Option<Instant>) {
    std::thread::sleep(LONGEST_SLEEP / 1000);
}

#[cfg(all(not(loom), not(target_os = "linux")))]
pub(crate) fn wake(_word: &AtomicU32) {}

/// Blocks the model until the word changes; loom reports a lost wake-up as a deadlock.
#[cfg(loom)]
pub(super) fn wait_while(word: &AtomicU32, value: u32, deadline: Option<Instant>) {
    while deadline.is_none() && word.load(super::atomic::Ordering::Relaxed) == value {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
pub(crate) fn wake(_word: &AtomicU32) {}

#[cfg(loom)]
pub(crate) fn wait_while_all(_words: &[(&AtomicU32, u32)], _longest: Duration) -> bool {
    false
}
