//! A lock that threads try and never wait for.
//!
//! Taking and releasing it is one read-modify-write. A `Mutex` needs two, and the second is a third of the cost of running a small plan.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time may use.
#[derive(Debug)]
pub struct TryLock<T> {
    is_in_use: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the value exists only in the one guard there can be.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    /// Makes a value that is not in use.
    pub fn new(value: T) -> Self {
        Self { is_in_use: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns the value, unless it is in use.
    #[inline]
    pub fn take(&self) -> Option<TryLockGuard<'_, T>> {
        // Acquire: pairs with the Release of the guard that was dropped last. The guard is made only if taken: dropping one frees.
        (!self.is_in_use.swap(true, Ordering::Acquire)).then(|| TryLockGuard::of(self))
    }

    /// Keeps everybody from taking the value until [`TryLock::open`]; says whether it was not in use.
    pub fn close(&self) -> bool {
        self.take().map(std::mem::forget).is_some()
    }

    /// Lets the value be taken again.
    ///
    /// # Safety
    /// The caller had `true` from [`TryLock::close`] and has not opened since.
    pub unsafe fn open(&self) {
        drop(TryLockGuard::of(self));
    }
}

/// The guard of a value, which is in use until the guard is dropped.
pub struct TryLockGuard<'a, T> {
    owner: &'a TryLock<T>,
    /// Stands for the exclusive reference that this guard is: it takes away what `owner` would give.
    _exclusive: PhantomData<*mut T>,
}

// SAFETY: a shared guard hands out `&T` and nothing else, and threads may share that if `T` is `Sync`.
unsafe impl<T: Sync> Sync for TryLockGuard<'_, T> {}

// SAFETY: a guard is the one reference to a `T`, which may go to another thread if `T` may; and any thread may clear the flag.
unsafe impl<T: Send> Send for TryLockGuard<'_, T> {}

impl<'a, T> TryLockGuard<'a, T> {
    fn of(owner: &'a TryLock<T>) -> Self {
        Self { owner, _exclusive: PhantomData }
    }
}

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the one guard.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one guard.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next thread that takes it.
        self.owner.is_in_use.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Tells whether a type is `Sync`: the constant of the type itself comes before that of the trait.
    struct Probe<T>(PhantomData<T>);

    impl<T: Sync> Probe<T> {
        const IS_SYNC: bool = true;
    }

    trait Otherwise {
        const IS_SYNC: bool = false;
    }

    impl<T> Otherwise for Probe<T> {}

    #[test]
    fn a_guard_is_shared_among_threads_only_if_its_value_may_be() {
        let of_cell = Probe::<TryLockGuard<'_, std::cell::Cell<u32>>>::IS_SYNC;
        let of_number = Probe::<TryLockGuard<'_, u32>>::IS_SYNC;
        assert!(!of_cell && of_number, "two threads with `&Cell` race without `unsafe`");
    }

    #[test]
    fn one_thread_at_a_time_counts() {
        let number = TryLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut counted = 0;
                    while counted < 10_000 {
                        if let Some(mut number) = number.take() {
                            *number += 1;
                            counted += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(*number.take().unwrap(), 20_000);
    }

    #[test]
    fn what_is_in_use_is_refused_and_free_after_a_panic() {
        let value = TryLock::new(1);
        let held = value.take().unwrap();
        assert!(value.take().is_none());
        drop(held);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = value.take().unwrap();
            panic!("in use");
        }));
        assert_eq!(*value.take().unwrap(), 1);
    }
}
