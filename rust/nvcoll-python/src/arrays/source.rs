//! The sources of arrays, which are tried in turn, and the owners of their memory.

use ::numpy::PyUntypedArray;
use pyo3::intern;
use pyo3::prelude::*;

use super::array::Array;
use super::reason::Reason;
use super::{buffer, dlpack, numpy};

/// The owner of an array's memory. A thread that is attached to the interpreter drops it.
pub(super) enum Owner {
    Array(Py<PyUntypedArray>),
    Tensor(#[expect(dead_code, reason = "held for its drop")] dlpack::Loan),
    Buffer(#[expect(dead_code, reason = "held for its drop")] buffer::Loan),
}

impl Owner {
    /// Returns the numpy array that is held; `None` for a loan, whose objects only the lender knows.
    pub(super) fn array(&self) -> Option<&Py<PyUntypedArray>> {
        match self {
            Self::Array(array) => Some(array),
            Self::Tensor(_) | Self::Buffer(_) => None,
        }
    }
}

/// Reads an object: as a numpy array, then through DLPack, then through the buffer protocol.
#[inline]
pub(super) fn read(object: Bound<'_, PyAny>) -> Result<(Array, Owner), Reason> {
    if numpy::is_exact(&object) {
        return of_numpy(object);
    }
    if numpy::is_subclass(&object) {
        refuse_masked(&object)?;
        return of_numpy(object);
    }
    if numpy::is_scalar(&object) {
        return Err(Reason::refused("is a numpy scalar, which has no memory to share: pass an array, np.array(x)"));
    }
    refuse_lazy(&object)?;
    match dlpack::borrow(&object)? {
        Some(loan) => dlpack::read(&object, loan).map(|(array, loan)| (array, Owner::Tensor(loan))),
        None => buffer::read(&object).map(|(array, loan)| (array, Owner::Buffer(loan))),
    }
}

#[inline]
fn of_numpy(object: Bound<'_, PyAny>) -> Result<(Array, Owner), Reason> {
    let array = object.cast_into::<PyUntypedArray>().map_err(PyErr::from)?;
    Ok((numpy::read(&array)?, Owner::Array(array.unbind())))
}

/// Refuses a masked array: a call would use the elements under the mask, which numpy leaves out.
fn refuse_masked(object: &Bound<'_, PyAny>) -> Result<(), Reason> {
    match object.hasattr(intern!(object.py(), "mask"))? {
        true => {
            Err(Reason::refused("is a masked array, and a call would not see its mask: pass x.filled(value) or x.data"))
        }
        false => Ok(()),
    }
}

/// Refuses a tensor whose values are not those in memory. Autograd would miss the change, or a negation or a conjugation is
/// pending, which DLPack cannot express.
fn refuse_lazy(object: &Bound<'_, PyAny>) -> Result<(), Reason> {
    let py = object.py();
    let Some(requires_grad) = object.getattr_opt(intern!(py, "requires_grad"))? else { return Ok(()) };
    if requires_grad.is_truthy()? {
        return Err(Reason::refused("requires grad, and autograd would not see the call: pass x.detach() or x.grad"));
    }
    for (question, what, instead) in [
        (intern!(py, "is_neg"), "negated", "x.resolve_neg()"),
        (intern!(py, "is_conj"), "conjugated", "x.resolve_conj()"),
    ] {
        let Some(is_pending) = object.getattr_opt(question)? else { continue };
        if is_pending.call0()?.is_truthy()? {
            let message = format!("is a lazily {what} view, whose memory holds other values: pass {instead}");
            return Err(Reason::Refused(message));
        }
    }
    Ok(())
}
