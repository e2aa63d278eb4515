//! Arguments of C functions that are the address of several values: texts, lists, places.
//!
//! A reference to one value must not be used to reach those behind it, so these are addresses. Only a C program makes them: the
//! contract of its call is the witness of each access, as for [`Out`](crate::Out). Null is a value of each.
use std::ffi::{c_char, CStr};
use std::marker::PhantomData;

use crate::{Answer, Failure};

/// A C string that a caller passed: null, or the address of its first character.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// The text.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null.
    pub(crate) fn read(self) -> Result<&'a CStr, Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: the contract of the C function: a C string begins there, and lives as long as the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Values that a caller passed to be read: null, or the address of the first one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct List<T>(*const T);

impl<T: Copy> List<T> {
    /// Whether the caller passed null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address, for values that are read after the call.
    pub(crate) fn address(self) -> usize {
        self.0.expose_provenance()
    }

    /// The first `count` values, which the C function says are there.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null.
    pub(crate) fn read(self, count: usize) -> Result<Vec<T>, Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: the contract of the C function: `count` values lie there. They need not be aligned.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }

    /// The same address as the address of values of another type, which the C function says are there.
    pub(crate) fn cast<U>(self) -> List<U> {
        List(self.0.cast())
    }
}

/// A place for several values: null, or the address of the first one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Room<T>(*mut T);

impl<T: Copy> Room<T> {
    /// Whether the caller passed null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes values; the C function says that there is room for all.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null.
    pub(crate) fn write(self, values: &[T]) -> Answer {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        for (index, value) in values.iter().enumerate() {
            // SAFETY: the contract of the C function: there is room for all values. They need not be aligned.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
        Ok(())
    }

    /// The values that a caller left in the first `count` places.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null.
    pub(crate) fn read(self, count: usize) -> Result<Vec<T>, Failure> {
        List(self.0.cast_const()).read(count)
    }

    /// The same address as a place for values of another type.
    pub(crate) fn cast<U>(self) -> Room<U> {
        Room(self.0.cast())
    }
}

impl Room<u8> {
    /// Writes a text and its zero byte into `length` bytes, cut to them.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for null or a length below 1.
    pub(crate) fn write_text(self, length: i32, text: &str) -> Answer {
        let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let room = room.ok_or(Failure::INVALID_VALUE)?;
        self.write(&[&text.as_bytes()[..text.len().min(room)], b"\0"].concat())
    }
}

#[cfg(test)]
impl<'a> From<&'a CStr> for Text<'a> {
    fn from(text: &'a CStr) -> Self {
        Text(text.as_ptr(), PhantomData)
    }
}

#[cfg(test)]
impl<T> List<T> {
    /// The values at an address that the test vouches for, or null.
    pub(crate) fn at(address: usize) -> List<T> {
        List(std::ptr::with_exposed_provenance(address))
    }
}

#[cfg(test)]
impl<T> From<&[T]> for List<T> {
    fn from(values: &[T]) -> Self {
        List(values.as_ptr())
    }
}

#[cfg(test)]
impl<T> From<&mut [T]> for Room<T> {
    fn from(places: &mut [T]) -> Self {
        Room(places.as_mut_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_an_error_and_each_value_is_reached_from_the_address_of_the_first() {
        assert_eq!(Text(std::ptr::null(), PhantomData).read(), Err(Failure::INVALID_VALUE));
        assert_eq!(Text::from(c"name").read(), Ok(c"name"));
        assert_eq!(List::<i32>(std::ptr::null()).read(0), Err(Failure::INVALID_VALUE));
        assert_eq!(List::from(&[1, 2, 3][..]).read(3), Ok(vec![1, 2, 3]));
        let mut out = [9; 4];
        assert_eq!(Room::from(&mut out[..]).write(&[5, 6, 7]), Ok(()));
        assert_eq!(out, [5, 6, 7, 9]);
        assert_eq!(Room::<i32>(std::ptr::null_mut()).write(&[]), Err(Failure::INVALID_VALUE));
    }

    #[test]
    fn a_text_is_cut_to_its_buffer_and_ends_with_zero() {
        let mut buffer = [1; 6];
        assert_eq!(Room::from(&mut buffer[..]).write_text(4, "abcdef"), Ok(()));
        assert_eq!(&buffer, b"abc\0\x01\x01");
        assert_eq!(Room::from(&mut buffer[..]).write_text(0, "a"), Err(Failure::INVALID_VALUE));
    }
}
