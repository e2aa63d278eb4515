//! The arrays of one call, checked and ready to run: what the engine gets.
//!
//! ```text
//! let (mut operands, result) = Operands::new(...)?;     reads, checks, makes results, allocates packed copies
//! operands.gather();                                    fills the copies, without the GIL
//! engine.run(operands.buffers(...));
//! operands.write_back();                                only if the run succeeded
//! ```
//!
//! A written array shares no byte with another array. A run that fails leaves strided arrays as they were, and packed arrays that
//! the call writes undefined.

mod in_place;

use pyo3::prelude::*;

use nvcoll_core::collective::{Collective, Roles};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::memory::strided::{first_conflict, Conflict, PlacedArray, TryBudget};
use nvcoll_engine::program::Program;
use nvcoll_engine::ranks::member::Member;
use nvcoll_engine::{Buffers, OriginalArray};

use super::array::{Access, Array};
use super::bound::BoundArrays;
use super::contract::{Contract, Side};
use super::inferred::inferred;
use super::ranks::Ranks;
use super::results::{new_outputs, result_of};
use crate::error::invalid;

/// The advice on arrays that overlap.
pub(super) const APART: &str = "pass arrays that share no byte";

/// The arrays that a caller passed.
pub(crate) struct Passed<'a, 'py> {
    pub(crate) arrays: &'a Bound<'py, PyAny>,
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    /// The elements per part, if the caller passed them.
    pub(crate) counts: Option<Counts>,
    /// Whether the call runs after its result was returned.
    pub(crate) is_deferred: bool,
    /// The rank that calls; none if a node calls for all ranks.
    pub(crate) member: Option<&'a Member>,
}

/// The arrays of one call.
pub(crate) struct Operands {
    pub(crate) contract: Contract,
    /// The dtype of every array.
    pub(crate) dtype: DType,
    input: Ranks,
    /// None if the call has no outputs beside `input`; an absent array if the output of its rank is in `input`.
    output: Option<Ranks>,
    is_in_place: bool,
    /// The aliasing of the program.
    pub(crate) aliasing: Aliasing,
    /// Whether the input is copied to its place in the output before a run, because the program reads it there.
    copies_input_to_output: bool,
}

// SAFETY: the addresses are followed only in `gather` and `write_back`, which hold `&mut self`, and by the engine under the
// rules of its calls. The owners are only dropped, with the interpreter attached.
unsafe impl Send for Operands {}

