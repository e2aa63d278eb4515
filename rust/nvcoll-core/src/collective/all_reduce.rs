//! all_reduce: every rank receives the fold of all inputs. One part; input and output hold it whole.

use super::{fold_of_all, the_part, Collective, Folds};

/// The contract of all_reduce.
pub static ALL_REDUCE: Collective = Collective {
    name: "all_reduce",
    summary: "every rank receives the fold of all inputs",
    has_root: false,
    folds: Folds::Everyone,
    can_be_in_place: true,
    parts: |_| 1,
    input: the_part,
    output: the_part,
    promise: fold_of_all,
    synchronises: true,
    bus_factor: |n| 2.0 * (n - 1) as f64 / n as f64,
};
