//! The board on which the notices of all ranks hang: that of the world of all ranks, which every rank maps.
//!
//! So a notice is read by ranks that are not in the communicator, and a chain of waits can be followed through several communicators. The
//! board has [`NOTICES`] places per rank, one for each thread that waits; if all are taken, a thread posts nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::world::notice::{Notice, NOTICES, NOTICE_WORDS};
use crate::memory::world::rank_lines::{InBlock, RankLines, RankWords};
use crate::sync::backoff::give_way;
use crate::sync::{Posted, TakenPlaces};
use crate::system::clock::monotonic_ns;

/// How long a reader waits for a posting that is being made, as ranks whose limits pass together do. Chosen: a thread that posts may
/// have to wait for a processor, but may also have been killed or stopped.
const POSTING: Duration = Duration::from_millis(20);

/// Returns the notices of a rank: first of waits that timed out, then of waits that last.
pub(crate) fn notices_in(words: &RankWords) -> Vec<Notice> {
    let mut notices: Vec<_> = words.notices.iter().filter_map(|place| Notice::of_words(&whole(place)?)).collect();
    notices.sort_by_key(|notice| (notice.until_ns == 0, notice.until_ns));
    notices
}

/// Reads a place; `None` if a posting is not finished there for long.
fn whole(place: &Posted<NOTICE_WORDS>) -> Option<[u64; NOTICE_WORDS]> {
    let began = Instant::now();
    loop {
        let words = place.read();
        if words.is_some() || began.elapsed() > POSTING {
            return words;
        }
        give_way();
    }
}

/// The notices of all ranks of a run.
#[derive(Debug)]
pub(crate) struct NoticeBoard(Vec<(InBlock<RankWords>, TakenPlaces<NOTICES>)>);

impl NoticeBoard {
    /// The board of the world of all ranks.
    pub(super) fn of(lines: &[RankLines]) -> Arc<Self> {
        Arc::new(Self(lines.iter().map(|lines| (lines.words().clone(), TakenPlaces::default())).collect()))
    }

    /// Returns the number of ranks.
    pub(super) fn world_size(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the words of a rank in the world of all.
    pub(crate) fn words_of(&self, rank: u32) -> &RankWords {
        &self.0[rank as usize].0
    }

    /// Returns the notices of a rank, as [`notices_in`]; none of a rank that does not exist.
    pub(crate) fn read(&self, rank: u32) -> Vec<Notice> {
        self.0.get(rank as usize).map_or(Vec::new(), |(words, _)| notices_in(words))
    }
}

/// The notice of one wait of a rank of this process. It is taken down when the wait ends, unless it timed out.
#[derive(Debug)]
pub(crate) struct PostedNotice<'a> {
    board: &'a NoticeBoard,
    rank: u32,
    at: Option<usize>,
    since_ns: u64,
    has_timed_out: bool,
}

impl<'a> PostedNotice<'a> {
    /// Begins a wait of a rank of the run; nothing is posted yet.
    pub(crate) fn new(board: &'a NoticeBoard, rank: u32) -> Self {
        Self { board, rank, at: board.0[rank as usize].1.take(), since_ns: monotonic_ns(), has_timed_out: false }
    }

    /// Posts the notice, or changes it; returns it with its times.
    pub(crate) fn post(&mut self, notice: Notice, has_timed_out: bool) -> Notice {
        self.has_timed_out = has_timed_out;
        let until_ns = if has_timed_out { monotonic_ns() } else { 0 };
        let notice = Notice { since_ns: self.since_ns, until_ns, ..notice };
        if let Some(at) = self.at {
            self.board.0[self.rank as usize].0.notices[at].post(&notice.words());
        }
        notice
    }
}

impl Drop for PostedNotice<'_> {
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let (words, taken) = &self.board.0[self.rank as usize];
        if !self.has_timed_out {
            words.notices[at].post(&[0; NOTICE_WORDS]);
        }
        taken.give_back(at);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_while_it_is_posted_again() {
        let place = Posted::default();
        place.post(&[1; NOTICE_WORDS]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..100_000).for_each(|word| place.post(&[word; NOTICE_WORDS])));
            while !writer.is_finished() {
                let words = whole(&place).expect("the writer goes on");
                assert!(words.iter().all(|word| *word == words[0]));
            }
        });
    }
}
