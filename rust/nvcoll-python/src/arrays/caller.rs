//! For whom a call speaks: for all ranks, or for one.

/// For whom a call speaks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caller {
    /// For all ranks.
    Node,
    /// For one rank.
    Rank(u32),
}

impl Caller {
    /// How its arrays are called.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Caller::Node => "arrays",
            Caller::Rank(_) => "x",
        }
    }
}
