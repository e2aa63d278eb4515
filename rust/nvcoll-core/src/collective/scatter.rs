//! scatter: rank r receives part r of the root's input. In place: the root's output is its part of the input.

use super::{every_part_on_root, own_part, part_of_root, Collective, Folds};

/// The contract of scatter.
pub static SCATTER: Collective = Collective {
    name: "scatter",
    summary: "rank r receives part r of the input of the root",
    has_root: true,
    folds: Folds::Nothing,
    can_be_in_place: true,
    parts: |roles| roles.world_size,
    input: every_part_on_root,
    output: own_part,
    promise: part_of_root,
    synchronises: false,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
