//! numpy arrays, read from their C structure.
//!
//! Address, shape, strides and flags are fields of numpy's stable ABI. No attribute is looked up, and nothing is allocated. The dtype
//! is a number. numpy's own numbers are fixed; the numbers of other packages (`ml_dtypes.bfloat16`) differ between processes. So the first
//! use of a number looks up the *name* of its dtype, and later uses find it in a table. A new dtype needs no change here.

use std::sync::OnceLock;

use numpy::npyffi::{get_type_object, NpyTypes, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::dtype::DType;

use super::array::{Access, Array};
use super::reason::Reason;

/// The length of the table of dtypes; larger type numbers are looked up every time. Chosen: numpy's own are below 32, and ml_dtypes
/// adds about twenty from 256.
const REMEMBERED: usize = 512;

/// The dtype of each type number that was used; the inner `None` is an unsupported dtype.
static DTYPES: [OnceLock<Option<DType>>; REMEMBERED] = [const { OnceLock::new() }; REMEMBERED];

/// Whether `object` is a numpy array, and of no subclass.
pub(super) fn is_exact(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyUntypedArray>()
}

/// Whether `object` is a numpy array, perhaps of a subclass such as `numpy.memmap`.
pub(super) fn is_subclass(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyUntypedArray>()
}

/// Whether `object` is a numpy scalar, such as the sum of an array.
pub(super) fn is_scalar(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is a live Python object, this thread is attached, and numpy keeps its base type of scalars alive.
    unsafe {
        let scalars = get_type_object(object.py(), NpyTypes::PyGenericArrType_Type);
        pyo3::ffi::PyObject_TypeCheck(object.as_ptr(), scalars) != 0
    }
}

/// Reads an array.
pub(super) fn read(array: &Bound<'_, PyUntypedArray>) -> Result<Array, Reason> {
    let dtype = dtype_of(array)?;
    let (first, flags) = first_and_flags(array);
    let access = if flags & NPY_ARRAY_WRITEABLE != 0 { Access::Writable } else { Access::ReadOnly };
    let strides = (flags & NPY_ARRAY_C_CONTIGUOUS == 0).then(|| array.strides());
    Array::new(first, dtype, access, array.shape(), strides)
}

/// Returns address, dtype and number of elements of a packed, writable array; `None` for other objects.
#[inline]
pub(super) fn packed(object: &Bound<'_, PyAny>) -> Option<(*mut u8, DType, usize)> {
    const FLAGS: i32 = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_WRITEABLE;
    let array = object.cast_exact::<PyUntypedArray>().ok()?;
    let dtype = dtype_of(array).ok()?;
    let (first, flags) = first_and_flags(array);
    (flags & FLAGS == FLAGS).then(|| (first, dtype, array.len()))
}

/// Returns the address of the first element of an array, and its flags.
#[inline]
pub(super) fn first_and_flags(array: &Bound<'_, PyUntypedArray>) -> (*mut u8, i32) {
    // SAFETY: `array` is a live numpy array and this thread is attached; the two fields are copied.
    let fields = unsafe { &(*array.as_array_ptr()).fields };
    (fields.data.cast(), fields.flags)
}

fn dtype_of(array: &Bound<'_, PyUntypedArray>) -> Result<DType, Reason> {
    let descriptor = array.dtype();
    let remembered = usize::try_from(descriptor.num()).ok().and_then(|number| DTYPES.get(number));
    let known = match remembered.and_then(OnceLock::get) {
        Some(known) => *known,
        None => {
            let found = by_name(&descriptor)?;
            // Looked up without the lock, because the lookup may run another thread, which would wait here.
            remembered.map(|slot| slot.set(found));
            found
        }
    };
    match known {
        Some(dtype) if is_native(descriptor.byteorder()) => Ok(dtype),
        Some(_) => Err(Reason::byte_order(descriptor)),
        None => Err(Reason::dtype(descriptor)),
    }
}

fn by_name(descriptor: &Bound<'_, PyArrayDescr>) -> PyResult<Option<DType>> {
    let name: String = descriptor.getattr(intern!(descriptor.py(), "name"))?.extract()?;
    Ok(DType::named(&name).filter(|dtype| dtype.bytes() == descriptor.itemsize()))
}

/// Whether the byte order that a descriptor names is this machine's.
fn is_native(byteorder: u8) -> bool {
    byteorder != if cfg!(target_endian = "little") { b'>' } else { b'<' }
}
