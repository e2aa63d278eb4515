//! How input and output of a call lie to each other: a contract says which ways there are, a schedule is made for one.

/// Whether the output is memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aliasing {
    /// Input and output share no byte.
    Disjoint,
    /// A chunk that both the input and the output of a rank hold is the same memory in both.
    InPlace,
}

impl Aliasing {
    /// Both rules.
    pub const ALL: &'static [Aliasing] = &[Aliasing::Disjoint, Aliasing::InPlace];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Aliasing::Disjoint => "out_of_place",
            Aliasing::InPlace => "in_place",
        }
    }

    /// Returns the name as a sentence has it.
    pub const fn words(self) -> &'static str {
        match self {
            Aliasing::Disjoint => "out of place",
            Aliasing::InPlace => "in place",
        }
    }
}
