//! One array of any source: address, layout and dtype.

use nvcoll_core::dtype::DType;
use nvcoll_engine::memory::block::MemoryBlock;
use nvcoll_engine::memory::heap::HeapBlock;
use nvcoll_engine::memory::strided::{gather, scatter, Layout, TryBudget};
use nvcoll_engine::ranks::member::Member;

use super::reason::Reason;

/// An array, which its owner keeps in place.
pub(super) struct Array {
    /// The first element.
    pub(super) first: *mut u8,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) access: Access,
    /// The length of axis 0; `None` for an array without axes.
    pub(super) rows: Option<usize>,
    /// The packed copy of a strided array; the engine works on it.
    copy: Option<CopyMemory>,
}

/// The memory of a copy.
enum CopyMemory {
    Own(MemoryBlock),
    /// Every rank can reach it, as the array itself.
    Symmetric(HeapBlock),
}

/// The access that a call has to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The call may write the array.
    Writable,
    /// The producer declares the array read-only.
    ReadOnly,
    /// The named library promises its users that arrays never change.
    Immutable(&'static str),
    /// The producer lends a copy, so a write would be lost.
    Copied,
    /// There is no array, and the call needs none.
    Absent,
}

impl CopyMemory {
    fn start(&self) -> *mut u8 {
        match self {
            Self::Own(block) => block.start(),
            Self::Symmetric(block) => block.start(),
        }
    }
}

impl Array {
    /// Makes an array of the findings of a source.
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

    /// Makes the placeholder of a rank without an array.
    pub(super) fn absent() -> Self {
        let (first, layout, dtype) = (std::ptr::null_mut(), Layout::packed(0, 1), DType::F32);
        Self { first, layout, dtype, access: Access::Absent, rows: None, copy: None }
    }

    /// Says whether there is an array.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.access != Access::Absent
    }

    /// Refuses an array that a call cannot write; `tries` limits the search for elements that share memory.
    pub(super) fn require_writable(&self, tries: &mut TryBudget) -> Result<(), Reason> {
        match self.access {
            Access::Writable | Access::Absent => {}
            Access::ReadOnly => {
                return Err(Reason::refused("is read-only and would be written: pass a writable array"))
            }
            Access::Immutable(library) => {
                return Err(Reason::Refused(format!(
                    "is an array of {library}, which never changes, and would be written: pass a copy, np.array(x)"
                )))
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

    /// Allocates the packed copy of a strided array.
    pub(super) fn make_copy(&mut self) -> Result<(), Reason> {
        match self.layout.is_strided() {
            true => self.shadow("is strided, and there is no memory for a copy"),
            false => Ok(()),
        }
    }

    /// Allocates a copy, on which the engine works; `complaint` begins the message if there is no memory.
    pub(super) fn shadow(&mut self, complaint: &str) -> Result<(), Reason> {
        let bytes = self.layout.bytes();
        let no_memory = || Reason::Refused(format!("{complaint} of {bytes} bytes: pass a packed, writable array"));
        self.copy = Some(CopyMemory::Own(MemoryBlock::try_unset(bytes).ok_or_else(no_memory)?));
        Ok(())
    }

    /// Allocates a copy as [`Array::shadow`] does, which every rank can reach if it can reach the array of `member`.
    pub(super) fn shadow_for(&mut self, member: &Member, complaint: &str) -> Result<(), Reason> {
        let bytes = self.layout.bytes();
        if !member.share_memory() && member.is_reachable(self.first, bytes) {
            let refused = |error| Reason::Refused(format!("{complaint}: {error}"));
            if let Some(block) = member.allocate(bytes).map_err(refused)? {
                self.copy = Some(CopyMemory::Symmetric(block));
                return Ok(());
            }
        }
        self.shadow(complaint)
    }

    /// Returns the address of the elements for the engine.
    pub(super) fn start(&self) -> *mut u8 {
        self.copy.as_ref().map_or(self.first, CopyMemory::start)
    }

    /// Says whether the engine works on a copy.
    pub(super) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Fills the copy, if there is one.
    ///
    /// # Safety
    /// The owner of the array is held.
    pub(super) unsafe fn gather(&self) {
        if let Some(copy) = &self.copy {
            // SAFETY: the source found the elements at `first`, and the caller holds their owner; the copy has room for all.
            unsafe { gather(&self.layout, self.first, copy.start()) };
        }
    }

    /// Copies the elements to other memory.
    ///
    /// # Safety
    /// The owner of the array is held; `to` is writable for all elements and shares no byte with the array.
    pub(super) unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: the source found the elements at `first`; the caller holds the owner and promises `to`.
        unsafe { gather(&self.layout, self.first, to) };
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

    /// Says whether both arrays are the same elements in the same order.
    pub(super) fn is_same_memory(&self, other: &Self) -> bool {
        self.first == other.first && self.dtype == other.dtype && self.layout.is_same(&other.layout)
    }
}
