//! The memory of a call: blocks that the engine owns, the buffers of each rank, strided arrays, and the world that ranks share.

pub mod block;
pub(crate) mod buffers;
pub(crate) mod footprint;
pub mod heap;
pub(crate) mod originals;
pub(crate) mod shared;
pub mod strided;
pub(crate) mod world;

pub use shared::has_huge_pages;
