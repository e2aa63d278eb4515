//! all_to_all: part q of rank r's input goes to rank q, as part r of its output. Part r n + q of the contract is what rank r
//! sends to rank q. Never in place: input and output hold different parts.

use super::{Collective, Folds, Parts, Promise};

/// The contract of all_to_all.
pub static ALL_TO_ALL: Collective = Collective {
    name: "all_to_all",
    summary: "rank r receives part r of the input of rank q as part q",
    has_root: false,
    folds: Folds::Nothing,
    can_be_in_place: false,
    parts: |roles| roles.world_size * roles.world_size,
    input: |roles, rank| Parts::spaced(rank * roles.world_size, 1, roles.world_size),
    output: |roles, rank| Parts::spaced(rank, roles.world_size, roles.world_size),
    promise: |roles, _, part| Promise::CopyOf { from: part / roles.world_size },
    synchronises: true,
    bus_factor: |n| (n - 1) as f64 / n as f64,
};
