//! The clock of the process in a second run: it advances by the predicted time of each step.
//!
//! With `NVCOLL_VGPU_CLOCK=1`, a script that measures its own steps gets the times of the predicted machine. The clock
//! is `clock_gettime` for `CLOCK_REALTIME` and `CLOCK_MONOTONIC`, which Python's `time.time`, `time.monotonic` and
//! `time.perf_counter` call:
//!
//! ```text
//! step k starts at r(k) by the real clock, at v(k) by this one      v(k + 1) = v(k) + period of step k
//! inside the step     now = v(k) + min(real - r(k), period)         so it never goes back and never passes the next step
//! ```
//!
//! While the profiler records, the clock runs as the real one does, at its last distance: the profiler measures the unit of
//! its stamps by it, and waits of the host take real time (`cupti`).
//!
//! Only the main thread sees it: others (NCCL's watchdog, workers of data loaders) wait with deadlines of the real clock.
//! A deadline that the main thread made with this clock is given to the kernel as the same time by the real one.
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::lock::lock;
use crate::real_time::{monotonic_ns, real, SECOND_NS};

/// Where a step stands by both clocks, in ns.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct ClockStep {
    /// When it started, by the monotonic clock.
    real_ns: i64,
    /// How far this clock was ahead then; negative: behind.
    ahead_ns: i64,
    period_ns: i64,
}

/// Whether the clock differs from the real one. Release when set, after `STEP`; pairs with the Acquire of `ahead_ns`.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Whether the profiler looks. Relaxed: the thread that starts it is the one that starts steps.
static IS_HELD: AtomicBool = AtomicBool::new(false);
static STEP: Mutex<ClockStep> = Mutex::new(ClockStep { real_ns: 0, ahead_ns: 0, period_ns: i64::MAX });
static IS_ASKED_FOR: LazyLock<bool> =
    LazyLock::new(|| std::env::var("NVCOLL_VGPU_CLOCK").is_ok_and(|value| value == "1"));

impl ClockStep {
    /// How far this clock is ahead at a real time.
    fn ahead_at(&self, real_ns: i64) -> i64 {
        let inside = real_ns.saturating_sub(self.real_ns);
        self.ahead_ns.saturating_add(inside.min(self.period_ns)).saturating_sub(inside)
    }

    /// The next step, which starts at a real time.
    fn next(&self, real_ns: i64, period_ns: i64) -> ClockStep {
        let inside = real_ns.saturating_sub(self.real_ns);
        let ahead_ns = if self.period_ns == i64::MAX {
            self.ahead_ns
        } else {
            self.ahead_ns.saturating_add(self.period_ns).saturating_sub(inside)
        };
        ClockStep { real_ns, ahead_ns, period_ns }
    }
}

/// Starts a step that shall take `period_ns` by this clock, if the clock was asked for.
pub(crate) fn step(period_ns: u64) {
    if !*IS_ASKED_FOR || IS_HELD.load(Ordering::Relaxed) {
        return;
    }
    let mut step = lock(&STEP);
    *step = step.next(monotonic_ns(), i64::try_from(period_ns).unwrap_or(i64::MAX - 1));
    RUNS.store(true, Ordering::Release); // pairs with the Acquire of `ahead_ns`
}

/// Makes the clock run as the real one until the next step after it is let go.
pub(crate) fn hold(held: bool) {
    if IS_HELD.swap(held, Ordering::Relaxed) != held && held {
        let mut step = lock(&STEP);
        let now = monotonic_ns();
        *step = ClockStep { real_ns: now, ahead_ns: step.ahead_at(now), period_ns: i64::MAX };
    }
}

/// How far this clock is ahead in this thread.
fn ahead_ns() -> i64 {
    // Acquire: pairs with the Release of `step`.
    if !RUNS.load(Ordering::Acquire) || !is_main_thread() {
        return 0;
    }
    let step = *lock(&STEP);
    step.ahead_at(monotonic_ns())
}

fn is_main_thread() -> bool {
    // SAFETY: neither call has a condition.
    unsafe { libc::getpid() == libc::gettid() }
}

/// Adds to a time; its ns stay between 0 and a second.
fn add(time: libc::timespec, ns: i64) -> libc::timespec {
    let total = time.tv_nsec.saturating_add(ns);
    libc::timespec {
        tv_sec: time.tv_sec.saturating_add(total.div_euclid(SECOND_NS)),
        tv_nsec: total.rem_euclid(SECOND_NS),
    }
}

fn is_shifted(clock: c_int) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

/// `clock_gettime` of the C library.
#[cfg(not(test))]
#[no_mangle]
extern "C" fn clock_gettime(clock: c_int, out: Option<&mut libc::timespec>) -> c_int {
    let Some(out) = out else { return -1 };
    let status = real_by_library(clock, out);
    if status == 0 && is_shifted(clock) {
        *out = add(*out, ahead_ns());
    }
    status
}

