//! The arrays of each rank in a call, and their lengths: the contract of a collective, as arguments.
//!
//! ```text
//!                   `arrays`                      `out`                         without `out`
//! all_reduce, scan  (count,)                      (count,)                      in place
//! broadcast         (count,), read on the root    (count,)                      in place
//! reduce            (count,)                      (count,) on the root          in place on the root
//! exscan            (count,)                      (count,), not on rank 0       in place
//! reduce_scatter    (all parts,)                  (part r,)                     new arrays
//! all_gather        (part r,)                     (all parts,)                  new arrays
//! gather            (part r,)                     (all parts,) on the root      new array
//! scatter           (all parts,) on the root      (part r,)                     new arrays
//! all_to_all        (parts to 0, to 1, ...)       (parts of 0, of 1, ...)       new arrays
//! ```

use nvcoll_core::collective::{Collective, Division, Holding, Parts, Promise, Roles};
use nvcoll_core::counts::{held_count, Counts};

/// The input or the output of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Input,
    Output,
}

/// The arrays of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contract {
    pub(crate) collective: &'static Collective,
    pub(crate) roles: Roles,
    is_of_one_part: bool,
    is_uniform: bool,
}

impl Contract {
    pub(crate) fn new(collective: &'static Collective, roles: Roles) -> Self {
        let is_of_one_part = collective.division == Division::Whole;
        let is_uniform = is_of_one_part && [collective.input, collective.output] == [Holding::All; 2];
        Self { collective, roles, is_of_one_part, is_uniform }
    }

    /// Says whether input and output have the same elements for any number of ranks. Calls without `out` are then in place.
    pub(crate) fn is_of_one_part(&self) -> bool {
        self.is_of_one_part
    }

    /// Says whether every rank has an input and an output of all elements.
    #[inline]
    pub(crate) fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// Says whether only the root has this side, so that a node passes one array.
    pub(crate) fn is_of_root_only(&self, side: Side) -> bool {
        let holding = match side {
            Side::Input => self.collective.input,
            Side::Output => self.collective.output,
        };
        holding == Holding::AllOnRoot
    }

    /// Says whether a rank has this side.
    #[inline]
    pub(crate) fn has(&self, rank: u32, side: Side) -> bool {
        self.is_uniform || !self.parts(rank, side).is_empty()
    }

    /// Returns the parts in this side of a rank.
    pub(crate) fn parts(&self, rank: u32, side: Side) -> Parts {
        parts(self.collective, self.roles, rank, side)
    }

    /// Says whether a call in place leaves the array of a rank unchanged, as on the root of a broadcast.
    pub(crate) fn is_left_as_is(&self, rank: u32) -> bool {
        let is_kept = || self.collective.promise(self.roles, rank, 0) == Promise::CopyOf { from: rank };
        !self.is_uniform && self.is_of_one_part() && is_kept()
    }

    /// Returns the end of the message for a rank without an array: the use of the array, and advice.
    #[cold]
    pub(crate) fn needs(&self, rank: u32) -> String {
        let (name, is_root) = (self.collective.name, self.collective.has_root && rank == self.roles.root);
        let who = if is_root { "rank, the root" } else { "rank" };
        match (self.has(rank, Side::Input), self.has(rank, Side::Output)) {
            (true, _) => format!("and {name} reads the array of this {who}: pass it"),
            (false, true) => format!("and {name} writes into the array of this {who}: pass one like the root's"),
            (false, false) => format!("and {name} needs an array of this {who}: pass one"),
        }
    }

    /// Says whether a rank's output has all parts of its input.
    pub(crate) fn holds_input(&self, rank: u32) -> bool {
        self.parts(rank, Side::Output).len() >= self.parts(rank, Side::Input).len()
    }
}

fn parts(collective: &Collective, roles: Roles, rank: u32, side: Side) -> Parts {
    match side {
        Side::Input => collective.input(roles, rank),
        Side::Output => collective.output(roles, rank),
    }
}

/// A contract with counts.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) counts: Counts,
    /// The elements per part; empty if there is one part.
    of_parts: Vec<usize>,
}

impl Shape {
    pub(crate) fn new(contract: &Contract, counts: Counts) -> Self {
        let of_parts = match contract.is_of_one_part() {
            true => Vec::new(),
            false => counts.of_parts(contract.collective, contract.roles),
        };
        Self { counts, of_parts }
    }

    /// Returns the elements per array, if every array has all elements.
    pub(crate) fn one_count(&self) -> Option<usize> {
        match &self.counts {
            Counts::Even(count) if self.of_parts.is_empty() => Some(*count),
            _ => None,
        }
    }

    /// Says whether some part has no elements.
    pub(crate) fn has_empty_part(&self) -> bool {
        self.of_parts.contains(&0)
    }

    /// Says whether every part is a whole number of rows of `row` elements.
    pub(crate) fn is_of_rows(&self, row: usize) -> bool {
        row > 0 && self.of_parts.iter().all(|part| part % row == 0)
    }

    /// Returns the number of elements of a rank's array.
    pub(crate) fn count(&self, contract: &Contract, rank: u32, side: Side) -> usize {
        self.one_count().unwrap_or_else(|| held_count(&self.of_parts, contract.parts(rank, side)))
    }

    /// Returns the number of elements of a rank's longer array before its shorter array, in place.
    pub(crate) fn before_shorter(&self, contract: &Contract, rank: u32) -> usize {
        if self.of_parts.is_empty() {
            return 0;
        }
        let [input, output] = [Side::Input, Side::Output].map(|side| contract.parts(rank, side));
        let (longer, shorter) = if input.len() >= output.len() { (input, output) } else { (output, input) };
        let first = shorter.iter().next();
        longer.iter().take_while(|part| Some(*part) != first).map(|part| self.of_parts[part as usize]).sum()
    }
}
