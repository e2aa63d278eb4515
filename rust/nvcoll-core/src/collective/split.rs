//! split: ranks form groups, by a color and a key that each says in its call record. No data: its schedule has no steps,
//! only waits. Who has left it has seen what every rank said, so that all know the same groups.

use super::{Collective, BARRIER};

/// The contract of split.
pub static SPLIT: Collective = Collective {
    name: "split",
    summary: "ranks form groups; no rank leaves before it has seen the color and the key of every rank",
    ..BARRIER
};
