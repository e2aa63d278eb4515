//! Notices: where a rank waits and for whom, posted before it sleeps.
//!
//! A rank that is about to sleep has time. It posts the communicator, the call and the ranks that it waits for, and takes the notice down
//! when the wait is over. A wait that does not sleep posts nothing. So this costs calls nothing, and a rank that gives up can say what
//! the others do (`run/wait_graph.rs`), also another program (`processes/recorder.rs`).
//!
//! A notice of a wait that timed out stays until the next one, with its end: two ranks that wait for each other time out one after the
//! other, and the later one wants to know why.

use crate::sync::record::WORDS;
use crate::sync::Record;

/// How many threads of a rank can post a notice. Chosen: more than communicators that are used at once.
pub(crate) const NOTICES: usize = 4;

/// How many ranks a list of a notice names. Chosen.
pub(crate) const LISTED: usize = 16;

const LIST_WORDS: usize = 1 + LISTED / 4;
const HEAD_WORDS: usize = 3;

/// How many words a notice has.
pub(crate) const NOTICE_WORDS: usize = HEAD_WORDS + WORLD_NAME_WORDS + WORDS + LIST_WORDS;

/// The first ranks of a list, and how many it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RankList {
    first: [u16; LISTED],
    pub(crate) total: usize,
}

impl FromIterator<u32> for RankList {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut list = Self::default();
        for rank in ranks {
            // A rank may be awaited several times, once per step.
            if list.first().any(|listed| listed == rank) {
                continue;
            }
            if let Some(place) = list.first.get_mut(list.total) {
                *place = rank as u16;
            }
            list.total += 1;
        }
        list
    }
}

impl RankList {
    /// Returns the first ranks, at most [`LISTED`].
    pub(crate) fn first(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.first.iter().take(self.total).map(|&rank| rank.into())
    }

    fn words(&self) -> [u64; LIST_WORDS] {
        let mut words = [0; LIST_WORDS];
        words[0] = self.total as u64;
        for (at, rank) in self.first.iter().enumerate() {
            words[1 + at / 4] |= u64::from(*rank) << (at % 4 * 16);
        }
        words
    }

    /// Any words are a list.
    fn of_words(words: &[u64]) -> Self {
        let rank = |at: usize| (words[1 + at / 4] >> (at % 4 * 16)) as u16;
        Self { first: std::array::from_fn(rank), total: words[0] as u32 as usize }
    }
}

/// A communicator, so that ranks outside can name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorldName {
    /// The same number on every rank, and hardly ever that of another communicator; 0 is the world of all ranks.
    pub(crate) id: u64,
    /// The number of the call that split it off; 0 if none did: it has all ranks, or was shrunk; [`SUBSET`] of a subset.
    pub(crate) split: u32,
    /// Its ranks, by their numbers in the run.
    pub(crate) ranks: RankList,
}

/// In the place of a number of a call: the communicator is a subset. No program makes this number of calls before it splits.
pub(crate) const SUBSET: u32 = u32::MAX;

/// How many words the name of a world has.
pub(crate) const WORLD_NAME_WORDS: usize = 2 + LIST_WORDS;

impl WorldName {
    pub(super) fn words(&self) -> [u64; WORLD_NAME_WORDS] {
        let mut words = [self.id; WORLD_NAME_WORDS];
        words[1] = self.split.into();
        words[2..].copy_from_slice(&self.ranks.words());
        words
    }

    /// Any words are a name.
    pub(super) fn of_words(words: &[u64]) -> Self {
        Self { id: words[0], split: words[1] as u32, ranks: RankList::of_words(&words[2..]) }
    }
}

/// A notice. All ranks are by their numbers in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) world: WorldName,
    pub(crate) call: u32,
    pub(crate) record: Record,
    /// The ranks that the rank waits for.
    pub(crate) awaited: RankList,
    /// When the wait began to sleep, on the monotonic clock, which processes share.
    pub(crate) since_ns: u64,
    /// When the wait timed out; 0 if it lasts.
    pub(crate) until_ns: u64,
}

impl Notice {
    pub(super) fn words(&self) -> [u64; NOTICE_WORDS] {
        let Self { world, call, record, awaited, since_ns, until_ns } = self;
        let mut words = [0; NOTICE_WORDS];
        words[..HEAD_WORDS].copy_from_slice(&[1 | u64::from(*call) << 32, *since_ns, *until_ns]);
        let (name, rest) = words[HEAD_WORDS..].split_at_mut(WORLD_NAME_WORDS);
        let (own, list) = rest.split_at_mut(WORDS);
        name.copy_from_slice(&world.words());
        own.copy_from_slice(record);
        list.copy_from_slice(&awaited.words());
        words
    }

    /// Any words are a notice, or none.
    pub(super) fn of_words(words: &[u64; NOTICE_WORDS]) -> Option<Self> {
        let [is_up, since_ns, until_ns] = *words.first_chunk().expect("it is shorter");
        let (name, rest) = words[HEAD_WORDS..].split_at(WORLD_NAME_WORDS);
        let (record, list) = rest.split_at(WORDS);
        (is_up & 1 == 1).then(|| Self {
            world: WorldName::of_words(name),
            call: (is_up >> 32) as u32,
            record: std::array::from_fn(|at| record[at]),
            awaited: RankList::of_words(list),
            since_ns,
            until_ns,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_give_back_a_notice_with_the_first_ranks_of_long_lists() {
        let world = WorldName { id: u64::MAX, split: u32::MAX, ranks: (0..1024).collect() };
        let awaited: RankList = [7, 4095, 7].into_iter().collect();
        assert_eq!(awaited.total, 2, "each rank once");
        let notice = Notice { world, call: u32::MAX, record: [9; WORDS], awaited, since_ns: 1, until_ns: 0 };
        assert_eq!(Notice::of_words(&notice.words()).as_ref(), Some(&notice));
        assert_eq!((notice.world.ranks.first().count(), notice.world.ranks.total), (LISTED, 1024));
        assert_eq!(Notice::of_words(&[0; NOTICE_WORDS]), None);
        assert!(Notice::of_words(&[u64::MAX; NOTICE_WORDS]).is_some(), "any words are a notice");
    }
}
