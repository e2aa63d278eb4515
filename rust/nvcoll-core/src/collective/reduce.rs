//! reduce: the root receives the fold of all inputs. In place: the root's output is its input; no other rank's input is written.

use super::{fold_of_all, the_part, the_part_on_root, Collective, Folds};

/// The contract of reduce.
pub static REDUCE: Collective = Collective {
    name: "reduce",
    summary: "the root receives the fold of all inputs",
    has_root: true,
    folds: Folds::Everyone,
    can_be_in_place: true,
    parts: |_| 1,
    input: the_part,
    output: the_part_on_root,
    promise: fold_of_all,
    synchronises: false,
    bus_factor: |_| 1.0,
};
