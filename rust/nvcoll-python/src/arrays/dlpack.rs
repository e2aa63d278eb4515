//! Tensors of other libraries, borrowed through DLPack: torch, JAX, TensorFlow. None of them is imported.
//!
//! A producer lends a *managed tensor*: address, shape, strides in elements, dtype, device, and a deleter that is called once,
//! after the call. There are two forms of it and three ways to get one.
//!
//! ```text
//! type(x).__dlpack_c_exchange_api__     DLPack 1.2, torch from 2.10     a C function: some 100 ns instead of 10 us
//! x.__dlpack__(max_version=(1, 0))      DLPack >= 1.0                   capsule "dltensor_versioned": knows read-only, copied
//! x.__dlpack__()                        before                          capsule "dltensor": always taken as writable
//! ```
//!
//! JAX and TensorFlow promise their users that arrays never change, but lend them without the read-only flag. So nvcoll never writes
//! arrays whose type is from these libraries. numpy instead takes every capsule of the old form for read-only, which would exclude
//! tensors of older torch.
//!
//! The consumer that renames a capsule owns its tensor. Devices other than the CPU are refused by `__dlpack_device__`, before a
//! capsule is made, so that no stream is waited for.
//!
//! Source: dlpack.h 1.3 and the Python specification of DLPack (dmlc); the structures below state their C layout.

use std::ffi::{c_int, c_void, CStr};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyType};

use super::array::{Access, Array};
use super::element::Family;
use super::reason::Reason;

/// The version whose layouts are stated here. Cited: minor versions only add.
const VERSION: (u32, u32) = (1, 0);
/// `kDLCPU`. Cited.
const CPU: i32 = 1;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`. Cited.
const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`. Cited.
const IS_COPIED: u64 = 2;

/// Libraries whose arrays never change, by the first name of their modules.
const IMMUTABLE: [(&str, &str); 3] = [("jax", "JAX"), ("jaxlib", "JAX"), ("tensorflow", "TensorFlow")];

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    /// In elements; null if the tensor is dense.
    strides: *const i64,
    byte_offset: u64,
}

/// The function that takes a managed tensor back; a producer without need for it leaves it empty.
type Deleter = Option<unsafe extern "C" fn(*mut c_void)>;

/// `DLManagedTensor`, from before versions.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Deleter,
}

/// `DLManagedTensorVersioned`; up to `flags` its layout is the same in every major version.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Deleter,
    flags: u64,
    tensor: Tensor,
}

/// `DLPackExchangeAPI`, up to the one function that is called.
#[repr(C)]
struct ExchangeTable {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    /// `managed_tensor_from_py_object_no_sync`: 0, or -1 with a Python exception set.
    lend: Option<unsafe extern "C" fn(object: *mut c_void, out: *mut *mut c_void) -> c_int>,
}

/// A borrowed tensor; its drop returns it. The pointer is valid until then.
pub(super) struct Loan {
    managed: NonNull<c_void>,
    form: Form,
}

/// The way on which a tensor came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Unversioned,
    Versioned,
    /// A versioned tensor that came through the exchange table.
    Exchanged,
}

/// Returns the access to arrays of an object's library, if the library never lets them change.
fn access_of_library(object: &Bound<'_, PyAny>) -> Option<Access> {
    let module = object.get_type().module().ok()?;
    let module = module.to_str().ok()?;
    let first_name = module.split('.').next()?;
    IMMUTABLE.iter().find(|(name, _)| *name == first_name).map(|&(_, library)| Access::Immutable(library))
}

impl Loan {
    /// Returns the tensor and the access to it.
    fn tensor(&self) -> Result<(&Tensor, Access), Reason> {
        if self.form == Form::Unversioned {
            // SAFETY: a capsule called `dltensor` held it, so it is a `DLManagedTensor`, alive until its deleter is called.
            return Ok((unsafe { &self.managed.cast::<Unversioned>().as_ref().tensor }, Access::Writable));
        }
        let versioned = self.managed.cast::<Versioned>().as_ptr();
        // SAFETY: alive as above; the fields before the tensor lie there in every version.
        let (major, flags) = unsafe { ((*versioned).major, (*versioned).flags) };
        if major != VERSION.0 {
            let message = format!("speaks DLPack {major}, and {} is known here: pass a numpy array", VERSION.0);
            return Err(Reason::Refused(message));
        }
        let access = match flags {
            flags if flags & READ_ONLY != 0 => Access::ReadOnly,
            flags if flags & IS_COPIED != 0 => Access::Copied,
            _ => Access::Writable,
        };
        // SAFETY: its version is the one of this layout; alive as above.
        Ok((unsafe { &(*versioned).tensor }, access))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let managed = self.managed.as_ptr();
        // SAFETY: a loan is made by taking a tensor over (`claim`, `exchange`), and only this gives it back, once. The fields
        // up to the deleter lie there in every version.
        unsafe {
            let deleter = match self.form {
                Form::Unversioned => (*managed.cast::<Unversioned>()).deleter,
                Form::Versioned | Form::Exchanged => (*managed.cast::<Versioned>()).deleter,
            };
            if let Some(give_back) = deleter {
                give_back(managed);
            }
        }
    }
}

