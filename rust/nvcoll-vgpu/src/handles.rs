//! Handles of libraries: numbers that look like aligned pointers, and the object that each names.
//!
//! A library's handle is opaque to its caller, so it need not be an address. A table of numbers makes
//! every handle checkable: a null, freed or foreign handle is an error of the call, never a read of
//! memory. That leaves these libraries without unsafe code for handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::RwLock;

use crate::lock::{read, write};
use crate::{make, Answer, Failure, Handle, Out};

/// Next number of any table; chosen: below any mapping, aligned as a pointer from an allocator is.
static NEXT: AtomicUsize = AtomicUsize::new(0x4_0000);

/// The objects of one kind, by handle.
pub(crate) struct Handles<T>(RwLock<BTreeMap<Handle, T>>);

impl<T: Clone> Handles<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Keeps `object` and returns its handle.
    pub(crate) fn insert(&self, object: T) -> Handle {
        // Relaxed: only uniqueness counts; the lock of the table orders the rest.
        let number = NEXT.fetch_add(64, Ordering::Relaxed);
        write(&self.0).insert(number, object);
        number
    }

    /// Keeps `object` under a handle that the caller chose: the address of its own memory.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null.
    pub(crate) fn put(&self, handle: Handle, object: T) -> Answer {
        if handle == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        write(&self.0).insert(handle, object);
        Ok(())
    }

    /// Keeps `object` and writes its handle; for null nothing is kept.
    pub(crate) fn make(&self, out: Out<'_, Handle>, object: T) -> Answer {
        make(out, || Ok(self.insert(object)))
    }

    /// The object of `handle`, or [`Failure::INVALID_HANDLE`]; likewise in the next two.
    pub(crate) fn find(&self, handle: Handle) -> Result<T, Failure> {
        read(&self.0).get(&handle).cloned().ok_or(Failure::INVALID_HANDLE)
    }

    /// Changes the object of `handle`.
    pub(crate) fn change(&self, handle: Handle, change: impl FnOnce(&mut T)) -> Answer {
        write(&self.0).get_mut(&handle).map(change).ok_or(Failure::INVALID_HANDLE)
    }

    /// Forgets `handle`.
    pub(crate) fn remove(&self, handle: Handle) -> Answer {
        write(&self.0).remove(&handle).map(drop).ok_or(Failure::INVALID_HANDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_object_until_it_is_removed() {
        let table = Handles::new();
        let (one, two) = (table.insert(1), table.insert(2));
        assert_ne!(one, two);
        assert_eq!(table.change(two, |kept| *kept += 1), Ok(()));
        assert_eq!((table.find(two), table.remove(one)), (Ok(3), Ok(())));
        assert_eq!([table.find(one), table.find(0)], [Err(Failure::INVALID_HANDLE); 2]);
    }
}
