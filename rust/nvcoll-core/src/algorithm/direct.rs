//! direct barrier: every rank waits for every rank's enter. No data, hence no steps: the contract's own wait is all.

use super::{Algorithm, Order};
use crate::collective::BARRIER as COLLECTIVE;

/// The registry line.
pub(super) static BARRIER: Algorithm = Algorithm {
    name: "direct",
    collective: &COLLECTIVE,
    order: Order::None,
    summary: "every rank waits until it has seen every other enter",
    source: "the dissemination-free form of a central barrier; Mellor-Crummey and Scott 1991 survey both",
    build: |_| {},
};
