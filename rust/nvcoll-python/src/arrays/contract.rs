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

/// The arrays of a call, and their lengths.
pub(crate) struct Contract {
    pub(crate) collective: &'static Collective,
    pub(crate) roles: Roles,
    /// The rank that calls for itself; none if a node calls for all ranks.
    pub(super) own: Option<u32>,
    pub(crate) counts: Counts,
    /// The elements per part; empty if there is one part.
    of_parts: Vec<usize>,
}

impl Contract {
    /// Makes the contract of a call by rank `own`, or by a node. Its counts are 0 before [`Contract::with_counts`].
    pub(crate) fn new(collective: &'static Collective, roles: Roles, own: Option<u32>) -> Self {
        Self { collective, roles, own, counts: Counts::Even(0), of_parts: Vec::new() }
    }

    pub(super) fn with_counts(self, counts: Counts) -> Self {
        let of_parts = match self.is_of_one_part() {
            true => Vec::new(),
            false => counts.of_parts(self.collective, self.roles),
        };
        Self { counts, of_parts, ..self }
    }

    /// Returns the elements of each part; of the one array if there is one part.
    pub(super) fn counts_of_parts(&self) -> Vec<usize> {
        match &self.counts {
            Counts::Even(count) if self.of_parts.is_empty() => vec![*count],
            _ => self.of_parts.clone(),
        }
    }

    /// Returns the name of the argument with the arrays.
    pub(super) fn argument(&self) -> &'static str {
        self.own.map_or("arrays", |_| "x")
    }

    /// Says whether input and output have the same elements for any number of ranks. Calls without `out` are then in place.
    pub(super) fn is_of_one_part(&self) -> bool {
        self.collective.division == Division::Whole
    }

    /// Says whether only the root has this side, so that a node passes one array.
    pub(super) fn is_of_root_only(&self, side: Side) -> bool {
        let holding = match side {
            Side::Input => self.collective.input,
            Side::Output => self.collective.output,
        };
        holding == Holding::AllOnRoot
    }

    /// Says whether a rank has this side.
    #[inline]
    pub(super) fn has(&self, rank: u32, side: Side) -> bool {
        !self.parts(rank, side).is_empty()
    }

    /// Returns the parts in this side of a rank.
    #[inline]
    pub(super) fn parts(&self, rank: u32, side: Side) -> Parts {
        match side {
            Side::Input => self.collective.input(self.roles, rank),
            Side::Output => self.collective.output(self.roles, rank),
        }
    }

    /// Says whether a call in place leaves the array of a rank unchanged, as on the root of a broadcast.
    pub(super) fn is_left_as_is(&self, rank: u32) -> bool {
        self.is_of_one_part() && self.collective.promise(self.roles, rank, 0) == Promise::CopyOf { from: rank }
    }

    /// Returns the end of the message for a rank without an array: the use of the array, and advice.
    #[cold]
    pub(super) fn needs(&self, rank: u32) -> String {
        let (name, is_root) = (self.collective.name, self.collective.has_root && rank == self.roles.root);
        let who = if is_root { "rank, the root" } else { "rank" };
        match (self.has(rank, Side::Input), self.has(rank, Side::Output)) {
            (true, _) => format!("and {name} reads the array of this {who}: pass it"),
            (false, true) => format!("and {name} writes into the array of this {who}: pass one like the root's"),
            (false, false) => format!("and {name} needs an array of this {who}: pass one"),
        }
    }

    /// Says whether a rank's output has all parts of its input.
    pub(super) fn holds_input(&self, rank: u32) -> bool {
        self.parts(rank, Side::Output).len() >= self.parts(rank, Side::Input).len()
    }

    /// Says whether some part has no elements.
    pub(super) fn has_empty_part(&self) -> bool {
        self.of_parts.contains(&0)
    }

    /// Says whether every part is a whole number of rows of `row` elements.
    pub(super) fn is_of_rows(&self, row: usize) -> bool {
        row > 0 && self.of_parts.iter().all(|part| part % row == 0)
    }

    /// Returns the number of elements of a rank's array.
    pub(super) fn count(&self, rank: u32, side: Side) -> usize {
        match &self.counts {
            Counts::Even(count) if self.of_parts.is_empty() => *count,
            _ => held_count(&self.of_parts, self.parts(rank, side)),
        }
    }

    /// Returns the number of elements of a rank's longer array before its shorter array, in place.
    pub(super) fn before_shorter(&self, rank: u32) -> usize {
        if self.of_parts.is_empty() {
            return 0;
        }
        let [input, output] = [Side::Input, Side::Output].map(|side| self.parts(rank, side));
        let (longer, shorter) = if input.len() >= output.len() { (input, output) } else { (output, input) };
        let first = shorter.iter().next();
        longer.iter().take_while(|part| Some(*part) != first).map(|part| self.of_parts[part as usize]).sum()
    }
}
