//! On which processor a thread runs. Linux only: elsewhere nothing is known and nothing is moved.
//!
//! A thread that cannot be moved stays where it is: work is then slower, not wrong, so refusals are left alone.

use std::thread::JoinHandle;

/// Returns the processor that the calling thread is on.
pub(crate) fn current() -> Option<usize> {
    #[cfg(target_os = "linux")]
    // SAFETY: the call has no preconditions.
    return usize::try_from(unsafe { libc::sched_getcpu() }).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns the processors that the calling thread may use, beginning with the one it is on.
pub(crate) fn allowed() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an empty set is zeros; the call fills a live set of the size it is told.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            set
        };
        // SAFETY: the numbers are below the size of the set.
        let is_allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
        let mut order: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect();
        let first = order.iter().position(|&cpu| Some(cpu) == current()).unwrap_or(0);
        order.rotate_left(first);
        order
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Confines the calling thread to `processors`.
pub(crate) fn confine_this_thread(processors: &[usize]) {
    #[cfg(target_os = "linux")]
    // SAFETY: the calling thread lives.
    unsafe {
        confine(libc::pthread_self(), processors)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = processors;
}

/// Confines a thread to `processors`.
pub(crate) fn confine_thread(thread: &JoinHandle<()>, processors: &[usize]) {
    #[cfg(target_os = "linux")]
    // SAFETY: a thread that was not joined can be named, even if it has ended.
    unsafe {
        confine(std::os::unix::thread::JoinHandleExt::as_pthread_t(thread), processors)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = (thread, processors);
}

/// # Safety
/// The thread was not joined or detached, or is the calling one.
#[cfg(target_os = "linux")]
unsafe fn confine(thread: libc::pthread_t, processors: &[usize]) {
    // SAFETY: an empty set is zeros; numbers outside the set are left out; the thread is the caller's to vouch for.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors
            .iter()
            .filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize)
            .for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::pthread_setaffinity_np(thread, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_is_where_it_was_put_and_is_let_go_again() {
        std::thread::spawn(|| {
            let before = allowed();
            for &cpu in &before {
                confine_this_thread(&[cpu]);
                assert_eq!((current(), allowed()), (Some(cpu), vec![cpu]));
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
