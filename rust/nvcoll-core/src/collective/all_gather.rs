//! all_gather: every rank receives every rank's input as one part. In place: the input is part r of the output.

use super::{every_part, own_part, part_of_its_rank, Collective, Folds};

/// The contract of all_gather.
pub static ALL_GATHER: Collective = Collective {
    name: "all_gather",
    summary: "every rank receives the input of rank r as part r",
    has_root: false,
    folds: Folds::Nothing,
    can_be_in_place: true,
    parts: |roles| roles.world_size,
    input: own_part,
    output: every_part,
    promise: part_of_its_rank,
    synchronises: true,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
