//! The steps of a program before their queues and waits are derived.

use crate::collective::{Collective, Roles};
use crate::schedule::{Aliasing, Path, View};

/// The properties of a schedule that all its steps share.
pub(crate) struct Frame {
    pub(crate) collective: &'static Collective,
    pub(crate) algorithm: String,
    pub(crate) roles: Roles,
    pub(crate) chunks_per_part: u32,
    pub(crate) path: Path,
    pub(crate) slots: u32,
    pub(crate) aliasing: Aliasing,
}

/// A step before its queue and its waits are derived.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) rank: u32,
    pub(crate) channel: u32,
    pub(crate) src: Vec<View>,
    pub(crate) dst: Vec<View>,
    pub(crate) at_switch: bool,
}
