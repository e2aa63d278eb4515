//! Results of small collectives in memory, as if all ranks held the same data as this one.
//!
//! ```text
//! all_reduce      receive = send folded with itself, once per rank       reduce_scatter   the same on this rank's part
//! all_gather      receive = send, repeated                               broadcast        receive = send
//! all_to_all      receive = this rank's part of send, repeated: every peer sends the part that it has for this rank
//! send and receive in one group call: a peer sends what this rank sends to itself, or else what it sends to the peer
//! ```
//!
//! So programs work whose ranks agree on sizes, seeds, routes and flags through the GPU. Small is at most 64 KiB of one
//! rank's data and 1 MiB of the result; integers, which steer programs, at most 4 MiB. A larger result reads as zero, unless
//! it lies where the data lay.
use super::numbers::{NcclDtype, NcclFold};
use crate::memory;

/// Largest data of one rank, and largest result, that are computed (chosen); integers have one limit for both.
const SMALL_BYTES: usize = 64 << 10;
const SMALL_RESULT_BYTES: usize = 1 << 20;
const INTEGER_BYTES: usize = 4 << 20;

/// Where a call reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallBuffers {
    pub(crate) send: usize,
    pub(crate) receive: usize,
    pub(crate) bytes: usize,
    pub(crate) dtype: NcclDtype,
}

/// A send or a receive in a group call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingSend {
    pub(crate) comm: u64,
    pub(crate) rank: u32,
    pub(crate) peer: u32,
    pub(crate) sends: bool,
    pub(crate) place: CallBuffers,
}

impl CallBuffers {
    /// The part of what is sent that is meant for `rank`.
    pub(crate) fn part(self, rank: u32) -> CallBuffers {
        CallBuffers { send: self.send.wrapping_add((rank as usize).wrapping_mul(self.bytes)), ..self }
    }

    /// Whether `parts` parts are small enough to be computed.
    fn is_small(&self, parts: u32) -> bool {
        let result = self.bytes.saturating_mul(parts as usize);
        match self.dtype {
            NcclDtype::Integer(_) => result <= INTEGER_BYTES,
            NcclDtype::Float(_) => self.bytes <= SMALL_BYTES && result <= SMALL_RESULT_BYTES,
        }
    }

    /// The place if its ends are memory that a program holds, and the result is small; else a larger result is cleared.
    fn to_compute(self, parts: u32) -> Option<CallBuffers> {
        let result = self.bytes.checked_mul(parts as usize)?;
        if !is_held(self.receive, result) || !is_held(self.send, self.bytes) {
            return None;
        }
        if self.is_small(parts) {
            return Some(self);
        }
        if self.send != self.receive {
            let _ = memory::data::forget(self.receive, result);
        }
        None
    }
}

/// Whether a range is device memory that a program holds.
fn is_held(at: usize, bytes: usize) -> bool {
    bytes > 0 && memory::is_device(at) && memory::is_live(at, bytes)
}

/// The little-endian bits of an element of up to 8 bytes of device memory; none if it is not held.
pub(crate) fn read(at: usize, size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    if size > bytes.len() || !is_held(at, size) {
        return None;
    }
    // SAFETY: `is_held` says that the range lies in the arena, which is mapped; an element has at most 8 bytes.
    unsafe { (at as *const u8).copy_to_nonoverlapping(bytes.as_mut_ptr(), size) };
    Some(u64::from_le_bytes(bytes))
}

/// Copies a part of what is sent to `parts` places of the result, one behind the other.
pub(crate) fn repeat(place: &CallBuffers, parts: u32) {
    let Some(place) = place.to_compute(parts) else { return };
    // SAFETY: `to_compute` says that the range is held, so it lies in the arena, which is mapped.
    let sent = unsafe { std::slice::from_raw_parts(place.send as *const u8, place.bytes) }.to_vec();
    for part in 0..parts as usize {
        let to = (place.receive + part * place.bytes) as *mut u8;
        // SAFETY: `to_compute` says that all parts of the result are held; `sent` is memory of this function.
        unsafe { sent.as_ptr().copy_to_nonoverlapping(to, sent.len()) };
    }
}

/// Writes part `part` of what is sent, reduced over `ranks` ranks that hold the same.
pub(crate) fn reduce(place: &CallBuffers, part: u32, fold: NcclFold, ranks: u32) {
    let Some(place) = place.part(part).to_compute(1) else { return };
    let size = place.dtype.size();
    for offset in (0..place.bytes).step_by(size) {
        let mut bytes = [0; 8];
        // SAFETY: `to_compute` says that both ranges are held, so they lie in the arena, which is mapped; the offset leaves
        // room for an element, which has at most 8 bytes.
        unsafe {
            ((place.send + offset) as *const u8).copy_to_nonoverlapping(bytes.as_mut_ptr(), size);
            let reduced = place.dtype.reduced(u64::from_le_bytes(bytes), fold, ranks).to_le_bytes();
            reduced.as_ptr().copy_to_nonoverlapping((place.receive + offset) as *mut u8, size);
        }
    }
}

/// Does the receives of a group call.
pub(crate) fn settle(messages: &[WaitingSend]) {
    for receive in messages.iter().filter(|message| !message.sends) {
        let fits =
            |sent: &&WaitingSend| sent.sends && sent.comm == receive.comm && sent.place.bytes == receive.place.bytes;
        let to = |rank: u32| messages.iter().filter(fits).find(|sent| sent.peer == rank);
        if let Some(sent) = to(receive.rank).or_else(|| to(receive.peer)) {
            repeat(&CallBuffers { send: sent.place.send, ..receive.place }, 1);
        }
    }
}
