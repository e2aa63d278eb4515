//! Handles of libraries: numbers that look like aligned pointers, and the object that each names.
//!
//! A library's handle is opaque to its caller, so it need not be an address. A table of numbers makes
//! every handle checkable: a null, freed or foreign handle is an error of the call, never a read of
//! memory. That leaves these libraries without unsafe code for handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::Handle;

/// Next number of any table; chosen: below any mapping, aligned as a pointer from an allocator is.
static NEXT: AtomicUsize = AtomicUsize::new(0x4_0000);

/// The objects of one kind, by handle.
pub(crate) struct Handles<T> {
    rows: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self { rows: RwLock::new(BTreeMap::new()) }
    }

    /// Keeps `object` and returns its handle.
    pub(crate) fn insert(&self, object: T) -> Handle {
        // Relaxed: only uniqueness counts; the lock of the table orders the rest.
        let number = NEXT.fetch_add(64, Ordering::Relaxed);
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.insert(number, Arc::new(object));
        number
    }

    /// The object of `handle`, if there is one.
    pub(crate) fn find(&self, handle: Handle) -> Option<Arc<T>> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.get(&handle).cloned()
    }

    /// Forgets `handle`; returns its object, if there was one.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.remove(&handle)
    }
}

/// The number of a name in the log, looked up once per place that says it.
macro_rules! named {
    ($text:expr) => {{
        static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *NUMBER.get_or_init(|| $crate::log::name($text))
    }};
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_object_until_it_is_removed() {
        let table = Handles::new();
        let (one, two) = (table.insert(1), table.insert(2));
        assert_ne!(one, two);
        assert_eq!(table.find(two).as_deref(), Some(&2));
        assert_eq!(table.remove(one).as_deref(), Some(&1));
        assert!(table.find(one).is_none() && table.find(0).is_none());
    }
}
