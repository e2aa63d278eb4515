//! scan: rank r receives the fold of the inputs of ranks 0 to r.

use super::{the_part, Collective, Folds, Promise};

/// The contract of scan.
pub static SCAN: Collective = Collective {
    name: "scan",
    summary: "rank r receives the fold of the inputs of ranks 0 to r",
    has_root: false,
    folds: Folds::Predecessors,
    can_be_in_place: true,
    parts: |_| 1,
    input: the_part,
    output: the_part,
    promise: |_, rank, _| Promise::FoldOf(0..rank + 1),
    synchronises: false,
    bus_factor: |_| 1.0,
};
