//! exscan: rank r receives the fold of the inputs of the ranks before it; rank 0 receives nothing, and its output is not written.

use super::{the_part, Collective, Folds, Parts, Promise};

/// The contract of exscan.
pub static EXSCAN: Collective = Collective {
    name: "exscan",
    summary: "rank r receives the fold of the inputs of ranks 0 to r - 1, rank 0 nothing",
    has_root: false,
    folds: Folds::Predecessors,
    can_be_in_place: true,
    parts: |_| 1,
    input: the_part,
    output: |_, rank| if rank == 0 { Parts::NONE } else { Parts::one(0) },
    promise: |_, rank, _| Promise::FoldOf(0..rank),
    synchronises: false,
    bus_factor: |_| 1.0,
};
