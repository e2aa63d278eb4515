//! The arrays of a left fold on the calling thread: what the engine's [`LeftFold`] gets, checked.

use pyo3::prelude::*;

use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::{LeftFold, Vector};
use nvcoll_engine::memory::strided::TryBudget;

use super::array::Array;
use super::operands::APART;
use super::ranks::is_list;
use super::reason::Reason;
use super::source::{self, Owner};
use crate::error::invalid;
use crate::integers::items_of;

/// A packed array, its name in messages, and the owner of its memory.
struct Packed {
    name: String,
    array: Array,
    _owner: Owner,
}

impl Packed {
    fn read(name: impl Into<String>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, name) = (object.py(), name.into());
        let about = |reason: Reason| reason.about(py, &name);
        let (array, owner) = source::read(object.clone()).map_err(about)?;
        match array.layout.is_strided() {
            true => Err(about(Reason::refused("is strided: pass a packed array, np.ascontiguousarray(x)"))),
            false => Ok(Self { name, array, _owner: owner }),
        }
    }

    fn count(&self) -> usize {
        self.array.layout.count()
    }

    fn check_count(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        let (name, found) = (&self.name, self.count());
        match found == count {
            true => Ok(()),
            false => Err(invalid(py, format!("{name} holds {found} elements, and `out` {count}: pass {count}"))),
        }
    }

    /// Says whether its elements are of the accumulator of `dtype`, in which `op` can leave them.
    ///
    /// # Errors
    /// They are neither of `dtype` nor such.
    fn is_wide(&self, py: Python<'_>, dtype: DType, op: Op) -> PyResult<bool> {
        let (found, wide) = (self.array.dtype, dtype.accumulator());
        let rounds = wide != dtype && matches!(op, Op::Sum | Op::Prod | Op::Avg | Op::PremulSum);
        if found == dtype || rounds && found == wide {
            return Ok(found != dtype);
        }
        let or_wide = if rounds { format!(" or {wide}") } else { String::new() };
        let name = &self.name;
        Err(invalid(py, format!("{name} is {found}, and {op} of {dtype} needs {dtype}{or_wide}")))
    }
}

/// The sources of a fold.
struct Sources {
    /// One each, or one with all.
    arrays: Vec<Packed>,
    starts: Vec<*const u8>,
}

impl Sources {
    /// Reads arrays of one dtype with `count` elements each.
    fn read(object: &Bound<'_, PyAny>, count: usize) -> PyResult<Self> {
        let py = object.py();
        if !is_list(object) {
            return Self::in_one(py, Packed::read("`sources`", object)?, count);
        }
        let items = items_of("`sources`", object, "a list of arrays")?;
        let read = |(at, item)| Packed::read(format!("source {at}"), item);
        let arrays: Vec<Packed> = items.iter().enumerate().map(read).collect::<PyResult<_>>()?;
        let Some(first) = arrays.first() else {
            return Err(invalid(py, "`sources` is empty: pass at least one array"));
        };
        let dtype = first.array.dtype;
        for source in &arrays {
            source.check_count(py, count)?;
            if source.array.dtype != dtype {
                let message =
                    format!("{} is {}, and source 0 {dtype}: pass one dtype", source.name, source.array.dtype);
                return Err(invalid(py, message));
            }
        }
        Ok(Self { starts: arrays.iter().map(|source| source.array.first.cast_const()).collect(), arrays })
    }

    /// Takes the sources that are in one array, each of `count` elements.
    fn in_one(py: Python<'_>, all: Packed, count: usize) -> PyResult<Self> {
        let (found, bytes) = (all.count(), count * all.array.dtype.bytes());
        let number = found.checked_div(count).unwrap_or(1);
        if number == 0 || number * count != found {
            let message = format!("`sources` holds {found} elements, and `out` {count}: pass {count} for each source");
            return Err(invalid(py, message));
        }
        let start = |at| all.array.first.wrapping_add(at * bytes).cast_const();
        Ok(Self { starts: (0..number).map(start).collect(), arrays: vec![all] })
    }
}

/// The arrays of a left fold.
pub(crate) struct FoldArrays {
    carry: Option<Packed>,
    sources: Sources,
    out: Packed,
}

impl FoldArrays {
    /// Reads the arrays.
    ///
    /// # Errors
    /// One cannot be used, or has another length than the others.
    pub(crate) fn read(
        py: Python<'_>,
        sources: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        carry: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let out = Packed::read("`out`", out)?;
        out.array.require_writable(&mut TryBudget::of_a_call()).map_err(|reason| reason.about(py, &out.name))?;
        let carry = carry.map(|carry| Packed::read("`carry`", carry)).transpose()?;
        carry.as_ref().map_or(Ok(()), |carry| carry.check_count(py, out.count()))?;
        Ok(Self { carry, sources: Sources::read(sources, out.count())?, out })
    }

    /// Says whether there is nothing to fold. Then the number of sources in one array is not known.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.count() == 0
    }

    /// Returns the number of sources.
    pub(crate) fn sources(&self) -> usize {
        self.sources.starts.len()
    }

    /// Returns the dtype of the fold, whose accumulator may be the dtype of some arrays.
    pub(crate) fn dtype(&self) -> DType {
        let (read, written) = (self.sources.arrays[0].array.dtype, self.out.array.dtype);
        if written.accumulator() == read {
            written
        } else {
            read
        }
    }

    /// Folds on the calling thread, without the GIL.
    ///
    /// # Errors
    /// An array has a dtype that the fold cannot have there, or `out` a byte of another.
    pub(crate) fn fold(&self, py: Python<'_>, op: Op, scalars: &[f64], divisor: Option<u32>) -> PyResult<()> {
        let dtype = self.dtype();
        let vector = |packed: &Packed| {
            PyResult::Ok(Vector { start: packed.array.first, is_wide: packed.is_wide(py, dtype, op)? })
        };
        let fold = LeftFold {
            dtype,
            op,
            carry: self.carry.as_ref().map(vector).transpose()?,
            sources: &self.sources.starts,
            are_sources_wide: self.sources.arrays[0].is_wide(py, dtype, op)?,
            scalars,
            divisor,
            out: vector(&self.out)?,
            count: self.out.count(),
        };
        check_apart(py, &fold)?;
        // SAFETY: every vector was checked to have `count` elements of its width, `out` to be writable and apart; `self` holds the
        // owners of all.
        py.detach(|| unsafe { fold.run() });
        Ok(())
    }
}

/// Refuses an `out` that shares a byte with another vector and is not exactly that.
fn check_apart(py: Python<'_>, fold: &LeftFold<'_>) -> PyResult<()> {
    let range = |start: *const u8, is_wide| {
        let width = if is_wide { fold.dtype.accumulator().bytes() } else { fold.dtype.bytes() };
        (start.addr(), start.addr() + fold.count * width)
    };
    let out = range(fold.out.start, fold.out.is_wide);
    let sources = fold.sources.iter().map(|&source| range(source, fold.are_sources_wide));
    let mut others = fold.carry.iter().map(|carry| range(carry.start, carry.is_wide)).chain(sources);
    match others.any(|other| other != out && other.0 < out.1 && out.0 < other.1) {
        true => Err(invalid(py, format!("`out` shares bytes with another array and is not the same: {APART}"))),
        false => Ok(()),
    }
}
