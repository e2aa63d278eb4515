//! reduce_scatter: rank r receives part r of the fold of all inputs. In place: the output is part r of the input.

use super::{every_part, own_part, Collective, Promise};

/// The contract of reduce_scatter.
pub static REDUCE_SCATTER: Collective = Collective {
    name: "reduce_scatter",
    summary: "rank r receives part r of the fold of all inputs",
    parts: |n| n,
    input: every_part,
    output: own_part,
    promise: |_| Promise::FoldOfAll,
    synchronises: true,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
