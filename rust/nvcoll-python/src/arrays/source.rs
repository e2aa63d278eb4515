//! The sources of arrays, which are tried in turn, and the owners of their memory.

use pyo3::intern;
use pyo3::prelude::*;

use super::array::Array;
use super::bound::BoundArray;
use super::reason::Reason;
use super::{buffer, dlpack, numpy};

/// The owner of an array's memory. A thread that is attached to the interpreter drops it.
pub(super) enum Owner {
    /// A numpy array.
    Object(Py<PyAny>),
    Tensor(#[expect(dead_code, reason = "held for its drop")] dlpack::Loan),
    Buffer(#[expect(dead_code, reason = "held for its drop")] buffer::Loan),
}

impl Owner {
    /// Returns the Python object that is held; `None` for a loan, whose objects only the lender knows.
    pub(super) fn object(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Tensor(_) | Self::Buffer(_) => None,
        }
    }

    /// Records the array as it is now; `None` for a loan.
    pub(super) fn bound(&self, py: Python<'_>) -> Option<BoundArray> {
        // SAFETY: `read` makes an owned object of nothing but numpy arrays; it is alive, and `py` shows that this thread is
        // attached.
        self.object().map(|object| unsafe { BoundArray::of(py, object.as_ptr().cast()) })
    }

    /// Returns the change of the array since [`Owner::bound`]; `is_written` says whether runs write it.
    #[inline]
    pub(super) fn change(&self, _py: Python<'_>, bound: &BoundArray, is_written: bool) -> Option<&'static str> {
        // SAFETY: as in `bound`.
        self.object().and_then(|object| unsafe { bound.change(object.as_ptr().cast(), is_written) })
    }
}

/// Reads an object: as a numpy array, then through DLPack, then through the buffer protocol.
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

fn of_numpy(object: Bound<'_, PyAny>) -> Result<(Array, Owner), Reason> {
    Ok((numpy::read(&object)?, Owner::Object(object.unbind())))
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
