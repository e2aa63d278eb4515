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

use std::ptr;
use std::sync::Mutex;

use pyo3::ffi::{PyLong_CheckExact, PyObject, PyUnicode_CheckExact};
use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, Holding};
use nvcoll_core::dtype::DType;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Buffers, Deadline};

use super::prepared::Prepared;
use super::{in_flight, numpy};
use crate::calls::choices::SharedProgram;
use crate::calls::request::Request;
use crate::gil::watched_rank;

/// The number of calls that a communicator remembers. Chosen: more than a training step has kinds of calls.
const MOST_REMEMBERED: usize = 16;

/// The last calls of a communicator, the latest first.
#[derive(Default)]
pub(crate) struct RepeatedCalls(Mutex<Vec<RepeatedCall>>);

struct RepeatedCall {
    outline: Outline,
    program: SharedProgram,
    mapped: Option<SharedProgram>,
    /// The objects whose addresses stand in the outline.
    _options: [Option<Py<PyAny>>; 3],
}

// SAFETY: the addresses are compared, never followed; the objects are dropped with the interpreter attached, or by pyo3 later.
unsafe impl Send for RepeatedCall {}

/// What a call looks like. Calls of one outline have the same programs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outline {
    collective: *const Collective,
    /// op, root and algorithm; null if left out.
    options: [*mut PyObject; 3],
    input: ArrayOutline,
    output: Option<ArrayOutline>,
    is_reachable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ArrayOutline {
    dtype: DType,
    count: usize,
}

/// A packed, writable numpy array with elements.
struct PackedArray {
    first: *mut u8,
    bytes: usize,
    outline: ArrayOutline,
}

impl RepeatedCalls {
    /// Makes a call that was made before, and returns its program; `None` if none is remembered that looks like it.
    pub(crate) fn run(
        &self,
        request: &Request<'_, '_>,
        member: &Member,
        deadline: impl FnOnce() -> Deadline,
    ) -> Option<PyResult<SharedProgram>> {
        if in_flight::any() {
            return None;
        }
        let (outline, buffers) = look_at(request, member)?;
        // Another thread in a call is refused later, with a word.
        let mut calls = self.0.try_lock().ok()?;
        let at = calls.iter().position(|call| call.outline == outline)?;
        calls[..=at].rotate_right(1);
        let RepeatedCall { program, mapped, .. } = &calls[0];
        // References of our own: `ndarray.resize` refuses meanwhile.
        let _arrays = (request.arrays.clone(), request.out.cloned());
        let deadline = deadline();
        // SAFETY: the arrays have elements of the dtype and the number of those of which `Prepared::new` made sure, are held, and
        // lie apart; the table of `prepared.rs` says what keeps the other demands.
        let outcome = watched_rank(request.arrays.py(), member, |is_interrupted| unsafe {
            member.run_on_copies(program, mapped.as_ref(), buffers, &[], deadline, is_interrupted)
        });
        Some(outcome.map(|()| program.clone()))
    }

    /// Remembers a call that was read and checked.
    pub(crate) fn remember(&self, request: &Request<'_, '_>, prepared: &Prepared, member: &Member) {
        let Some((outline, buffers)) = look_at(request, member) else { return };
        let Ok(mut calls) = self.0.try_lock() else { return };
        let read = prepared.buffers[0];
        let is_alike = (read.input, read.output) == (buffers.input, buffers.output) && !prepared.operands.is_copied();
        if is_alike && calls.iter().all(|call| call.outline != outline) {
            calls.truncate(MOST_REMEMBERED - 1);
            calls.insert(0, RepeatedCall::of(request, outline, prepared));
        }
    }
}

impl RepeatedCall {
    fn of(request: &Request<'_, '_>, outline: Outline, prepared: &Prepared) -> Self {
        let options = options_of(request).map(|option| option.cloned().map(Bound::unbind));
        Self { outline, program: prepared.program.clone(), mapped: prepared.mapped.clone(), _options: options }
    }
}

fn options_of<'a, 'py>(request: &Request<'a, 'py>) -> [Option<&'a Bound<'py, PyAny>>; 3] {
    [request.op, request.root, request.algorithm]
}

/// Returns what a call looks like, and its buffers; `None` if it must be read in full.
#[inline]
fn look_at(request: &Request<'_, '_>, member: &Member) -> Option<(Outline, Buffers)> {
    let has_more = request.counts.is_some() || request.table.is_some() || request.path.is_some();
    if has_more || request.collective.output == Holding::AllOnRoot {
        return None;
    }
    let input = PackedArray::of(request.arrays)?;
    let output = request.out.map(|out| PackedArray::of(out).filter(|output| output.is_apart_from(&input)).ok_or(()));
    let output = output.transpose().ok()?;
    let mut options = [ptr::null_mut(); 3];
    for (place, option) in options.iter_mut().zip(options_of(request)) {
        *place = option.map_or(Some(ptr::null_mut()), constant)?;
    }
    let is_reachable = |array: &PackedArray| member.is_reachable(array.first, array.bytes);
    let written = output.as_ref().unwrap_or(&input);
    let outline = Outline {
        collective: request.collective,
        options,
        input: input.outline,
        output: output.as_ref().map(|output| output.outline),
        is_reachable: is_reachable(&input) && is_reachable(written),
    };
    Some((outline, Buffers::new(input.first, written.first, 1.0)))
}

/// Returns the address of a text or an integer.
#[inline]
fn constant(object: &Bound<'_, PyAny>) -> Option<*mut PyObject> {
    let object = object.as_ptr();
    // SAFETY: `object` is a live Python object and this thread is attached.
    unsafe { PyUnicode_CheckExact(object) != 0 || PyLong_CheckExact(object) != 0 }.then_some(object)
}

impl PackedArray {
    #[inline]
    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        let (first, dtype, count) = numpy::packed(object)?;
        let outline = ArrayOutline { dtype, count };
        (count > 0).then_some(Self { first, bytes: count * dtype.bytes(), outline })
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        let (first, others) = (self.first.addr(), other.first.addr());
        first + self.bytes <= others || others + other.bytes <= first
    }
}
