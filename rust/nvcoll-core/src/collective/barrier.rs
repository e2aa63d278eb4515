//! barrier: no rank leaves before every rank has entered. No data: its schedule has no steps, only waits.

use super::{part_of_its_rank, Collective, Folds, Parts};

/// The contract of barrier.
pub static BARRIER: Collective = Collective {
    name: "barrier",
    summary: "no rank leaves before every rank has entered",
    has_root: false,
    folds: Folds::Nothing,
    can_be_in_place: true,
    parts: |_| 0,
    input: |_, _| Parts::NONE,
    output: |_, _| Parts::NONE,
    promise: part_of_its_rank,
    synchronises: true,
    bus_factor: |_| 0.0,
};
