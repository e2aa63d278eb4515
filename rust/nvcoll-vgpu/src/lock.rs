//! Locks of tables. A panic aborts the process at the border to C, so no lock is ever poisoned.
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a table.
pub(crate) fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a table that others may read at the same time.
pub(crate) fn read<T>(table: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    table.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a table that others read.
pub(crate) fn write<T>(table: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    table.write().unwrap_or_else(PoisonError::into_inner)
}
