//! On which processor a thread runs.
//!
//! A thread that cannot be moved stays where it is: work is then slower, not wrong, so refusals are left alone.

use std::thread::JoinHandle;

use rustix::thread::CpuSet;

/// Returns the processor that the calling thread is on.
pub(crate) fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// Returns the processors that the calling thread may use, beginning with the one it is on.
pub(crate) fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let mut order: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    let first = order.iter().position(|&cpu| cpu == current()).unwrap_or(0);
    order.rotate_left(first);
    order
}

/// Confines the calling thread to `processors`.
pub(crate) fn confine_this_thread(processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Confines a thread to `processors`.
pub(crate) fn confine_thread(thread: &JoinHandle<()>, processors: &[usize]) {
    // SAFETY: an empty set is zeros; numbers outside the set are left out. A thread that was not joined can be named, even if it has ended.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let inside = processors.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize);
        inside.for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(thread) as libc::pthread_t;
        libc::pthread_setaffinity_np(thread, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_is_where_it_was_put_and_is_let_go_again() {
        std::thread::spawn(|| {
            let before = allowed();
            for &cpu in &before {
                confine_this_thread(&[cpu]);
                assert_eq!((current(), allowed()), (cpu, vec![cpu]));
            }
            confine_this_thread(&before);
            let mut after = allowed();
            after.sort_unstable();
            assert!(after.iter().all(|cpu| before.contains(cpu)) && after.len() == before.len());
        })
        .join()
        .unwrap();
    }
}
