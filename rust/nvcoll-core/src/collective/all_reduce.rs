//! all_reduce: every rank receives the fold of all inputs. One part; input and output hold it whole.

use super::{Collective, Promise};

/// The contract of all_reduce.
pub static ALL_REDUCE: Collective = Collective {
    name: "all_reduce",
    summary: "every rank receives the fold of all inputs",
    parts: |_| 1,
    input: |_, _| vec![0],
    output: |_, _| vec![0],
    promise: |_| Promise::FoldOfAll,
    synchronises: true,
    bus_factor: |n| 2.0 * (n - 1) as f64 / n as f64,
};
