//! Messages from one rank to another: sends and receives, matched by source and tag.
//!
//! Every ordered pair of ranks has a stream of its own, which the sender makes when it first sends. Nothing here uses the staging of
//! collectives or counts as a call: ranks may send while others are in collectives.
//!
//! ```text
//! send     small: a frame, or a frame and data   ──▶ frames ──▶   matched with a receive, or kept
//!          large: an offer                       ──▶ frames ──▶   matched, accepted when it is its turn
//!          copies chunks, or writes pieces       ◀── acceptance   copies chunks, or reads pieces
//! ```
//!
//! | array of the sender | array of the receiver | a large message |
//! |---|---|---|
//! | every rank reaches it | every rank reaches it | both ranks copy chunks at once, each byte once |
//! | every rank reaches it | its own | the receiver copies, each byte once |
//! | its own | every rank reaches it | the sender copies, each byte once |
//! | its own | its own | pieces through the stream; both ranks copy at once, each byte twice |
//!
//! Every rank reaches everything if ranks are threads, and arrays of `comm.empty` if they are processes.
//!
//! A transfer is a state machine. [`Mailbox::advance`] moves all transfers of a rank as far as they go, and a wait for one of them moves
//! all. So exchanges between ranks that both send first finish, if both started their sends and receives before they wait. Transfers whose
//! calls have returned, and for which nobody waits, are moved by the progress thread (`run/progress_thread.rs`).
//!
//! A message from a rank of another host has another carrier, which passes it to [`Mailbox::deliver`] when it is here: its source is the
//! number of a rank behind those of this world. A receive from there waits like any other.
//!
//! Every wait ends by a message, an abort, the end of a peer, or its deadline. A rank that gives up closes its streams. It returns when
//! nobody can touch its arrays any more.
//!
//! | file | subject |
//! |---|---|
//! | [`stream`] | the memory of a stream |
//! | [`outgoing`], [`incoming`] | its two ends |
//! | [`matching`] | receives and messages that wait |
//! | [`transfer`] | a send or a receive, from call to end |
//! | [`mailbox`] | all streams and transfers of a rank |
//! | [`shared_mailbox`] | its lock, and the waits of threads |
//!
//! Source: matching and its order are MPI's; eager and rendezvous messages are old (Open MPI, MPICH). Both ends copying one message is ours.

mod incoming;
mod mailbox;
mod matching;
mod outgoing;
pub(crate) mod shared_mailbox;
mod stream;
pub mod transfer;

use nvcoll_core::dtype::DType;

use crate::memory::world::World;
use crate::sync::frames::FRAME_WORDS;
use crate::sync::offers::{ChunkClaims, Side};
use transfer::Envelope;

/// The greatest tag. Cited: MPI guarantees 32767; torch takes a C int.
pub const MOST_TAG: u32 = i32::MAX as u32;

/// The word of a frame at which its data begin.
const INLINE_WORD: usize = 2;

/// The most bytes of a message inside its frame.
const INLINE_BYTES: usize = 8 * (FRAME_WORDS - INLINE_WORD);

/// The most bytes of a message that is sent without an offer.
const SMALL_BYTES: usize = 16 << 10;

/// What a small message takes of the credit beside its bytes, for the words about it. Chosen.
const OVERHEAD_BYTES: usize = 64;

/// The bytes that a rank claims at once. Chosen: a rank that fails waits for one chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// The most chunks that a rank copies before it looks at the abort word. Chosen: about a millisecond.
const CHUNKS_AT_ONCE: usize = 16;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    /// A small message.
    Small = 1,
    /// An offer of a message.
    Offer = 2,
    /// A piece of the accepted message.
    Piece = 3,
}

/// Packs the head of a frame: from the lowest bit, kind (8 bits), dtype (8), tag (from bit 32).
fn kind_word(kind: FrameKind, dtype: DType, tag: u32) -> u64 {
    kind as u64 | (dtype as u64) << 8 | u64::from(tag) << 32
}

/// Reads the head of a frame; `None` if it makes no sense.
fn envelope_of(source: u32, head: u64, bytes: u64) -> Option<(FrameKind, Envelope)> {
    let kind = match head & 0xff {
        1 => FrameKind::Small,
        2 => FrameKind::Offer,
        3 => FrameKind::Piece,
        _ => return None,
    };
    let dtype = *DType::ALL.get((head >> 8 & 0xff) as usize)?;
    Some((kind, Envelope { source, tag: (head >> 32) as u32, dtype, bytes: usize::try_from(bytes).ok()? }))
}

/// Returns the number of chunks of a message.
fn chunks(bytes: usize) -> u32 {
    bytes.div_ceil(CHUNK_BYTES) as u32
}

/// Returns the address here of `bytes` bytes of a rank, if every rank reaches them.
fn reachable(world: &World, rank: u32, word: u64, bytes: usize) -> Option<*mut u8> {
    let address = world.addresses.address_of(rank, word).ok().filter(|address| !address.is_null())?;
    world.addresses.is_reachable(rank, address, bytes).then_some(address)
}

/// Copies chunks of a message, as many as this side can claim now but not too many; says whether there were any.
///
/// # Safety
/// `bytes` bytes are readable at `from` and writable at `to`, where chunks of this acceptance can be claimed.
unsafe fn copy_claimed(
    claims: &ChunkClaims,
    side: Side,
    acceptance: u64,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    done: &mut u32,
) -> bool {
    let before = *done;
    while (*done - before) < CHUNKS_AT_ONCE as u32 {
        let Some(chunk) = claims.claim(acceptance, chunks(bytes)) else { break };
        let at = chunk as usize * CHUNK_BYTES;
        // A rank may send to itself from the array into which it receives.
        // SAFETY: the chunk was claimed, so it lies inside, and nobody else copies it.
        unsafe { std::ptr::copy(from.wrapping_add(at), to.wrapping_add(at), CHUNK_BYTES.min(bytes - at)) };
        *done += 1;
        claims.finish(side, acceptance, *done);
    }
    *done > before
}
