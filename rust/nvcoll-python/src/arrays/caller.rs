//! The caller of a collective: a node for all ranks, or one rank for itself.

use nvcoll_engine::ranks::member::Member;

/// The caller of a collective.
#[derive(Debug, Clone, Copy)]
pub(super) enum Caller {
    /// A node, which passes the arrays of all ranks.
    Node,
    /// A rank, which passes its own array.
    Rank(u32),
}

impl Caller {
    /// Returns the caller whose member is `member`; a node has none.
    pub(super) fn of(member: Option<&Member>) -> Self {
        member.map_or(Self::Node, |member| Self::Rank(member.rank()))
    }

    /// Returns the name of the argument with the arrays.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Caller::Node => "arrays",
            Caller::Rank(_) => "x",
        }
    }
}
