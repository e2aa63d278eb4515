//! Threads of a roofline run on processors of their own, for as long as a run takes.
//!
//! A woken thread is often put beside the thread that woke it, and two that spin on one processor measure the scheduler
//! (measured: 230 us instead of 1). Elsewhere than on Linux threads are not pinned.

/// What the calling thread may run on.
#[cfg(target_os = "linux")]
#[derive(Clone)]
pub(super) struct Processors {
    allowed: libc::cpu_set_t,
    /// The allowed ones, beginning with that of the thread that asked.
    order: Vec<usize>,
}

#[cfg(target_os = "linux")]
impl Processors {
    /// Asks what the calling thread may run on.
    pub(super) fn of_this_thread() -> Self {
        // SAFETY: an empty set is zeros; the call fills a live set of the size it is told.
        let allowed = unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed);
            allowed
        };
        // SAFETY: the numbers are below the size of the set.
        let is_allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &allowed) };
        let mut order: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect();
        // SAFETY: the call has no preconditions.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        let first = order.iter().position(|&cpu| cpu == here).unwrap_or(0);
        order.rotate_left(first);
        Self { allowed, order }
    }

    /// Moves the calling thread, which is number `thread` of the run, to its processor.
    pub(super) fn pin(&self, thread: usize) {
        // SAFETY: an empty set is zeros; the number is that of a processor in a set.
        let one = unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            if let Some(&cpu) = self.order.get(thread % self.order.len().max(1)) {
                libc::CPU_SET(cpu, &mut one);
            }
            one
        };
        set(&one);
    }

    /// Lets the calling thread run where it could before.
    pub(super) fn unpin(&self) {
        set(&self.allowed);
    }
}

/// A refusal is left alone: the run is then slower, not wrong.
#[cfg(target_os = "linux")]
fn set(processors: &libc::cpu_set_t) {
    // SAFETY: the call reads a live set of the size it is told.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors) };
}

/// Nothing is known.
#[cfg(not(target_os = "linux"))]
#[derive(Clone)]
pub(super) struct Processors;

#[cfg(not(target_os = "linux"))]
impl Processors {
    pub(super) fn of_this_thread() -> Self {
        Self
    }

    pub(super) fn pin(&self, _thread: usize) {}

    pub(super) fn unpin(&self) {}
}
