//! The steps of a program before their queues and waits are derived.

use crate::schedule::View;

/// A step before its queue and its waits are derived.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) rank: u32,
    pub(crate) channel: u32,
    pub(crate) src: Vec<View>,
    pub(crate) dst: Vec<View>,
    pub(crate) at_switch: bool,
}
