//! One array, whoever made it: where it lies and what its elements are.

use nvcoll_core::dtype::DType;
use nvcoll_engine::memory::Block;
use nvcoll_engine::strided::{gather, scatter, Layout, Tries};

use super::reason::Reason;

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
