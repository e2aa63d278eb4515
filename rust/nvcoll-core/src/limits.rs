//! How large a world and a schedule may be.
//!
//! | limit | of what | who refuses more |
//! |---|---|---|
//! | [`MAX_WORLD_SIZE`] | what can be **described**: built, lowered, proved, priced, simulated | builder, text, verifier |
//! | [`MAX_RUNNING_RANKS`] | what can **run**: the ranks of a node | engine, tuning tables |
//! | [`MAX_STEPS`], [`MAX_VIEWS`] | one schedule of either | builder, lowering |
//!
//! A ring of 1,024 ranks has two million steps, of 16,384 more than five hundred million: what is too large depends on the
//! algorithm. So the size of a program is counted while it is written, and what passes a limit is counted on but no longer
//! kept: an error says how large the whole would be, and nothing that large is allocated.

/// The most ranks that a schedule describes. Chosen: 2,048 nodes of 8 GPUs.
pub const MAX_WORLD_SIZE: u32 = 1 << 14;

/// The most ranks that run together on this machine. Chosen: some hundred per processor; words and flags of ranks are laid
/// out for so many.
pub const MAX_RUNNING_RANKS: u32 = 1 << 10;

/// The most steps of a schedule. Chosen: twice those of a ring of 1,024 ranks, which takes 1.5 GB while it is built.
pub const MAX_STEPS: u64 = 1 << 22;

/// The most views of all steps, sources and destinations. Chosen: four for each of the most steps; they take as much again.
pub const MAX_VIEWS: u64 = 1 << 24;
