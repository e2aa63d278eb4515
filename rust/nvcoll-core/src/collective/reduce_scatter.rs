//! reduce_scatter: rank r receives part r of the fold of all inputs. In place: the output is part r of the input.

use super::{every_part, fold_of_all, own_part, Collective, Folds};

/// The contract of reduce_scatter.
pub static REDUCE_SCATTER: Collective = Collective {
    name: "reduce_scatter",
    summary: "rank r receives part r of the fold of all inputs",
    has_root: false,
    folds: Folds::Everyone,
    can_be_in_place: true,
    parts: |roles| roles.world_size,
    input: every_part,
    output: own_part,
    promise: fold_of_all,
    synchronises: true,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
