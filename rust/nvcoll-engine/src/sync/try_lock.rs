//! A value that one thread at a time may use, and nobody waits for.
//!
//! A mutex would do; taking and freeing this is one read-modify-write instead of two, which is a third of what running a small
//! plan costs.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::atomic::{AtomicBool, Ordering};

/// A value and whether it is in use.
#[derive(Debug)]
pub struct OneAtATime<T> {
    is_in_use: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the value exists only in the one guard there can be.
unsafe impl<T: Send> Sync for OneAtATime<T> {}

impl<T> OneAtATime<T> {
    /// Makes a value that is not in use.
    pub fn new(value: T) -> Self {
        Self { is_in_use: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns the value, unless it is in use.
    #[inline]
    pub fn take(&self) -> Option<InUse<'_, T>> {
        // Acquire: pairs with the Release of the guard that was dropped last. The guard is made only if taken: dropping one frees.
        (!self.is_in_use.swap(true, Ordering::Acquire)).then(|| InUse(self))
    }

    /// Keeps everybody from taking the value until [`OneAtATime::open`]; says whether it was not in use.
    pub fn close(&self) -> bool {
        self.take().map(std::mem::forget).is_some()
    }

    /// Lets the value be taken again.
    ///
    /// # Safety
    /// The caller had `true` from [`OneAtATime::close`] and has not opened since.
    pub unsafe fn open(&self) {
        drop(InUse(self));
    }
}

/// The value, in use until this is dropped.
pub struct InUse<'a, T>(&'a OneAtATime<T>);

impl<T> Deref for InUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the one guard.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for InUse<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one guard.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for InUse<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of who takes it next.
        self.0.is_in_use.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_counts() {
        let number = OneAtATime::new(0u64);
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
        let value = OneAtATime::new(1);
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
