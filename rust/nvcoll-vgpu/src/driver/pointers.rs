//! Questions about pointers.
#![allow(non_snake_case)] // the names of a public interface

use std::ffi::c_void;

use super::contexts::context_of;
use crate::entry_points::functions;
use crate::errors::{self, Failure};
use crate::memory::{self, pinned};
use crate::{log, set, Answer, Out};

/// One value: its bytes have the type of the attribute.
enum Value {
    Word(i32),
    Long(usize),
}

/// The attribute with a number of a pointer to device memory or to page-locked memory.
fn attribute(number: i32, address: usize) -> Result<Value, Failure> {
    let block = memory::block_of(address);
    let is_device = block.is_some() || (memory::is_device(address) && memory::is_live(address, 1));
    if !is_device && !memory::is_pinned(address) {
        return Err(Failure::INVALID_VALUE);
    }
    let device = block.map_or(log::device(), |(_, block)| block.device);
    let range = block.map(|(start, block)| (start, block.bytes)).or_else(|| pinned::block_of(address));
    let (start, bytes) = range.unwrap_or((address, 1));
    Ok(match number {
        1 => Value::Long(context_of(device)),
        2 => Value::Word(if is_device { 2 } else { 1 }),
        3 => Value::Long(address),
        4 if is_device => return Err(Failure::INVALID_VALUE),
        4 => Value::Long(address),
        9 => Value::Word(device.into()),
        11 | 19 => Value::Long(start),
        12 | 18 => Value::Long(bytes),
        7 | 14 | 17 | 20 => Value::Long(0),
        13 => Value::Word(1),
        16 => Value::Word(3),
        _ => Value::Word(0),
    })
}

/// Writes a value.
///
/// # Safety
/// `out` has the type of the attribute that was asked for.
unsafe fn write(out: *mut c_void, value: Value) -> Answer {
    if out.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the caller's contract.
    unsafe {
        match value {
            Value::Word(word) => out.cast::<i32>().write(word),
            Value::Long(long) => out.cast::<usize>().write(long),
        }
    }
    Ok(())
}

functions! { unsafe errors::driver:
    cuPointerGetAttribute(out: *mut c_void, number: i32, address: usize) => write(out, attribute(number, address)?);
}
functions! { errors::driver:
    cuMemGetAddressRange_v2(start: Out<usize>, bytes: Out<usize>, address: usize) => {
        let (first, block) = memory::block_of(address).ok_or(Failure::NOT_FOUND)?;
        let _ = set(start, first); // both are optional
        let _ = set(bytes, block.bytes);
        Ok(())
    };
}
