//! One array of any source: address, layout and dtype.

use nvcoll_core::dtype::DType;
use nvcoll_engine::memory::block::MemoryBlock;
use nvcoll_engine::memory::heap::HeapBlock;
use nvcoll_engine::memory::strided::{gather, scatter, Axis, Layout, PlacedArray, TryBudget};
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::OriginalArray;

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
    /// Makes an array of what a source has found: the lengths of its axes and, unless it is packed, its strides in bytes.
    pub(super) fn new(
        first: *mut u8,
        dtype: DType,
        access: Access,
        lengths: &[usize],
        strides: Option<&[isize]>,
    ) -> Result<Self, Reason> {
        let axis = |(&length, &stride)| Axis { length, stride };
        let layout = match strides {
            Some(strides) => Layout::of(lengths.iter().zip(strides).map(axis), dtype.bytes()),
            None => Layout::dense(lengths.iter().copied(), dtype.bytes()),
        };
        let (layout, rows) = (layout.ok_or_else(Reason::too_large)?, lengths.first().copied());
        if first.is_null() && layout.count() > 0 {
            return Err(Reason::refused("has elements and no memory: pass an array whose memory exists"));
        }
        Ok(Self { first, layout, dtype, access, rows, copy: None })
    }

    /// Returns row `row` of axis 0, which has `rows` of them.
    pub(super) fn row(&self, rows: usize, row: usize) -> Result<Self, Reason> {
        let (offset, layout) = self.layout.row(rows, row).ok_or_else(Reason::too_large)?;
        let Self { dtype, access, .. } = *self;
        Ok(Self { first: self.first.wrapping_offset(offset), layout, dtype, access, rows: None, copy: None })
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
            true => self.shadow(None, "is strided, and there is no memory for a copy"),
            false => Ok(()),
        }
    }

    /// Allocates a copy, on which the engine works; `complaint` begins the message if there is no memory. Every rank can reach the copy
    /// if it can reach the array of `sharer`.
    pub(super) fn shadow(&mut self, sharer: Option<&Member>, complaint: &str) -> Result<(), Reason> {
        let bytes = self.layout.bytes();
        let is_shared = |member: &&Member| !member.is_in_one_space() && member.is_reachable(self.first, bytes);
        let refused = |error| Reason::Refused(format!("{complaint}: {error}"));
        let shared = sharer.filter(is_shared).map(|member| member.allocate(bytes)).transpose().map_err(refused)?;
        let no_memory = || Reason::Refused(format!("{complaint} of {bytes} bytes: pass a packed, writable array"));
        self.copy = Some(match shared.flatten() {
            Some(block) => CopyMemory::Symmetric(block),
            None => CopyMemory::Own(MemoryBlock::try_unset(bytes).ok_or_else(no_memory)?),
        });
        Ok(())
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

    /// Returns the place of the array; `is_written` says whether the call changes it.
    pub(super) fn original(&self, is_written: bool) -> OriginalArray {
        OriginalArray { address: self.first.addr(), layout: self.layout.clone(), is_written }
    }

    /// Returns the range of the array, which is array `number` of its call.
    pub(super) fn placed(&self, is_written: bool, number: usize) -> PlacedArray<'_> {
        PlacedArray::new(self.first.addr(), &self.layout, is_written, number)
    }

    /// Says whether both arrays are the same elements in the same order.
    pub(super) fn is_same_memory(&self, other: &Self) -> bool {
        self.first == other.first && self.dtype == other.dtype && self.layout.is_same(&other.layout)
    }
}