/// Borrows the tensor of an object; `None` if the object does not speak DLPack.
pub(super) fn borrow(object: &Bound<'_, PyAny>) -> Result<Option<Loan>, Reason> {
    let py = object.py();
    if let Some(loan) = exchange(object)? {
        return Ok(Some(loan));
    }
    if object.is_instance_of::<PyType>() || !object.hasattr(intern!(py, "__dlpack__"))? {
        return Ok(None);
    }
    let device: (i32, i32) = object.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
    refuse_other_devices(device.0, device.1)?;
    let capsule = capsule_of(object)?;
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    for (name, used, form) in [
        (c"dltensor_versioned", c"used_dltensor_versioned", Form::Versioned),
        (c"dltensor", c"used_dltensor", Form::Unversioned),
    ] {
        if let Some(managed) = claim(capsule, name, used)? {
            return Ok(Some(Loan { managed, form }));
        }
    }
    Err(Reason::refused("lends a DLPack capsule without a tensor: pass a numpy array"))
}

/// Returns a capsule in the newest form that the object supports.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let name = intern!(py, "__dlpack__");
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "max_version"), VERSION)?;
    match object.call_method(name, (), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0(name),
        answer => answer,
    }
}

/// Takes the tensor of a capsule with the name `name`, by renaming the capsule; `None` if it has another name.
fn claim(capsule: &Bound<'_, PyCapsule>, name: &CStr, used: &'static CStr) -> PyResult<Option<NonNull<c_void>>> {
    if !capsule.is_valid_checked(Some(name)) {
        return Ok(None);
    }
    let loan = capsule.pointer_checked(Some(name))?;
    // SAFETY: `capsule` is a live capsule, this thread is attached, and the name lives as long as the program.
    match unsafe { pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } {
        0 => Ok(Some(loan)),
        _ => Err(PyErr::fetch(capsule.py())),
    }
}

/// Borrows through the function table of the object's type, if it has one of our version.
fn exchange(object: &Bound<'_, PyAny>) -> Result<Option<Loan>, Reason> {
    let py = object.py();
    let Some(found) = object.get_type().getattr_opt(intern!(py, "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    let Some(table) = found.cast::<PyCapsule>().ok().and_then(|c| c.pointer_checked(Some(c"dlpack_exchange_api")).ok())
    else {
        return Ok(None);
    };
    // SAFETY: a capsule of this name holds a table that lives as long as the process and begins with its version; `lend` lies
    // there in every minor version of ours.
    let lend = unsafe {
        let table = table.cast::<ExchangeTable>().as_ptr();
        ((*table).major == VERSION.0).then(|| (*table).lend)
    };
    let Some(lend) = lend.flatten() else { return Ok(None) };
    let mut loan = std::ptr::null_mut();
    // SAFETY: this thread is attached, the table is that of the object's own type, and `loan` is a place for a pointer.
    let code = unsafe { lend(object.as_ptr().cast(), &raw mut loan) };
    match NonNull::new(loan) {
        Some(managed) if code == 0 => Ok(Some(Loan { managed, form: Form::Exchanged })),
        _ => Err(Reason::Raised(PyErr::fetch(py))),
    }
}

fn refuse_other_devices(device_type: i32, device_id: i32) -> Result<(), Reason> {
    let kind = match device_type {
        CPU => return Ok(()),
        2 => "cuda",
        3 => "cuda host memory",
        8 => "metal",
        10 => "rocm",
        11 => "rocm host memory",
        13 => "cuda managed memory",
        _ => "a device of DLPack type",
    };
    let found = match kind.starts_with('a') {
        true => format!("{kind} {device_type}"),
        false => format!("{kind}:{device_id}"),
    };
    Err(Reason::Refused(format!("is on {found}, calls run in CPU memory: pass a copy on the CPU, x.cpu() in torch")))
}

/// Reads a tensor that `object` lent.
pub(super) fn read(object: &Bound<'_, PyAny>, loan: Loan) -> Result<(Array, Loan), Reason> {
    let (tensor, access) = loan.tensor()?;
    // A lender of the newest form is believed: to ask its type for its module would cost more than the loan.
    let of_library = if loan.form == Form::Exchanged { None } else { access_of_library(object) };
    let access = of_library.unwrap_or(access);
    refuse_other_devices(tensor.device_type, tensor.device_id)?;
    let bits = tensor.bits as usize;
    let family = Family::of_dlpack(tensor.code).filter(|_| tensor.lanes == 1);
    let family =
        family.ok_or_else(|| Reason::dtype(format!("(DLPack code {}, lanes {})", tensor.code, tensor.lanes)))?;
    let dtype = family.dtype(bits).ok_or_else(|| Reason::dtype(family.spell(bits)))?;
    let first = tensor.data.wrapping_add(tensor.byte_offset as usize);
    let axes = usize::try_from(tensor.dimensions).map_err(|_| Reason::too_large())?;
    if axes == 0 {
        return Ok((Array::new(first, dtype, access, &[], None)?, loan));
    }
    if tensor.shape.is_null() {
        return Err(Reason::refused("is a DLPack tensor that has axes and no shape: pass a numpy array"));
    }
    // SAFETY: a tensor with axes has one length for each, and as many strides, unless it leaves them out.
    let (shape, strides) = unsafe {
        let of_axes = |values| slice::from_raw_parts(values, axes);
        (of_axes(tensor.shape), (!tensor.strides.is_null()).then(|| of_axes(tensor.strides)))
    };
    let lengths: Option<Vec<usize>> = shape.iter().map(|&length| length.try_into().ok()).collect();
    let in_bytes = |&stride: &i64| isize::try_from(stride).ok()?.checked_mul(dtype.bytes() as isize);
    let strides =
        strides.map(|strides| strides.iter().map(in_bytes).collect::<Option<Vec<_>>>().ok_or_else(Reason::too_large));
    let (lengths, strides) = (lengths.ok_or_else(Reason::too_large)?, strides.transpose()?);
    Ok((Array::new(first, dtype, access, &lengths, strides.as_deref())?, loan))
}
