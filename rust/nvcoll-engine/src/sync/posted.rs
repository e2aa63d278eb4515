//! Words that one thread posts and anybody may read at any time: a reader gets all of one posting, or nothing.
//!
//! ```text
//! writer   sequence odd, fence Release, words, sequence even (Release)
//! reader   sequence even? (Acquire), words, fence Acquire, sequence unchanged?
//! ```
//!
//! Records need no such thing, since a stamp publishes them and the stamp rule keeps them. Postings are read by ranks that wait for
//! something else, and by other programs.
//!
//! Source: sequence locks, Lameter 2002; the orderings are from Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012.

use super::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};

/// `N` words. One writer at a time.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Posted<const N: usize> {
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Posted<N> {
    fn default() -> Self {
        Self { sequence: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Posted<N> {
    /// Posts words in the place of those before.
    pub fn post(&self, words: &[u64; N]) {
        // Relaxed: the fence orders it before the words, and there is one writer.
        let sequence = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(sequence, Ordering::Relaxed);
        // Release: pairs with the fence in `read`: who read a new word sees the odd sequence.
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            // Relaxed: ordered by the fence before and the Release after.
            place.store(*word, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `read`.
        self.sequence.store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// Says whether the words begin with this one; for the writer.
    pub fn begins_with(&self, word: u64) -> bool {
        // Relaxed: the caller wrote it.
        self.words[0].load(Ordering::Relaxed) == word
    }

    /// Returns the words of one posting; `None` while another is being made. Zeros were never posted.
    pub fn read(&self) -> Option<[u64; N]> {
        // Acquire: pairs with the Release in `post`.
        let sequence = self.sequence.load(Ordering::Acquire);
        // Relaxed: ordered by the Acquire before and the fence after.
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        // Acquire: pairs with the fence in `post`.
        fence(Ordering::Acquire);
        (sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence).then_some(words)
    }
}

/// Which of `N` places the threads of a process have taken. A place has one writer while it is taken. Places are taken in turn, so that
/// the last posting of a place stays as long as possible.
#[derive(Debug)]
pub struct TakenPlaces<const N: usize> {
    taken: [AtomicBool; N],
    turn: AtomicU32,
}

impl<const N: usize> Default for TakenPlaces<N> {
    fn default() -> Self {
        Self { taken: std::array::from_fn(|_| AtomicBool::new(false)), turn: AtomicU32::new(0) }
    }
}

impl<const N: usize> TakenPlaces<N> {
    /// Takes a place; `None` if all are taken.
    pub fn take(&self) -> Option<usize> {
        // Relaxed: a hint.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        // Acquire: pairs with the Release in `give_back`: what was posted there comes first.
        (0..N).map(|at| (turn + at) % N).find(|&at| !self.taken[at].swap(true, Ordering::Acquire))
    }

    /// Gives a place back.
    pub fn give_back(&self, at: usize) {
        // Release: pairs with the Acquire in `take`.
        self.taken[at].store(false, Ordering::Release);
    }
}

/// Writes the beginning of a text that fits.
pub(crate) fn write_text(words: &mut [u64], text: &str) {
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
}

/// Reads a text up to its first zero. What a terminal would not print is a `?`.
pub(crate) fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_bytes_can_be_printed() {
        assert_eq!(text_of(&[u64::from_le_bytes(*b"a\x1b[2J\n\0\0")]), "a?[2J?");
        assert_eq!(text_of(&[u64::MAX]).chars().count(), 8);
    }
}
