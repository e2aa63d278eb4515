//! The reasons for which a join fails. A rank that fails tells rank 0, rank 0 tells all ranks, and each turns the reason into words.

use std::io;

use crate::error::{Error, LateRanks};
use crate::join::settings::JobSettings;
use crate::join::socket::PeerProcess;
use crate::join::wire::{RefusalBody, VERSION};

/// The most ranks in a list. Chosen.
const MOST_LISTED: usize = 16;

/// The reason for which a join failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JoinFailure {
    /// Some ranks had not come to rank 0 at a deadline. `note` tells whom rank 0 turned away; it is known on rank 0 only.
    NotCome { ranks: Vec<u32>, seconds: f64, note: String },
    /// All ranks came, but at the deadline of `rank` it had no connection with some of them.
    NotConnected { rank: u32, ranks: Vec<u32>, seconds: f64 },
    /// Rank 0 had not come at the deadline of another rank.
    NoRankZero { seconds: f64 },
    /// Rank 0 has come, and does not answer a rank whose deadline has passed.
    Silent { seconds: f64 },
    /// A rank left.
    Left { rank: u32 },
    /// The user interrupted a rank.
    Interrupted { rank: u32 },
    /// The system refused a rank something. `what` is known on that rank only.
    Failed { rank: u32, number: i32, what: String },
    /// A rank has another world size than rank 0.
    WorldSize { rank: u32, found: u32, expected: u32 },
    /// Two processes have the same rank.
    Twice { rank: u32, processes: [u32; 2] },
    /// The token is wrong, or one side has none.
    Token { has_rank_zero_one: bool },
    /// Another process listens under the name of the job, so that this one cannot be rank 0.
    NameTaken(PeerProcess),
    /// A process of another user listens under the name of the job, so that this one cannot connect.
    OtherUser(PeerProcess),
    /// Rank 0 runs another version of nvcoll; its version if rank 0 sent it.
    OtherVersion(String),
}

impl JoinFailure {
    /// Makes the reason from an error of the system.
    pub(super) fn of_system(settings: &JobSettings, what: &str, error: &io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        Self::Failed { rank: settings.rank, number, what: what.into() }
    }

    /// Makes the packet by which `sender` tells the reason.
    pub(super) fn packet(&self, sender: u32) -> Vec<u8> {
        let (code, rank, numbers, ranks) = match self {
            Self::NotCome { ranks, seconds, .. } => (1, 0, [seconds.to_bits(), 0], &ranks[..]),
            Self::NotConnected { rank, ranks, seconds } => (2, *rank, [seconds.to_bits(), 0], &ranks[..]),
            Self::Interrupted { rank } => (3, *rank, [0, 0], &[][..]),
            Self::Failed { rank, number, .. } => (4, *rank, [u64::from(number.unsigned_abs()), 0], &[][..]),
            Self::WorldSize { rank, found, expected } => (5, *rank, [(*found).into(), (*expected).into()], &[][..]),
            Self::Twice { rank, processes } => (6, *rank, processes.map(u64::from), &[][..]),
            Self::Token { has_rank_zero_one } => (7, 0, [u64::from(*has_rank_zero_one), 0], &[][..]),
            Self::Left { rank } => (8, *rank, [0, 0], &[][..]),
            // Nobody but the sender can act on these.
            Self::NoRankZero { .. }
            | Self::Silent { .. }
            | Self::NameTaken(_)
            | Self::OtherUser(_)
            | Self::OtherVersion(_) => (8, sender, [0, 0], &[][..]),
        };
        RefusalBody { code, rank, numbers, ranks: ranks.to_vec() }.packet()
    }

    /// Returns the reason that a refusal tells.
    pub(super) fn read(body: RefusalBody) -> Option<Self> {
        let RefusalBody { code, rank, numbers, ranks } = body;
        let seconds = f64::from_bits(numbers[0]);
        let [first, second] = numbers.map(|number| number as u32);
        Some(match code {
            1 => Self::NotCome { ranks, seconds, note: String::new() },
            2 => Self::NotConnected { rank, ranks, seconds },
            3 => Self::Interrupted { rank },
            4 => Self::Failed { rank, number: first as i32, what: String::new() },
            5 => Self::WorldSize { rank, found: first, expected: second },
            6 => Self::Twice { rank, processes: [first, second] },
            7 => Self::Token { has_rank_zero_one: first != 0 },
            8 => Self::Left { rank },
            _ => return None,
        })
    }

