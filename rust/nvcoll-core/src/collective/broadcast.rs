//! broadcast: every rank receives the root's input. In place: the root's input is its output.

use super::{part_of_root, the_part, the_part_on_root, Collective, Folds};

/// The contract of broadcast.
pub static BROADCAST: Collective = Collective {
    name: "broadcast",
    summary: "every rank receives the input of the root",
    has_root: true,
    folds: Folds::Nothing,
    can_be_in_place: true,
    parts: |_| 1,
    input: the_part_on_root,
    output: the_part,
    promise: part_of_root,
    synchronises: false,
    bus_factor: |_| 1.0,
};
