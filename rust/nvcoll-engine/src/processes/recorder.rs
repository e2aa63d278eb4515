//! What a rank of a job does, read by another program: without stopping it, and without its help.
//!
//! ```text
//! /proc/PID/fd/N   a descriptor of each of a rank's words stays open; its file is called `nvcoll words`
//! map              read only; length and seals are checked, so that nothing can be cut off under the reader
//! identity         version and layout must be this program's (`memory/world/identity.rs`)
//! read             the stamp, the records before it, activity, departure, notices, a fingerprint of the progress
//! ```
//!
//! Everything is read by atomics: records with a second look at the stamp, notices whole or not at all. Any bytes are some call, so words
//! that somebody scribbled on give a wrong text, and do no harm.
//!
//! Cost: the rank does not notice. It does not show ranks that are threads: their words are memory of one process.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::shared::SharedMemory;
use crate::memory::world::identity::{Identity, IDENTITY_WORDS};
use crate::memory::world::notice::Notice;
use crate::memory::world::notice_board::notices_in;
use crate::memory::world::rank_lines::{InBlock, RankWords};
use crate::memory::world::WORDS_BYTES;
use crate::run::report::words_of_call;
use crate::run::wait_graph::{cycle, cycle_words, name_words, waits_words};
use crate::system::clock::monotonic_ns;

/// The words of one rank in one communicator, mapped from outside.
#[derive(Debug)]
pub struct Recorder {
    words: InBlock<RankWords>,
    identity: Identity,
}

/// The content of the words at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// The last call that the rank has entered; 0 before the first.
    pub call: u32,
    /// Whether it is in that call.
    pub is_in_call: bool,
    /// Whether it has left the communicator.
    pub has_left: bool,
    /// Changes whenever the rank gets on.
    pub progress: u64,
    /// The last calls, newest first: number and words.
    pub recent: Vec<(u32, String)>,
    /// Its waits in all communicators; only in the words of the communicator of all ranks.
    pub waits: Vec<SeenWait>,
}

/// A wait of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenWait {
    /// "waits in call 7, all_reduce of …, of the communicator of all ranks for rank 1".
    pub words: String,
    /// For how long, in seconds.
    pub for_s: f64,
    /// Whether it timed out.
    pub has_timed_out: bool,
}

impl Recorder {
    /// Maps the words that a descriptor of another process is: `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be opened; [`Error::Invalid`] if it has no words, or the words of another version.
    pub fn open(path: &Path) -> Result<Self> {
        let system = |error: std::io::Error| Error::System {
            what: format!("{} cannot be read", path.display()),
            number: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let file = File::open(path).map_err(system)?;
        let refuse =
            |what: String| Error::Invalid(format!("{} is {what}: use the nvcoll of that process", path.display()));
        let bytes = file.metadata().map_err(system)?.len() as usize;
        if bytes != WORDS_BYTES {
            return Err(refuse(identity_at(&file, bytes).err().unwrap_or_else(|| format!("{bytes} bytes"))));
        }
        let memory = SharedMemory::received("words", WORDS_BYTES, OwnedFd::from(file))?;
        let words = InBlock::<RankWords>::at((&Arc::new(memory.map_to_read()?), 0));
        let posted = words.identity.read().ok_or_else(|| refuse("being made".into()))?;
        let identity = Identity::of_words(&posted, WORDS_BYTES).map_err(refuse)?;
        Ok(Self { words, identity })
    }

    /// The process, as it numbers itself.
    pub fn process(&self) -> u32 {
        self.identity.process
    }

    /// The rank, by its number in the run.
    pub fn rank(&self) -> u32 {
        self.identity.rank
    }

    /// The number of ranks of the run.
    pub fn world_size(&self) -> u32 {
        self.identity.world_size
    }

    /// The communicator, in words.
    pub fn communicator(&self) -> String {
        name_words(&self.identity.world).trim_end_matches(',').to_owned()
    }

    /// Whether the communicator is that of all ranks.
    pub fn is_of_all(&self) -> bool {
        self.identity.world.id == 0
    }

    /// The name of the job; empty unless the communicator is that of all ranks.
    pub fn job(&self) -> &str {
        &self.identity.job
    }

    /// Reads what the rank does.
    pub fn look(&self) -> Look {
        let words = &self.words;
        let call = words.stamp.last();
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        call.hash(&mut hasher);
        words.progress.iter().for_each(|progress| progress.word().hash(&mut hasher));
        let recent = words.record.recent(call, || words.stamp.last());
        Look {
            call,
            is_in_call: !words.activity.is_quiet(),
            has_left: words.departure.last().is_some(),
            progress: hasher.finish(),
            recent: recent.iter().map(|(call, record)| (*call, words_of_call(words, *call, record))).collect(),
            waits: notices_in(words).iter().map(SeenWait::of).collect(),
        }
    }

    /// Says the cycle of waits of some ranks of one job, if there is one. `recorders` are of the communicator of all ranks.
    pub fn cycle<'a>(recorders: impl Iterator<Item = &'a Self>) -> Option<String> {
        let notices: Vec<(u32, Vec<Notice>)> =
            recorders.map(|recorder| (recorder.rank(), notices_in(&recorder.words))).collect();
        let read = |rank: u32| notices.iter().find(|(of, _)| *of == rank).map_or(Vec::new(), |(_, read)| read.clone());
        let begins = notices.iter().flat_map(|(rank, of_rank)| of_rank.iter().map(move |notice| (*rank, notice)));
        let mut lasting = begins.filter(|(_, notice)| notice.until_ns == 0);
        lasting.find_map(|(rank, notice)| cycle(rank, notice, read)).map(|cycle| cycle_words(&cycle))
    }
}

/// Reads the identity at the beginning of a file of any length.
fn identity_at(file: &File, bytes: usize) -> std::result::Result<Identity, String> {
    let mut read = [0; 8 * (1 + IDENTITY_WORDS)];
    _ = file.read_at(&mut read, 0);
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| read[8 * at + byte]));
    // The sequence of the posting comes first.
    let found = Identity::of_words(&std::array::from_fn(|at| word(1 + at)), WORDS_BYTES);
    found.and_then(|_| Err(format!("{bytes} bytes, and words of this version have {WORDS_BYTES}")))
}

impl SeenWait {
    fn of(notice: &Notice) -> Self {
        let has_timed_out = notice.until_ns != 0;
        let end = if has_timed_out { notice.until_ns } else { monotonic_ns() };
        let for_s = end.saturating_sub(notice.since_ns) as f64 / 1e9;
        Self { words: waits_words(notice), for_s, has_timed_out }
    }
}
