//! Whether a call is in place, and what its ranks can know of that.
//!
//! A call is *in place* on a rank if `out` is the memory of the input, or if the shorter of the two is its part of the longer. A call
//! without `out` is in place if input and output have the same elements; otherwise its outputs are new arrays.
//!
//! **Calls of one rank.** A rank that has one array, or an array without elements, does not know whether its peers are in place. So the
//! aliasing of the program follows from what all ranks know, and a rank that calls otherwise works on a copy:
//!
//! ```text
//! broadcast, reduce, gather        in place      root with `out` apart: input is copied into `out` before
//! scatter                          out of place  root with `out` in its input: the part is written to a copy, then back
//! all_gather with an empty part    out of place  rank in place: its part is read from a copy
//! reduce_scatter with one          out of place  rank in place: its part is written to a copy, then back
//! ```

use pyo3::prelude::*;

use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::ranks::member::Member;

use super::Operands;
use crate::arrays::array::Array;
use crate::error::invalid;

/// The position of a rank's output relative to its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// In place.
    Same,
    /// Not in place.
    Apart,
    /// One of the two has no elements; true if its address is that of a call in place.
    Empty(bool),
}

impl Operands {
    /// Compares the input and the output of a rank.
    fn meeting(&self, at: usize) -> Meeting {
        let (input, Some(output)) = (&self.input.arrays[at], self.output(at)) else { return Meeting::Empty(false) };
        if !input.is_there() {
            return Meeting::Empty(false);
        }
        if !self.contract.collective.can_be_in_place {
            return Meeting::Apart;
        }
        let (a, b) = (input.layout.count(), output.layout.count());
        let (longer, shorter) = if a > b { (input, output) } else { (output, input) };
        let is_packed = !longer.layout.is_strided() && !shorter.layout.is_strided();
        let is_part = is_packed && shorter.first == longer.first.wrapping_add(self.before(at));
        // An empty slice in numpy has the address of the first element of its array.
        let is_inside = || (shorter.first.addr().wrapping_sub(longer.first.addr())) < longer.layout.bytes();
        match (a.min(b), is_part || input.is_same_memory(output)) {
            // Two empty arrays may have one address by chance.
            (0, is_there) => Meeting::Empty(a != b && (is_there || is_inside())),
            (_, true) => Meeting::Same,
            (_, false) => Meeting::Apart,
        }
    }

    /// Finds out whether outputs are in place, and refuses a call with both kinds. With `may_merge`, an input and an output that are one
    /// array become one operand.
    pub(super) fn check_aliasing(&mut self, py: Python<'_>, may_merge: bool) -> PyResult<()> {
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
        for (at, _) in meetings.iter().enumerate().filter(|(_, &meeting)| may_merge && meeting == Meeting::Same) {
            self.merge_in_place(at);
        }
        Ok(())
    }

    /// Merges an input and an output that are the same array. `out` remains, because it must be writable.
    fn merge_in_place(&mut self, at: usize) {
        let Some(output) = &mut self.output else { return };
        if output.arrays[at].layout.count() == self.input.arrays[at].layout.count() {
            self.input.arrays[at] = std::mem::replace(&mut output.arrays[at], Array::absent());
        }
    }

    /// Returns the aliasing of a call of one rank if it follows from what all ranks know; `None` if each rank knows its own.
    pub(super) fn aliasing_known_to_all(&self) -> Option<Aliasing> {
        let collective = self.contract.collective;
        if collective.has_root {
            let is_in_place = self.contract.holds_input(self.contract.roles.root);
            return Some(if is_in_place { Aliasing::InPlace } else { Aliasing::Disjoint });
        }
        (collective.can_be_in_place && self.contract.has_empty_part()).then_some(Aliasing::Disjoint)
    }

    /// Sets the aliasing that all ranks know, and adapts the arrays of a rank that calls otherwise.
    pub(super) fn choose_aliasing(&mut self, py: Python<'_>, member: &Member, aliasing: Aliasing) -> PyResult<()> {
        self.aliasing = aliasing;
        let (collective, root) = (self.contract.collective, self.contract.roles.root);
        if collective.has_root && member.rank() != root {
            return Ok(());
        }
        if aliasing == Aliasing::InPlace {
            self.copies_input_to_output = !self.is_in_place;
        } else if self.is_in_place {
            let Some(output) = &mut self.output else { return Ok(()) };
            let (longer, part) = (&self.input.arrays[0], &output.arrays[0]);
            let ranks = if part.layout.count() > longer.layout.count() { &mut self.input } else { output };
            let label = ranks.label(0);
            let hidden = ranks.arrays[0].shadow(Some(member), "is in place, and there is no memory for a copy");
            hidden.map_err(|reason| reason.about(py, label))?;
        }
        Ok(())
    }
}
