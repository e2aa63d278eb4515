//! The identity of a rank's words: what they say about themselves, first of all, to a program that maps them from outside.
//!
//! ```text
//! words of nvcoll | layout, length | version | process | rank and ranks of the run | communicator | name of the job
//! ```
//!
//! The first three have the same place in every version. So a program of another version can refuse the words by name.

use crate::memory::world::notice::{WorldName, WORLD_NAME_WORDS};
use crate::sync::posted::{text_of, write_text};

/// The first word: these are words of nvcoll.
const MAGIC: u64 = u64::from_le_bytes(*b"nvcoll's");

/// The number of the layout and of the meaning of the words. Raise it with every change of `RankWords`, of records or of notices.
pub(crate) const LAYOUT: u32 = 1;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const VERSION_WORDS: usize = 3;

/// Room for the longest name of a job, 88 bytes.
const JOB_WORDS: usize = 11;

const HEAD_WORDS: usize = 2 + VERSION_WORDS;

/// How many words an identity has.
pub(crate) const IDENTITY_WORDS: usize = HEAD_WORDS + 2 + WORLD_NAME_WORDS + JOB_WORDS;

/// The writer of words, and their communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) process: u32,
    /// The rank, by its number in the run.
    pub(crate) rank: u32,
    /// The number of ranks of the run.
    pub(crate) world_size: u32,
    pub(crate) world: WorldName,
    /// The name of the job; empty but in the world of all ranks.
    pub(crate) job: String,
}

impl Identity {
    /// Returns the words; `bytes` is the length of all words of the rank.
    pub(crate) fn words(&self, bytes: usize) -> [u64; IDENTITY_WORDS] {
        let mut words = [0; IDENTITY_WORDS];
        words[0] = MAGIC;
        words[1] = u64::from(LAYOUT) | (bytes as u64) << 32;
        write_text(&mut words[2..HEAD_WORDS], VERSION);
        words[HEAD_WORDS] = self.process.into();
        words[HEAD_WORDS + 1] = u64::from(self.rank) | u64::from(self.world_size) << 32;
        let (world, job) = words[HEAD_WORDS + 2..].split_at_mut(WORLD_NAME_WORDS);
        world.copy_from_slice(&self.world.words());
        write_text(job, &self.job);
        words
    }

    /// Reads words.
    ///
    /// # Errors
    /// What the words are instead, in words.
    pub(crate) fn of_words(words: &[u64; IDENTITY_WORDS], bytes: usize) -> Result<Self, String> {
        if words[0] != MAGIC {
            return Err("no words of nvcoll".to_owned());
        }
        let version = text_of(&words[2..HEAD_WORDS]);
        let (layout, length) = (words[1] as u32, words[1] >> 32);
        if (version.as_str(), layout, length) != (VERSION, LAYOUT, bytes as u64) {
            return Err(format!(
                "words of nvcoll {version} (layout {layout}, {length} bytes), and this is nvcoll {VERSION} (layout {LAYOUT}, {bytes} \
                 bytes)"
            ));
        }
        let [process, ranks] = [words[HEAD_WORDS], words[HEAD_WORDS + 1]];
        let (world, job) = words[HEAD_WORDS + 2..].split_at(WORLD_NAME_WORDS);
        Ok(Self {
            process: process as u32,
            rank: ranks as u32,
            world_size: (ranks >> 32) as u32,
            world: WorldName::of_words(world),
            job: text_of(job),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_give_back_an_identity_and_refuse_others_by_name() {
        let world = WorldName { id: 7, split: 3, ranks: [2, 0].into_iter().collect() };
        let identity = Identity { process: 99, rank: 2, world_size: 3, world, job: "tests-\u{1f600}".into() };
        let words = identity.words(4096);
        assert_eq!(Identity::of_words(&words, 4096), Ok(identity));
        let mut other = words;
        write_text(&mut other[2..HEAD_WORDS], "9.8.7");
        other[1] += 1;
        let found = Identity::of_words(&other, 4096).unwrap_err();
        assert!(found.starts_with("words of nvcoll 9.8.7 (layout 2, 4096 bytes), and this is nvcoll "), "{found}");
        assert!(Identity::of_words(&words, 4097).is_err());
        assert_eq!(Identity::of_words(&[0; IDENTITY_WORDS], 4096), Err("no words of nvcoll".to_owned()));
    }
}
