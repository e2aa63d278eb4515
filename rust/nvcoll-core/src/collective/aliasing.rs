//! Aliasing: whether the input and the output of a call share memory. A contract lists its aliasings; a schedule has one.

crate::names! {
    /// The relation between the memory of the input and of the output.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Aliasing {
        /// Input and output share no byte.
        Disjoint = "out_of_place",
        /// A chunk that both the input and the output of a rank hold is the same memory in both.
        InPlace = "in_place",
    }
}

impl Aliasing {
    /// Returns the name in sentences.
    pub const fn words(self) -> &'static str {
        match self {
            Aliasing::Disjoint => "out of place",
            Aliasing::InPlace => "in place",
        }
    }
}
