//! What a run writes down of every step in every tile: when it was ready and done, and why not earlier.

use crate::simulate::sharing::Limit;
use crate::units::Ps;

/// Why a step was not ready earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StepCause {
    /// Its rank had not entered.
    #[default]
    Own,
    /// Another rank had not entered, or its signal was on the way.
    Enter(u32),
    /// The step before it in its queue, or one it waits for, was not done: its number in the record. Records of more steps than
    /// such a number counts do not fit any memory.
    Step(u32),
}

/// What happened to a step in a tile: 32 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepRecord {
    pub(crate) ready: Ps,
    pub(crate) done: Ps,
    pub(crate) cause: StepCause,
    pub(crate) limit: Limit,
}