impl Operands {
    /// Reads and checks the arrays of a call; returns them with the object that the call returns.
    ///
    /// # Errors
    /// An array that cannot be used or does not fit the others; the message names argument and rank.
    pub(crate) fn new<'py>(
        py: Python<'py>,
        contract: Contract,
        passed: Passed<'_, 'py>,
    ) -> PyResult<(Self, Bound<'py, PyAny>)> {
        let Passed { arrays, .. } = passed;
        let is_list_of_all = contract.own.is_none() && contract.is_of_root_only(Side::Output);
        let is_input = |out: &&Bound<'_, PyAny>| contract.is_of_one_part() && out.is(arrays) && !is_list_of_all;
        let out = passed.out.filter(|out| !is_input(out));
        let needs_new = passed.out.is_none() && !contract.is_of_one_part();
        let is_output = out.is_none() && !needs_new;
        let brings = |rank| is_output || contract.has(rank, Side::Input);
        let input = Ranks::read(&contract, Side::Input, contract.argument(), arrays, brings)?;
        let mut output = out.map(|out| read_output(&contract, out)).transpose()?;
        let is_said = passed.counts.is_some();
        let (dtype, counts) = inferred(&contract, arrays, &input, output.as_ref())?;
        let contract = contract.with_counts(passed.counts.unwrap_or(counts));
        let result = match needs_new {
            false => result_of(&contract, arrays, passed.out)?,
            true => {
                let made = new_outputs(&contract, arrays, dtype, passed.is_deferred)?;
                output = Some(read_output(&contract, &made)?);
                made
            }
        };
        let aliasing = Aliasing::InPlace;
        let mut operands =
            Self { contract, dtype, input, output, is_in_place: true, aliasing, copies_input_to_output: false };
        operands.check(py, passed.member, is_said)?;
        Ok((operands, result))
    }

    /// Makes the operands of a collective without data.
    pub(crate) fn without_data(collective: &'static Collective, member: Option<&Member>, world_size: u32) -> Self {
        let own = member.map(Member::rank);
        let (first_rank, number) = own.map_or((0, world_size as usize), |rank| (rank, 1));
        Self {
            contract: Contract::new(collective, Roles::of(world_size), own),
            dtype: DType::F32,
            input: Ranks::absent("arrays", first_rank, number),
            output: None,
            is_in_place: false,
            aliasing: Aliasing::Disjoint,
            copies_input_to_output: false,
        }
    }

    /// Says whether a program is of a call of these arrays.
    #[inline]
    pub(super) fn are_of(&self, program: &Program) -> bool {
        let call = program.call();
        call.collective == self.contract.collective
            && call.roles(program.world_size()) == self.contract.roles
            && (call.dtype, call.aliasing, &call.counts) == (self.dtype, self.aliasing, &self.contract.counts)
    }

    /// Panics unless these are the arrays of one rank.
    #[inline]
    pub(super) fn require_rank(&self, rank: u32) {
        assert!(self.input.arrays.len() == 1 && self.input.rank(0) == rank, "the arrays of rank {rank} were expected");
    }

    fn check(&mut self, py: Python<'_>, member: Option<&Member>, is_said: bool) -> PyResult<()> {
        self.check_alike(py, is_said)?;
        let known = member.and_then(|_| self.aliasing_known_to_all());
        self.check_aliasing(py, known != Some(Aliasing::Disjoint))?;
        let mut tries = TryBudget::of_a_call();
        self.check_writable(py, &mut tries)?;
        self.check_apart(py, &mut tries)?;
        if let (Some(member), Some(aliasing)) = (member, known) {
            self.choose_aliasing(py, member, aliasing)?;
        }
        if !self.copies_input_to_output {
            self.input.make_copies(py)?;
        }
        self.output.iter_mut().try_for_each(|output| output.make_copies(py))
    }

    /// Returns the Python objects that are held, for the garbage collector.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        std::iter::once(&self.input).chain(&self.output).flat_map(Ranks::objects)
    }

    /// Records every numpy array.
    pub(super) fn bind(&self, py: Python<'_>) -> BoundArrays {
        let mut bound = BoundArrays::default();
        self.input.bind(py, |at| self.is_changed(at) && self.output(at).is_none(), &mut bound);
        if let Some(output) = &self.output {
            output.bind(py, |at| self.is_changed(at), &mut bound);
        }
        bound
    }

    /// Says whether every rank can reach the arrays of a rank.
    pub(crate) fn are_reachable(&self, member: &Member) -> bool {
        let arrays = self.sides().into_iter().flat_map(|(_, arrays, _)| arrays).filter(|array| array.is_there());
        let is_reachable = |array: &Array| member.is_reachable(array.first, array.layout.bytes());
        !self.is_copied() && arrays.into_iter().all(is_reachable)
    }

    /// Says whether the engine sees some array through a copy.
    pub(super) fn is_strided(&self) -> bool {
        let mut outputs = self.output.iter().flat_map(|output| &output.arrays);
        self.input.arrays.iter().any(Array::has_copy) || outputs.any(Array::has_copy)
    }

    /// Says whether anything is copied before or after a run.
    pub(super) fn is_copied(&self) -> bool {
        self.copies_input_to_output || self.is_strided()
    }

    /// Returns where the array of one rank, or its copy, begins, and its bytes.
    pub(super) fn bytes_of_one_rank(&self, side: Side) -> (*mut u8, usize) {
        let array = match side {
            Side::Input => &self.input.arrays[0],
            Side::Output => self.written(0),
        };
        match self.has(0, side) && array.is_there() {
            true => (array.start(), array.layout.bytes()),
            false => (std::ptr::null_mut(), 0),
        }
    }

    /// Returns the addresses of each rank's arrays or copies; `scalar(i)` is the scalar of the i-th rank.
    pub(super) fn buffers(&self, scalar: impl Fn(usize) -> f64) -> Vec<Buffers> {
        let of_rank = |at: usize| {
            let output = self.written(at).start();
            let input = if self.copies_input_to_output {
                output.wrapping_add(self.before(at))
            } else {
                self.input.arrays[at].start()
            };
            Buffers::new(input, output, scalar(at))
        };
        (0..self.input.arrays.len()).map(of_rank).collect()
    }

    /// Returns all arrays as the user passed them, if the engine works on a copy of some; else none.
    pub(super) fn originals(&self) -> Vec<OriginalArray> {
        match self.is_copied() {
            true => self.arrays(),
            false => Vec::new(),
        }
    }

    /// Returns all arrays as the user passed them.
    pub(super) fn arrays(&self) -> Vec<OriginalArray> {
        let original = |(_, array, is_written): (usize, &Array, bool)| array.original(is_written);
        self.numbered().map(original).collect()
    }

    /// Returns every array that is no part of the other array of its rank, with its number and whether it is written.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (usize, &Array, bool)> {
        self.sides().into_iter().flat_map(move |(side, arrays, first)| {
            let there = arrays.iter().enumerate().filter(|(_, array)| array.is_there());
            there.filter_map(move |(at, array)| Some((first + at, array, self.is_written(at, side)?)))
        })
    }

    /// Returns the name of one of [`Operands::arrays`] in messages.
    pub(super) fn name(&self, at: usize) -> String {
        self.label(self.numbered().nth(at).map_or(0, |(number, ..)| number))
    }

    /// Fills the packed copies of strided arrays that are read.
    pub(super) fn gather(&mut self) {
        if !self.is_copied() {
            return;
        }
        for (at, array) in self.input.arrays.iter().enumerate() {
            if self.copies_input_to_output {
                let to = self.written(at).start().wrapping_add(self.before(at));
                // SAFETY: the owners are here; `check_apart` was true, and the output has room for the input's part.
                unsafe { array.copy_to(to) };
            } else if self.has(at, Side::Input) {
                // SAFETY: the owners are here.
                unsafe { array.gather() };
            }
        }
    }

    /// Writes the packed copies back to the strided arrays that are written.
    pub(super) fn write_back(&mut self) {
        if !self.is_copied() {
            return;
        }
        for at in (0..self.input.arrays.len()).filter(|&at| self.is_changed(at)) {
            // SAFETY: the owners are here, and `check_writable` was true before `new` returned.
            unsafe { self.written(at).write_back() };
        }
    }

    fn has(&self, at: usize, side: Side) -> bool {
        self.contract.has(self.input.rank(at), side)
    }

    /// Returns a rank's output, if it is an array beside the input.
    #[inline]
    fn output(&self, at: usize) -> Option<&Array> {
        self.output.as_ref().map(|output| &output.arrays[at]).filter(|array| array.is_there())
    }

    /// Returns the array that receives a rank's result.
    fn written(&self, at: usize) -> &Array {
        self.output(at).unwrap_or(&self.input.arrays[at])
    }

    /// Says whether the call changes the array [`Operands::written`].
    #[inline]
    fn is_changed(&self, at: usize) -> bool {
        self.has(at, Side::Output) && (self.output(at).is_some() || !self.contract.is_left_as_is(self.input.rank(at)))
    }

    /// Returns the bytes of a rank's longer array before its shorter array, in place.
    fn before(&self, at: usize) -> usize {
        self.contract.before_shorter(self.input.rank(at)) * self.dtype.bytes()
    }

    /// Returns the name of array `number` in messages. Inputs are numbered before outputs.
    pub(super) fn label(&self, number: usize) -> String {
        match (number.checked_sub(self.input.arrays.len()), &self.output) {
            (Some(at), Some(output)) => output.label(at),
            _ => self.input.label(number),
        }
    }

    /// Returns the arguments with their sides, and the number of the first array of each.
    fn sides(&self) -> [(Side, &[Array], usize); 2] {
        let (inputs, outputs) = (&self.input.arrays, self.output.as_ref().map(|output| &output.arrays[..]));
        [(Side::Input, inputs, 0), (Side::Output, outputs.unwrap_or_default(), inputs.len())]
    }

    /// Refuses arrays whose dtype or count is not that of the call.
    fn check_alike(&self, py: Python<'_>, is_said: bool) -> PyResult<()> {
        for (side, arrays, first) in self.sides() {
            for (at, array) in arrays.iter().enumerate() {
                let count = self.contract.count(self.input.rank(at), side);
                if array.is_there() && (array.dtype, array.layout.count()) != (self.dtype, count) {
                    return Err(self.unlike(py, array, first + at, count, is_said));
                }
            }
        }
        Ok(())
    }

    /// Returns the error for array `number`, which differs from the first array in dtype, or has not `count` elements.
    #[cold]
    fn unlike(&self, py: Python<'_>, array: &Array, number: usize, count: usize, is_said: bool) -> PyErr {
        let (dtype, name) = (self.dtype, self.contract.collective.name);
        let of_side = |(_, arrays, first): (_, &[Array], _)| Some(first + arrays.iter().position(Array::is_there)?);
        let like = self.sides().into_iter().find_map(of_side);
        let (label, like) = (self.label(number), self.label(like.unwrap_or(0)));
        if array.dtype != dtype {
            let found = array.dtype;
            let message = format!("{label} is {found}, {name} needs {dtype} (as {like}): pass {dtype} everywhere");
            return invalid(py, message);
        }
        let why = match (is_said, self.contract.is_of_one_part()) {
            (true, _) => "by `counts`".to_owned(),
            (false, true) => format!("as {like}"),
            (false, false) => format!("by {like}, world_size {}", self.contract.roles.world_size),
        };
        let found = array.layout.count();
        let may_differ = !is_said && !self.contract.is_of_one_part();
        let otherwise = if may_differ { ", or `counts=` with the elements of every part" } else { "" };
        invalid(
            py,
            format!(
                "{label} holds {found} elements, {name} needs {count} ({why}): pass an array of {count}{otherwise}"
            ),
        )
    }

    /// Refuses written arrays that are read-only, or whose elements share memory. An array that the call leaves unchanged may be
    /// read-only: the engine works on a copy of it.
    fn check_writable(&mut self, py: Python<'_>, tries: &mut TryBudget) -> PyResult<()> {
        for at in 0..self.input.arrays.len() {
            if self.is_changed(at) {
                let array = self.written(at);
                let number = if self.output(at).is_some() { self.input.arrays.len() + at } else { at };
                array.require_writable(tries).map_err(|reason| reason.about(py, self.label(number)))?;
            } else if self.has(at, Side::Output) && self.input.arrays[at].access != Access::Writable {
                let hidden = self.input.arrays[at].shadow(None, "is read-only, and there is no memory for a copy");
                hidden.map_err(|reason| reason.about(py, self.input.label(at)))?;
            }
        }
        Ok(())
    }

    /// Says whether an array is written, in whole or in part; `None` if it is a part of the other array of its rank.
    #[inline]
    fn is_written(&self, at: usize, side: Side) -> Option<bool> {
        let Some(output) = self.output(at) else { return Some(self.is_changed(at)) };
        let input = &self.input.arrays[at];
        match (self.is_in_place && input.is_there(), side) {
            (true, Side::Input) => (input.layout.count() >= output.layout.count()).then_some(true),
            (true, Side::Output) => (input.layout.count() < output.layout.count()).then_some(true),
            (false, Side::Input) => Some(false),
            (false, Side::Output) => Some(self.is_changed(at)),
        }
    }

    /// Refuses arrays that share a byte where one of them is written.
    fn check_apart(&self, py: Python<'_>, tries: &mut TryBudget) -> PyResult<()> {
        let mut ranges: Vec<_> =
            self.numbered().map(|(number, array, is_written)| array.placed(is_written, number)).collect();
        let advice = |a: usize, b: usize| self.advice_on_overlap(a.min(b), a.max(b));
        refuse_conflict(py, &mut ranges, tries, |number| self.label(number), advice)
    }

    /// Returns advice for arrays `a` and `b`, which overlap. Two arrays of one rank may be in place.
    #[cold]
    fn advice_on_overlap(&self, a: usize, b: usize) -> String {
        let collective = self.contract.collective;
        if self.contract.is_of_one_part() || !collective.can_be_in_place || b != a + self.input.arrays.len() {
            return APART.into();
        }
        let (Some(output), input) = (self.output(a), &self.input.arrays[a]) else { return APART.into() };
        if input.layout.is_strided() || output.layout.is_strided() {
            return format!("{APART}, or, to be in place, packed ones, such as np.ascontiguousarray(x)");
        }
        let (longer, shorter) = if output.layout.count() > input.layout.count() { (b, a) } else { (a, b) };
        let first = self.before(a) / self.dtype.bytes();
        let last = first + input.layout.count().min(output.layout.count());
        let [longer, shorter] = [longer, shorter].map(|number| self.label(number));
        format!("{APART}, or in place, with elements {first}:{last} of {longer} as {shorter}")
    }
}

