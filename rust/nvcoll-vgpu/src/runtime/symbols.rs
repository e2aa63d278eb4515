//! Variables of device memory that fat binaries declare: an address each, and small copies to and from them.
#![allow(non_snake_case)] // the names of a public interface

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use super::copy_and_wait;
use crate::entry_points::{runtime, values};
use crate::errors::Failure;
use crate::lock::lock;
use crate::memory::data::Copy;
use crate::{memory, set, Handle, Out};

/// A variable: its bytes, and its address once somebody asked.
struct Symbol {
    bytes: usize,
    address: Option<usize>,
}

/// By the address of the host's shadow of the variable.
static SYMBOLS: LazyLock<Mutex<HashMap<Handle, Symbol>>> = LazyLock::new(Mutex::default);

values! {
    __cudaRegisterVar(_owner: Handle, shadow: Handle, _device_address: usize, _name: usize, _is_external: i32, bytes: usize)
        -> () => { lock(&SYMBOLS).entry(shadow).or_insert(Symbol { bytes, address: None }); };
}

/// The address and the bytes of a variable.
fn symbol(shadow: Handle) -> Result<(usize, usize), Failure> {
    let mut symbols = lock(&SYMBOLS);
    let symbol = symbols.get_mut(&shadow).ok_or(Failure::INVALID_SYMBOL)?;
    let address = match symbol.address {
        Some(address) => address,
        None => *symbol.address.insert(memory::reserve(symbol.bytes.max(1))?),
    };
    Ok((address, symbol.bytes))
}

/// Part of a variable.
fn part(shadow: Handle, bytes: usize, offset: usize) -> Result<usize, Failure> {
    let (address, all) = symbol(shadow)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= all => Ok(address + offset),
        _ => Err(Failure::INVALID_VALUE),
    }
}

runtime! {
    cudaGetSymbolAddress(out: Out<usize>, shadow: Handle) => set(out, symbol(shadow)?.0);
}
runtime! { unsafe:
    cudaMemcpyToSymbol(shadow: Handle, from: usize, bytes: usize, offset: usize) =>
        copy_and_wait(Copy::plain(part(shadow, bytes, offset)?, from, bytes));
}
