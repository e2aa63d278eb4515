//! Futexes: a thread sleeps on a word in memory that processes may share, and others wake it. The system calls, and what takes their
//! place under loom.

use std::time::{Duration, Instant};

#[cfg(not(loom))]
use rustix::thread::futex;

use super::atomic::AtomicU32;
#[cfg(not(loom))]
use crate::system::clock::monotonic_ns;

/// The longest sleep, even without a deadline, which bounds the harm of a lost signal or a stopped clock. Chosen.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The most words on which a thread can sleep at once, its own among them. Cited: `FUTEX_WAITV_MAX`, linux/futex.h.
#[cfg(not(loom))]
const MOST_WORDS: usize = 128;

/// Sleeps while the word has this value, until it is woken or the deadline passes. It may return early.
#[cfg(not(loom))]
pub(super) fn wait_while(word: &AtomicU32, value: u32, deadline: Option<Instant>) {
    let left = deadline.map_or(LONGEST_SLEEP, |d| d.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP));
    _ = futex::wait(word, futex::Flags::empty(), value, futex::Timespec::try_from(left).ok().as_ref());
}

/// Wakes all who sleep on the word.
#[cfg(not(loom))]
pub(crate) fn wake(word: &AtomicU32) {
    _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Sleeps while each word has the value beside it, for at most `longest`; says whether it slept on all of them. The first words count if
/// there are too many. A kernel before 5.16 can sleep on one word only, the first.
#[cfg(not(loom))]
pub(crate) fn wait_while_all(words: &[(&AtomicU32, u32)], longest: Duration) -> bool {
    let waiter = |(word, value): &(&AtomicU32, u32)| {
        let mut waiter = futex::Wait::new();
        waiter.val = u64::from(*value);
        waiter.uaddr = word.as_ptr().cast::<std::ffi::c_void>().into();
        waiter.flags = futex::WaitFlags::SIZE_U32;
        waiter
    };
    let waiters: Vec<futex::Wait> = words.iter().take(MOST_WORDS).map(waiter).collect();
    let end = futex::Timespec::try_from(Duration::from_nanos(monotonic_ns()) + longest).ok();
    let slept = futex::waitv(&waiters, futex::WaitvFlags::empty(), end.as_ref(), futex::ClockId::Monotonic);
    if slept == Err(rustix::io::Errno::NOSYS) {
        wait_while(words[0].0, words[0].1, Instant::now().checked_add(longest));
        return false;
    }
    waiters.len() == words.len()
}

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
