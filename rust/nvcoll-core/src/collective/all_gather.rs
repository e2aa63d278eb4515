//! all_gather: every rank receives every rank's input as one part. In place: the input is part r of the output.

use super::{every_part, own_part, Collective, Promise};

/// The contract of all_gather.
pub static ALL_GATHER: Collective = Collective {
    name: "all_gather",
    summary: "every rank receives the input of rank r as part r",
    parts: |n| n,
    input: own_part,
    output: every_part,
    promise: |part| Promise::CopyOf { from: part },
    synchronises: true,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
