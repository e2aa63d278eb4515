//! gather: the root receives every rank's input as one part. In place: the root's input is its part of the output.

use super::{every_part_on_root, own_part, part_of_its_rank, Collective, Folds};

/// The contract of gather.
pub static GATHER: Collective = Collective {
    name: "gather",
    summary: "the root receives the input of rank r as part r",
    has_root: true,
    folds: Folds::Nothing,
    can_be_in_place: true,
    parts: |roles| roles.world_size,
    input: own_part,
    output: every_part_on_root,
    promise: part_of_its_rank,
    synchronises: false,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