    /// Returns the error of the rank that has these settings.
    pub(super) fn error(self, settings: &JobSettings) -> Error {
        let JobSettings { rank: own, world_size, job, .. } = settings;
        let overdue = |seconds, late: &[u32], words: String| Error::Overdue {
            what: format!("joining job {job:?} as rank {own} of {world_size}"),
            seconds,
            missing: Box::new(LateRanks { late: late.to_vec(), ..words.into() }),
        };
        let left = |rank, why: &str| Error::Left { rank, circumstance: format!("while job {job:?} joined{why}") };
        match self {
            Self::NotCome { seconds, ref ranks, .. } | Self::NotConnected { seconds, ref ranks, .. } => {
                overdue(seconds, ranks, self.missing())
            }
            Self::NoRankZero { seconds } | Self::Silent { seconds } => overdue(seconds, &[0], self.missing()),
            Self::Left { rank } => left(rank, ""),
            Self::Interrupted { rank } if rank == *own => Error::Interrupted,
            Self::Interrupted { rank } => left(rank, ": it was interrupted"),
            Self::Failed { rank, number, what } if rank == *own => Error::System { what, number },
            Self::Failed { rank, number, .. } => left(rank, &format!(": {}", io::Error::from_raw_os_error(number))),
            _ => Error::Invalid(self.disagreement(settings)),
        }
    }

    /// Says who was missing at a deadline.
    pub(super) fn missing(&self) -> String {
        match self {
            Self::NotCome { ranks, note, .. } => {
                let have = if ranks.len() == 1 { "has" } else { "have" };
                format!("{} {have} not come{note}: see whether each was started on this machine", in_words(ranks))
            }
            Self::NotConnected { rank, ranks, .. } => {
                let silent = in_words(ranks);
                format!(
                    "all ranks came, but rank {rank} got no answer from {silent}: see whether a process was stopped"
                )
            }
            Self::NoRankZero { .. } => {
                "rank 0 has not come, or is on another host or in another network namespace, or has \
                another job name or user: see whether it was started, with the same settings"
                    .into()
            }
            _ => "rank 0 has come and does not answer: see whether it was stopped".into(),
        }
    }

    /// Says in what a process and rank 0 disagree.
    fn disagreement(&self, settings: &JobSettings) -> String {
        let JobSettings { rank: own, job, token, .. } = settings;
        let apart = "give every process a rank of its own, and every job a name of its own";
        match self {
            Self::WorldSize { rank, found, expected } => format!(
                "rank {rank} of job {job:?} has world size {found}, rank 0 has {expected}: pass the same to every rank, and \
                 another name to each job"
            ),
            Self::Twice { rank, processes: [first, second] } => {
                format!("processes {first} and {second} both are rank {rank} of job {job:?}: {apart}")
            }
            Self::Token { has_rank_zero_one } => {
                let found = match (has_rank_zero_one, token.is_some()) {
                    (true, false) => format!("rank 0 of job {job:?} has a token, rank {own} has none"),
                    (false, true) => format!("rank {own} of job {job:?} has a token, rank 0 has none"),
                    _ => format!("rank {own} of job {job:?} has another token than rank 0"),
                };
                format!("{found}: pass the same to every rank")
            }
            Self::NameTaken(holder) => format!("{} is rank 0 of a job {job:?} already: {apart}", holder.in_words()),
            Self::OtherUser(holder) => format!(
                "{} waits for the ranks of job {job:?}, which is another user's: start every rank as one user, or choose another \
                 name for the job",
                holder.in_words()
            ),
            Self::OtherVersion(version) => format!(
                "rank 0 of job {job:?} has nvcoll {version}, rank {own} has {VERSION}: install one version for every rank"
            ),
            _ => format!("job {job:?} could not join"),
        }
    }
}

/// Lists ranks: `rank 3`, `ranks 3 and 5`, `ranks 3, 5 and 7`.
fn in_words(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(MOST_LISTED).map(u32::to_string).collect();
    match (&shown[..], ranks.len() - shown.len()) {
        ([], _) => "rank 0".into(),
        ([one], _) => format!("rank {one}"),
        ([first @ .., last], 0) => format!("ranks {} and {last}", first.join(", ")),
        (shown, more) => format!("ranks {} and {more} more", shown.join(", ")),
    }
}

impl PeerProcess {
    fn in_words(self) -> String {
        match self {
            Self { process: 0, user } => format!("a process of user {user}, in another namespace of processes,"),
            Self { process, user } => format!("process {process} of user {user}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_ranks_are_cut() {
        let many: Vec<u32> = (1..21).collect();
        let words = [&[3][..], &[3, 5], &[3, 5, 7], &many].map(in_words);
        let expected = "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 4 more";
        assert_eq!(words, ["rank 3", "ranks 3 and 5", "ranks 3, 5 and 7", expected]);
    }
}
