//! barrier: no rank leaves before every rank has entered. No data: its schedule has no steps, only waits.

use super::{Collective, Promise};

/// The contract of barrier.
pub static BARRIER: Collective = Collective {
    name: "barrier",
    summary: "no rank leaves before every rank has entered",
    parts: |_| 0,
    input: |_, _| Vec::new(),
    output: |_, _| Vec::new(),
    promise: |part| Promise::CopyOf { from: part },
    synchronises: true,
    bus_factor: |_| 0.0,
};
