//! split: ranks form groups, by a color and a key that each says in its call record. No data: its schedule has no steps,
//! only waits. Who has left it has seen what every rank said, so that all know the same groups.

use super::{part_of_its_rank, Collective, Folds, Parts};

/// The contract of split.
pub static SPLIT: Collective = Collective {
    name: "split",
    summary: "ranks form groups; no rank leaves before it has seen the color and the key of every rank",
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