/// Refuses arrays that share a byte where one of them is written.
pub(super) fn refuse_conflict(
    py: Python<'_>,
    ranges: &mut [PlacedArray<'_>],
    tries: &mut TryBudget,
    label: impl Fn(usize) -> String,
    advice: impl Fn(usize, usize) -> String,
) -> PyResult<()> {
    let message = match first_conflict(ranges, tries) {
        None => return Ok(()),
        Some(Conflict::Shared(a, b)) => {
            format!("{} and {} overlap, and one is written: {}", label(a), label(b), advice(a, b))
        }
        Some(Conflict::Undecided(a, b)) => {
            let (a, b) = (label(a), label(b));
            format!(
                "{a} and {b} interleave, one is written, and finding out whether they share a byte takes too long for \
                 their strides: pass packed arrays, such as np.ascontiguousarray(x)"
            )
        }
    };
    Err(invalid(py, message))
}

/// Reads `out`.
fn read_output(contract: &Contract, object: &Bound<'_, PyAny>) -> PyResult<Ranks> {
    // Without a root, all ranks must know whether the call is in place: rank 0 of exscan too.
    let is_of_all = contract.own.is_some() && !contract.collective.has_root;
    Ranks::read(contract, Side::Output, "out", object, |rank| is_of_all || contract.has(rank, Side::Output))
}
