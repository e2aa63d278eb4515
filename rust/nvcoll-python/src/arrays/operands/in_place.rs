//! Whether a call is in place, and what its ranks can know of that.
//!
//! A call is *in place* on a rank if `out` is there exactly the memory that the contract says: all of its input, or the part
//! of the longer of the two that the shorter holds. A call without `out` is in place too, if input and output are of the same
//! elements; otherwise outputs are new arrays.
//!
//! **Rooted calls of one rank.** Ranks that have one array cannot know whether the root, which has two, is in place. So the
//! program is the one in place wherever the output holds all parts of the input, else the one out of place; a root that
//! called otherwise moves its own input to where the program looks for it, or has its own part written to a copy:
//!
//! ```text
//! broadcast, reduce, gather   in place      root with `out` apart: input is copied into `out` before
//! scatter                     out of place  root with `out` in its input: the part is written to a copy, then back
//! ```

use pyo3::prelude::*;

use nvcoll_core::schedule::Aliasing;

use super::Operands;
use crate::arrays::array::Array;
use crate::arrays::caller::Caller;
use crate::arrays::contract::{Contract, Side};
use crate::error::invalid;

/// How the input and the output of a rank lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// As the contract wants it in place.
    Same,
    /// Otherwise.
    Apart,
    /// One of the two has no elements; true if it lies where it would in place.
    Empty(bool),
}

impl Operands {
    /// Says how input and output of a rank lie to each other.
    fn meeting(&self, at: usize) -> Meeting {
        let (input, Some(output)) = (&self.input.arrays[at], self.output(at)) else { return Meeting::Empty(false) };
        if !input.is_there() {
            return Meeting::Empty(false);
        }
        if !self.contract.collective.can_be_in_place {
            return Meeting::Apart;
        }
        let (a, b) = (input.layout.count(), output.layout.count());
        if a == b {
            // Arrays without elements may lie at one address and are not in place for it.
            return match (a, input.is_same_memory(output)) {
                (0, _) => Meeting::Empty(false),
                (_, true) => Meeting::Same,
                (_, false) => Meeting::Apart,
            };
        }
        let (longer, shorter) = if a > b { (input, output) } else { (output, input) };
        let is_packed = !longer.layout.is_strided() && !shorter.layout.is_strided();
        let is_there = is_packed && shorter.first == longer.first.wrapping_add(self.before(at));
        // A slice without elements points to the first of its array in numpy, wherever it begins.
        let is_inside = || (shorter.first.addr().wrapping_sub(longer.first.addr())) < longer.layout.bytes();
        match (shorter.layout.count(), is_there) {
            (0, is_there) => Meeting::Empty(is_there || is_inside()),
            (_, true) => Meeting::Same,
            (_, false) => Meeting::Apart,
        }
    }

    /// Recognises outputs that are in place, and refuses a mixture.
    pub(super) fn check_aliasing(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(output) = &self.output else { return Ok(()) };
        let meetings: Vec<Meeting> = (0..output.arrays.len()).map(|at| self.meeting(at)).collect();
        let first = |wanted| meetings.iter().position(|&meeting| meeting == wanted);
        let (same, apart) = (first(Meeting::Same), first(Meeting::Apart));
        if let (Some(same), Some(apart)) = (same, apart) {
            let (same, apart, input) = (output.label(same), output.label(apart), self.input.argument);
            let what = if self.contract.is_of_one_part() { "its input" } else { "in place" };
            let message =
                format!("{same} is {what}, and {apart} is not: pass outputs apart from `{input}` everywhere, or none");
            return Err(invalid(py, message));
        }
        self.is_in_place = same.is_some() || (apart.is_none() && first(Meeting::Empty(true)).is_some());
        self.aliasing = if self.is_in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
        for (at, _) in meetings.iter().enumerate().filter(|(_, &meeting)| meeting == Meeting::Same) {
            self.merge_in_place(at);
        }
        Ok(())
    }

    /// Makes one array of an input and an output that are the same: `out` is the one that has to be writable.
    fn merge_in_place(&mut self, at: usize) {
        let Some(output) = &mut self.output else { return };
        if output.arrays[at].layout.count() == self.input.arrays[at].layout.count() {
            self.input.arrays[at] = std::mem::replace(&mut output.arrays[at], Array::absent());
        }
    }

    /// Chooses the aliasing that all ranks of a rooted call can know, and makes the root's arrays fit it.
    pub(super) fn choose_aliasing(&mut self, py: Python<'_>, rank: u32) -> PyResult<()> {
        let root = self.contract.roles.root;
        if !self.contract.collective.has_root {
            return Ok(());
        }
        let is_in_place = self.contract.holds_input(root);
        self.aliasing = if is_in_place { Aliasing::InPlace } else { Aliasing::Disjoint };
        match (rank == root, is_in_place, self.is_in_place) {
            (true, true, false) => self.copies_input_to_output = true,
            (true, false, true) => {
                let Some(output) = &mut self.output else { return Ok(()) };
                let hidden = output.arrays[0].shadow("is in place, and there is no memory for a copy");
                hidden.map_err(|reason| reason.about(py, output.label(0)))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Says whether `out` is the object that is the argument already.
pub(super) fn is_all(contract: &Contract, caller: Caller, arrays: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> bool {
    let is_one_of_many = matches!(caller, Caller::Node) && contract.is_of_root_only(Side::Output);
    contract.is_of_one_part() && out.is(arrays) && !is_one_of_many
}