/// A function of the C library that this file has, too.
fn next(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: the name is a C string; the next library in the order of loading is asked.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

type GetTime = unsafe extern "C" fn(c_int, *mut libc::timespec) -> c_int;

/// The real time, without a system call where the C library knows how.
#[cfg_attr(test, allow(dead_code))]
fn real_by_library(clock: c_int, out: &mut libc::timespec) -> c_int {
    static NEXT: LazyLock<usize> = LazyLock::new(|| next(c"clock_gettime") as usize);
    if *NEXT == 0 {
        return real(clock, out);
    }
    // SAFETY: the C library's function of that name has this signature; the place is valid for a time.
    unsafe { std::mem::transmute::<usize, GetTime>(*NEXT)(clock, out) }
}

/// A deadline of this thread's clock as the same time by the real one.
#[cfg_attr(test, allow(dead_code))]
fn real_deadline(clock: c_int, deadline: libc::timespec) -> libc::timespec {
    if is_shifted(clock) {
        add(deadline, ahead_ns().saturating_neg())
    } else {
        deadline
    }
}

/// `clock_nanosleep`, in which Python sleeps until a time.
#[cfg(not(test))]
#[no_mangle]
extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    time: Option<&libc::timespec>,
    left: *mut libc::timespec,
) -> c_int {
    let Some(time) = time else { return libc::EFAULT };
    crate::streams::slept();
    let until = if flags & libc::TIMER_ABSTIME == 0 { *time } else { real_deadline(clock, *time) };
    // SAFETY: the system call reads a valid time; `left` is the caller's, null or valid by the C library's interface.
    let status = unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, std::ptr::from_ref(&until), left) };
    if status == 0 {
        0
    } else {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINTR)
    }
}

/// Waits of the C library until a time: their arguments before the clock, and the clock.
#[cfg(not(test))]
macro_rules! waits {
    ($($name:ident($($arg:ident),*) $text:literal;)*) => { $(
        /// Waits until a time by this thread's clock.
        #[no_mangle]
        extern "C" fn $name($($arg: *mut c_void,)* clock: c_int, until: Option<&libc::timespec>) -> c_int {
            type Wait = unsafe extern "C" fn($(waits!(@ $arg),)* c_int, *const libc::timespec) -> c_int;
            static NEXT: LazyLock<usize> = LazyLock::new(|| next($text) as usize);
            let (Some(until), 1..) = (until, *NEXT) else { return libc::EINVAL };
            let until = real_deadline(clock, *until);
            // SAFETY: the C library's function of that name has this signature; the objects are the caller's.
            unsafe { std::mem::transmute::<usize, Wait>(*NEXT)($($arg,)* clock, &until) }
        }
    )* };
    (@ $arg:ident) => { *mut c_void };
}
#[cfg(not(test))]
waits! {
    sem_clockwait(semaphore) c"sem_clockwait";
    pthread_cond_clockwait(condition, mutex) c"pthread_cond_clockwait";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_takes_its_period_whether_the_host_is_faster_or_slower() {
        let first = ClockStep::default().next(1_000, 500);
        assert_eq!(first.ahead_at(1_000), first.ahead_ns);
        let now = |step: &ClockStep, real: i64| real + step.ahead_at(real);
        let (slow, fast) = (first.next(2_000, 500), first.next(1_100, 500));
        assert_eq!(now(&slow, 2_000) - now(&first, 1_000), 500);
        assert_eq!(now(&fast, 1_100) - now(&first, 1_000), 500);
    }

    #[test]
    fn times_carry_over_seconds_both_ways() {
        let time = libc::timespec { tv_sec: 5, tv_nsec: 999_999_999 };
        let later = add(time, 2);
        assert_eq!((later.tv_sec, later.tv_nsec), (6, 1));
        let earlier = add(later, -2);
        assert_eq!((earlier.tv_sec, earlier.tv_nsec), (5, 999_999_999));
    }

    #[test]
    fn a_clock_that_is_held_stays_as_far_ahead_as_it_is() {
        let step = ClockStep::default().next(0, 500);
        let held = ClockStep { real_ns: 100, ahead_ns: step.ahead_at(100), period_ns: i64::MAX };
        assert_eq!(held.ahead_at(10_000), held.ahead_ns);
        assert_eq!(held.next(20_000, 300).ahead_at(20_000), held.ahead_ns, "the next step goes on from there");
    }

    proptest! {
        #[test]
        fn the_clock_never_goes_back(steps in prop::collection::vec((0..9_000i64, 0..9_000i64), 1..20)) {
            let (mut real, mut last) = (0, i64::MIN);
            let mut step = ClockStep { real_ns: 0, ahead_ns: 0, period_ns: i64::MAX };
            for (lasts, period) in steps {
                step = step.next(real, period);
                for part in 0..4 {
                    let now = real + lasts * part / 4;
                    let shown = now + step.ahead_at(now);
                    prop_assert!(shown >= last);
                    last = shown;
                }
                real += lasts;
            }
        }
    }
}
