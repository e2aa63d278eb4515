//! Frames: what one rank tells another in order, such as a small message or a piece of a large one. They form a ring with one writer and
//! one reader.
//!
//! ```text
//! writer                                        reader
//!   frame n may be written when n - taken < FRAMES
//!   words = …                 (Relaxed)           is frame n there?  number == n + 1     (Acquire)
//!   number = n + 1            (Release)           read the words, and what they name
//!                                                 taken = n + 1                          (Release)
//! ```
//!
//! The number stands beside the words, so a small message takes one cache line on its way. Numbers have 64 bits and never wrap; only
//! places are used again. Nothing is ever reset.

use super::atomic::{AtomicU64, Ordering};

/// The number of places. Chosen: if a writer is ahead by this number of frames of 8 bytes, its reader does something else.
#[cfg(not(loom))]
pub const FRAMES: usize = 64;
/// As few as show that places are used again.
#[cfg(loom)]
pub const FRAMES: usize = 2;

/// The number of words in a frame; with the number they are two cache lines.
pub const FRAME_WORDS: usize = 15;

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct FramePlace {
    number: AtomicU64,
    words: [AtomicU64; FRAME_WORDS],
}

/// A number that one rank publishes and another reads, on a line of its own. It only grows.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Counter(pub(super) AtomicU64);

impl Counter {
    /// Publishes a number, and everything that the rank did before.
    #[inline]
    pub fn publish(&self, number: u64) {
        // Release: pairs with the Acquire in `read`.
        self.0.store(number, Ordering::Release);
    }

    /// Reads the number.
    #[inline]
    pub fn read(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.0.load(Ordering::Acquire)
    }
}

/// The frames from one rank to another.
#[derive(Debug)]
#[repr(C)]
pub struct Frames {
    places: [FramePlace; FRAMES],
    taken: Counter,
}

impl Default for Frames {
    fn default() -> Self {
        Self { places: std::array::from_fn(|_| FramePlace::default()), taken: Counter::default() }
    }
}

impl Frames {
    /// Returns the number of frames that the reader has taken; the writer may overwrite what they named.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.read()
    }

    /// Publishes a frame, and what its words name. The writer has seen that fewer than [`FRAMES`] before it are not taken.
    #[inline]
    pub fn publish(&self, number: u64, words: impl IntoIterator<Item = u64>) {
        let place = &self.places[number as usize % FRAMES];
        for (word, value) in place.words.iter().zip(words) {
            // Relaxed: ordered by the Release below.
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `is_there`.
        place.number.store(number + 1, Ordering::Release);
    }

    /// Says whether a frame was published. The reader has taken all before it.
    #[inline]
    pub fn is_there(&self, number: u64) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.places[number as usize % FRAMES].number.load(Ordering::Acquire) == number + 1
    }

    /// Reads a word of a frame that is there.
    #[inline]
    pub fn word(&self, number: u64, at: usize) -> u64 {
        // Relaxed: ordered by the Acquire in `is_there`.
        self.places[number as usize % FRAMES].words[at].load(Ordering::Relaxed)
    }

    /// Gives the writer the places of the first `taken` frames back. The reader has read them, and what they named.
    #[inline]
    pub fn take(&self, taken: u64) {
        self.taken.publish(taken);
    }
}
