//! Calls that a communicator makes again. A small call takes less time than reading and checking its arguments, so a communicator
//! remembers the programs of its last calls, by what the arguments look like.
//!
//! | remembered by | because |
//! |---|---|
//! | dtype and number of elements of each array | packed, writable numpy arrays of one outline pass every check alike, wherever they lie |
//! | the identity of `op`, `root`, `algorithm` | texts and integers never change; what is held keeps its address |
//!
//! All other calls are read in full each time: strided, read-only, overlapping, empty and other arrays, new results, `counts`, `path`,
//! ops and algorithms that are objects. So are calls that work on copies, and those beside calls in flight.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use nvcoll_core::collective::{Collective, Holding};
use nvcoll_core::dtype::DType;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::run::wait::now;
use nvcoll_engine::{Buffers, Deadline};

use super::bound_call::{BoundCall, Programs, SharedProgram};
use super::{in_flight, numpy};
use crate::engine::gil::watched_rank;

/// The number of calls that a communicator remembers. Chosen: more than a training step has kinds of calls.
const MOST_REMEMBERED: usize = 16;

/// The last calls of a communicator, the latest first.
#[derive(Default)]
pub(crate) struct RepeatedCalls(Mutex<Vec<RepeatedCall>>);

struct RepeatedCall {
    outline: Outline,
    programs: Programs,
    /// The objects whose addresses stand in the outline.
    _options: [Option<Py<PyAny>>; 3],
}

/// The arguments of a call without `counts` and `path`.
pub(crate) struct PlainCall<'a, 'py> {
    pub(crate) collective: &'static Collective,
    pub(crate) arrays: &'a Bound<'py, PyAny>,
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    /// op, root and algorithm.
    pub(crate) options: [Option<&'a Bound<'py, PyAny>>; 3],
}

/// What a call looks like. Calls of one outline have the same programs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outline {
    /// The addresses of the collective, and of op, root and algorithm; 0 for one that is left out.
    collective: usize,
    options: [usize; 3],
    input: ArrayOutline,
    output: Option<ArrayOutline>,
    is_reachable: bool,
}

/// The dtype and the number of elements.
type ArrayOutline = (DType, usize);

/// A packed, writable numpy array with elements.
struct PackedArray {
    first: *mut u8,
    bytes: usize,
    outline: ArrayOutline,
}

impl RepeatedCalls {
    /// Makes a call that was made before, and counts it; `None` if none is remembered that looks like it.
    #[inline]
    pub(crate) fn run(
        &self,
        call: &PlainCall<'_, '_>,
        member: &Member,
        deadline: impl FnOnce() -> Deadline,
        count: impl FnOnce(&SharedProgram),
    ) -> Option<PyResult<()>> {
        if in_flight::any() {
            return None;
        }
        let (outline, buffers) = call.look(member)?;
        // Another thread in a call is refused later, with a word.
        let mut calls = self.0.try_lock().ok()?;
        let at = calls.iter().position(|call| call.outline == outline)?;
        calls[..=at].rotate_right(1);
        let programs = &calls[0].programs;
        // References of our own: `ndarray.resize` refuses meanwhile.
        let _arrays = (call.arrays.clone(), call.out.cloned());
        let deadline = deadline();
        let outcome = watched_rank(call.arrays.py(), member, deadline, |limit| {
            // SAFETY: each array has the dtype and the number of elements that `BoundCall::new` compared with the program. The arrays
            // are held, and lie apart. The table of `bound_call.rs` says what keeps the other demands.
            now(unsafe { programs.run_of_rank(member, buffers, &[], limit) })
        });
        Some(outcome.map(|()| count(&programs.own)))
    }

    /// Remembers a call that was read and checked.
    pub(crate) fn remember(&self, call: &PlainCall<'_, '_>, bound: &BoundCall, member: &Member) {
        let (Some((outline, buffers)), Some(programs)) = (call.look(member), bound.programs()) else { return };
        let is_alike =
            bound.buffers_in_place().is_some_and(|read| (read.input, read.output) == (buffers.input, buffers.output));
        let Ok(mut calls) = self.0.try_lock() else { return };
        if is_alike && calls.iter().all(|call| call.outline != outline) {
            calls.truncate(MOST_REMEMBERED - 1);
            let options = call.options.map(|option| option.cloned().map(Bound::unbind));
            calls.insert(0, RepeatedCall { outline, programs: programs.clone(), _options: options });
        }
    }
}

impl PlainCall<'_, '_> {
    /// Returns what the call looks like, and its buffers; `None` if it must be read in full.
    #[inline]
    fn look(&self, member: &Member) -> Option<(Outline, Buffers)> {
        if self.collective.output == Holding::AllOnRoot {
            return None;
        }
        let input = PackedArray::of(self.arrays)?;
        let output = self.out.map(|out| PackedArray::of(out).filter(|output| output.is_apart_from(&input)).ok_or(()));
        let output = output.transpose().ok()?;
        let mut options = [0; 3];
        for (place, option) in options.iter_mut().zip(self.options) {
            *place = option.map_or(Some(0), constant)?;
        }
        let is_reachable = |array: &PackedArray| member.is_reachable(array.first, array.bytes);
        let written = output.as_ref().unwrap_or(&input);
        let outline = Outline {
            collective: std::ptr::from_ref(self.collective).addr(),
            options,
            input: input.outline,
            output: output.as_ref().map(|output| output.outline),
            is_reachable: is_reachable(&input) && is_reachable(written),
        };
        Some((outline, Buffers::new(input.first, written.first, 1.0)))
    }
}

/// Returns the address of a text or an integer.
#[inline]
fn constant(object: &Bound<'_, PyAny>) -> Option<usize> {
    let is_constant = object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyInt>();
    is_constant.then_some(object.as_ptr().addr())
}

impl PackedArray {
    #[inline]
    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        let (first, dtype, count) = numpy::packed(object)?;
        (count > 0).then_some(Self { first, bytes: count * dtype.bytes(), outline: (dtype, count) })
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        let (first, others) = (self.first.addr(), other.first.addr());
        first + self.bytes <= others || others + other.bytes <= first
    }
}
