//! One array, whoever made it: where it lies, what its elements are, and what keeps it alive.

use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::dtype::DType;
use nvcoll_engine::memory::Block;
use nvcoll_engine::strided::{gather, scatter, Layout, Tries};

use super::reason::Reason;
use super::{buffer, dlpack, numpy};

/// An array that its owner keeps in place.
pub(super) struct Array {
    /// The first element.
    pub(super) first: *mut u8,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) access: Access,
    /// The length of axis 0; `None` for an array without axes.
    pub(super) rows: Option<usize>,
    /// The packed copy of a strided array, which the engine sees in its place.
    copy: Option<Block>,
}

/// What may be done with the memory of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Writable,
    /// Its producer says so.
    ReadOnly,
    /// It is a copy: what a call wrote into it, nobody would see.
    Copied,
}

/// What keeps the memory of an array alive; only ever dropped, by a thread that is attached to the interpreter.
pub(super) enum Owner {
    Object(#[expect(dead_code, reason = "held for its drop")] Py<PyAny>),
    Tensor(#[expect(dead_code, reason = "held for its drop")] dlpack::Loan),
    Buffer(#[expect(dead_code, reason = "held for its drop")] buffer::Loan),
}

impl Array {
    /// Puts together what a source found.
    pub(super) fn new(
        first: *mut u8,
        layout: Layout,
        dtype: DType,
        access: Access,
        rows: Option<usize>,
    ) -> Result<Self, Reason> {
        if first.is_null() && layout.count() > 0 {
            return Err(Reason::refused("has elements and no memory: pass an array whose memory exists"));
        }
        Ok(Self { first, layout, dtype, access, rows, copy: None })
    }

    /// Reads an object: as a numpy array, then through DLPack, then through the buffer protocol.
    pub(super) fn of(object: Bound<'_, PyAny>) -> Result<(Self, Owner), Reason> {
        if numpy::is_exact(&object) {
            return numpy::read(object);
        }
        if numpy::is_subclass(&object) {
            refuse_masked(&object)?;
            return numpy::read(object);
        }
        if numpy::is_scalar(&object) {
            return Err(Reason::refused("is a numpy scalar, which has no memory to share: pass an array, np.array(x)"));
        }
        refuse_lazy(&object)?;
        match dlpack::borrow(&object)? {
            Some(loan) => dlpack::read(loan),
            None => buffer::read(&object),
        }
    }

    /// Refuses an array that a call writes and must not; `tries` is what it may spend on elements that share memory.
    pub(super) fn require_writable(&self, tries: &mut Tries) -> Result<(), Reason> {
        match self.access {
            Access::Writable => {}
            Access::ReadOnly => {
                return Err(Reason::refused("is read-only and would be written: pass a writable array"))
            }
            Access::Copied => {
                return Err(Reason::refused(
                    "is lent as a copy, and nobody would see what is written: pass an array that lends its own memory",
                ))
            }
        }
        if !self.layout.is_strided() {
            return Ok(());
        }
        match self.layout.overlaps_itself(tries) {
            Some(false) => Ok(()),
            Some(true) => {
                Err(Reason::refused("has elements that share memory and would be written: pass a copy of it"))
            }
            None => Err(Reason::refused(
                "would be written, and finding out whether its elements share memory takes too long for its strides: \
                 pass a packed copy of it",
            )),
        }
    }

    /// Makes room for the packed copy, if the array is strided.
    pub(super) fn make_copy(&mut self) -> Result<(), Reason> {
        if self.layout.is_strided() {
            let bytes = self.layout.bytes();
            let no_memory =
                || format!("is strided, and there is no memory for a copy of {bytes} bytes: pass it packed");
            self.copy = Some(Block::try_unset(bytes).ok_or_else(|| Reason::Refused(no_memory()))?);
        }
        Ok(())
    }

    /// Returns where the engine finds the elements.
    pub(super) fn start(&self) -> *mut u8 {
        self.copy.as_ref().map_or(self.first, Block::start)
    }

    /// Whether the engine sees a copy.
    pub(super) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Fills the copy, if there is one.
    ///
    /// # Safety
    /// The owner of the array is held.
    pub(super) unsafe fn gather(&self) {
        if let Some(copy) = &self.copy {
            // SAFETY: the source said where the elements are, and the caller holds what keeps them there; the copy is ours
            // and was made for as many.
            unsafe { gather(&self.layout, self.first, copy.start()) };
        }
    }

    /// Writes the copy back, if there is one.
    ///
    /// # Safety
    /// The owner of the array is held, and [`Array::require_writable`] was true.
    pub(super) unsafe fn write_back(&self) {
        if let Some(copy) = &self.copy {
            // SAFETY: as in `gather`, and the array may be written.
            unsafe { scatter(&self.layout, copy.start(), self.first) };
        }
    }

    /// Whether both are the same elements in the same order.
    pub(super) fn is_same_memory(&self, other: &Self) -> bool {
        self.first == other.first && self.dtype == other.dtype && self.layout.is_same(&other.layout)
    }
}

/// Refuses a masked array: numpy would leave out what is under the mask, a call would not.
fn refuse_masked(object: &Bound<'_, PyAny>) -> Result<(), Reason> {
    match object.hasattr(intern!(object.py(), "mask"))? {
        true => {
            Err(Reason::refused("is a masked array, and a call would not see its mask: pass x.filled(value) or x.data"))
        }
        false => Ok(()),
    }
}

/// Refuses a tensor whose values are not plainly those in memory: autograd would miss the change, or what DLPack does not
/// speak of (a negation, a conjugation) is still to be done.
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
