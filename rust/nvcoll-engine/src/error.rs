//! Errors of the engine. Each variant maps to one Python exception.

use std::borrow::Cow;
use std::fmt;

use nvcoll_core::interrupt::Interrupted;
use nvcoll_core::words::counted;

use crate::call::PositionedCall;
use crate::sync::WaitStatus;

/// An error of the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An argument that cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// Two ranks made different calls.
    #[error(
        "rank {rank_a} called {call_a}, but rank {rank_b} called {call_b}{}: every rank must make the same call{}",
        call_a.call.difference(&call_b.call),
        call_a.call.advice_beside(&call_b.call)
    )]
    Mismatch {
        /// One rank.
        rank_a: u32,
        /// The call of the first rank.
        call_a: PositionedCall,
        /// Another rank.
        rank_b: u32,
        /// The call of the other rank.
        call_b: PositionedCall,
    },
    /// Two ranks passed memory that overlaps, and one of the two is written.
    #[error(
        "what rank {rank_a} and rank {rank_b} passed to {call} overlaps, and one of the two is written: pass arrays that \
         share no byte"
    )]
    Overlap {
        /// One rank.
        rank_a: u32,
        /// Another rank.
        rank_b: u32,
        /// The call.
        call: PositionedCall,
    },
    /// The program of a rank returned, and another rank made a call that needs it.
    #[error(
        "the program of rank {rank} {how} after {}, but rank {caller} called {call} as its next: every rank must \
         make the same calls",
        counted(*calls, "call")
    )]
    Returned {
        /// The rank that returned.
        rank: u32,
        /// The way in which it left; dropping a communicator that was split off is one.
        how: &'static str,
        /// The number of calls that it had made.
        calls: u32,
        /// The rank that made one more.
        caller: u32,
        /// The call of that rank.
        call: PositionedCall,
    },
    /// A message does not fit the array of the receive that takes it.
    #[error(
        "rank {sender} sent {sent} with tag {tag}, and rank {receiver} receives it into an array of {room}: both must have the same \
         dtype and number of elements"
    )]
    UnlikeMessage {
        /// The rank that sent it.
        sender: u32,
        /// Its tag.
        tag: u32,
        /// The elements that were sent, in words.
        sent: String,
        /// The rank that receives it.
        receiver: u32,
        /// The elements of its array, in words.
        room: String,
    },
    /// The program of a rank returned, and another rank sends to it or receives from it.
    #[error(
        "the program of rank {rank} returned, and rank {waiter} called {what}: every message needs a send and a recv"
    )]
    NoPeer {
        /// The rank that returned.
        rank: u32,
        /// The rank that waits.
        waiter: u32,
        /// The send or the receive, in words.
        what: String,
    },
    /// Another rank failed, or a rank called abort.
    #[error("rank {rank} {cause}: the call was aborted")]
    Aborted {
        /// The rank that failed.
        rank: u32,
        /// The cause of the failure.
        cause: Cow<'static, str>,
    },
    /// The program of another rank ended with an exit status.
    #[error("rank {rank} ended with status {status}: the call was aborted")]
    Exited {
        /// The rank.
        rank: u32,
        /// Its exit status.
        status: u8,
    },
    /// The process of another rank ended without a word.
    #[error("{0}: the call was aborted")]
    PeerLost(Box<LostPeer>),
    /// The deadline passed.
    #[error("{what} timed out after {seconds} s: {missing}")]
    Timeout {
        /// The call.
        what: PositionedCall,
        /// The allowed time.
        seconds: f64,
        /// Who did not enter.
        missing: Box<LateRanks>,
    },
    /// The deadline of a wait passed that is no call: of joining, or of a message.
    #[error("{what} timed out after {seconds} s: {missing}")]
    Overdue {
        /// The wait, in words.
        what: String,
        /// The allowed time.
        seconds: f64,
        /// Who did not come, or what did not happen, and what to do.
        missing: Box<LateRanks>,
    },
    /// A rank that is a process ended, or closed its connection.
    #[error("rank {rank} left {circumstance}")]
    Left {
        /// The rank that left.
        rank: u32,
        /// When, and its reason if it gave one, in words.
        circumstance: String,
    },
    /// The operating system refused a socket or a descriptor.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*number))]
    System {
        /// What was refused, and what to do, in words.
        what: String,
        /// The number of the error, `errno`.
        number: i32,
    },
    /// The user interrupted the program.
    #[error("interrupted")]
    Interrupted,
    /// The node is in another call.
    #[error("{0}")]
    Busy(&'static str),
    /// The peers of a rank are gone.
    #[error("{0}")]
    Closed(&'static str),
    /// Scratch or staging could not be allocated; nothing was moved.
    #[error("no memory for {bytes} bytes of {what} on each rank: {}", advice_about(what))]
    NoMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// The bytes that each rank needs.
        bytes: usize,
    },
    /// The processor lacks the instruction set.
    #[error("this processor has no {isa}: choose from {available}")]
    NoIsa {
        /// The instruction set.
        isa: &'static str,
        /// The instruction sets that it has.
        available: String,
    },
    /// The core refused the call.
    #[error(transparent)]
    Core(#[from] nvcoll_core::Error),
    /// Text that is no tuning table.
    #[error("the tuning table cannot be used: {0}")]
    Tuning(String),
    /// The proof failed.
    #[error("{0}")]
    Refuted(String),
}

/// The ranks that a wait missed at its deadline, by their numbers in the communicator.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LateRanks {
    /// The ranks that are late.
    pub late: Vec<u32>,
    /// What they have not done, in words: "entered the call"; empty if `more` says it all.
    pub not_done: String,
    /// The late ranks whose process is stopped.
    pub stopped: Vec<u32>,
    /// What else is known, in words. It may name ranks of the run.
    pub more: String,
}

impl<Words: Into<String>> From<Words> for LateRanks {
    fn from(words: Words) -> Self {
        Self { more: words.into(), ..Self::default() }
    }
}

impl fmt::Display for LateRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks: Vec<String> = self.late.iter().map(u32::to_string).collect();
        match (&ranks[..], &self.not_done[..]) {
            (_, "") | ([], _) => {}
            ([one], what) => write!(f, "rank {one} has not {what}")?,
            (several, what) => write!(f, "ranks {} have not {what}", several.join(", "))?,
        }
        f.write_str(&self.more)
    }
}

/// The ranks that an error is about, for programs.
#[derive(Debug, Default, PartialEq)]
pub struct NamedRanks {
    /// All of them: those that failed, disagree or are late.
    pub ranks: Vec<u32>,
    /// Those that are late.
    pub late: Vec<u32>,
    /// The late ones whose process is stopped.
    pub stopped: Vec<u32>,
    /// Those that have left.
    pub left: Vec<u32>,
}

impl Error {
    /// Returns the ranks that the error is about.
    pub fn named_ranks(&self) -> NamedRanks {
        let of = |ranks: &[u32]| NamedRanks { ranks: ranks.to_vec(), ..NamedRanks::default() };
        match self {
            Self::Mismatch { rank_a, rank_b, .. } | Self::Overlap { rank_a, rank_b, .. } => of(&[*rank_a, *rank_b]),
            Self::Returned { rank, caller, .. } => NamedRanks { left: vec![*rank], ..of(&[*rank, *caller]) },
            Self::NoPeer { rank, waiter, .. } => NamedRanks { left: vec![*rank], ..of(&[*rank, *waiter]) },
            Self::UnlikeMessage { sender, receiver, .. } => of(&[*sender, *receiver]),
            Self::Aborted { rank, .. } | Self::Exited { rank, .. } => of(&[*rank]),
            Self::PeerLost(peer) => of(&[peer.rank]),
            Self::Left { rank, .. } => NamedRanks { left: vec![*rank], ..of(&[*rank]) },
            Self::Timeout { missing, .. } | Self::Overdue { missing, .. } => {
                let LateRanks { late, stopped, .. } = &**missing;
                NamedRanks { late: late.clone(), stopped: stopped.clone(), ..of(late) }
            }
            _ => NamedRanks::default(),
        }
    }

    /// Returns the error with other numbers for its ranks: number `r` becomes `numbers[r]`, if there is one.
    #[must_use]
    pub fn renumbered(&self, numbers: &[u32]) -> Self {
        let mut error = self.clone();
        let number = |rank: &mut u32| *rank = numbers.get(*rank as usize).copied().unwrap_or(*rank);
        match &mut error {
            Self::Mismatch { rank_a: one, rank_b: other, .. }
            | Self::Overlap { rank_a: one, rank_b: other, .. }
            | Self::Returned { rank: one, caller: other, .. }
            | Self::UnlikeMessage { sender: one, receiver: other, .. }
            | Self::NoPeer { rank: one, waiter: other, .. } => [one, other].into_iter().for_each(number),
            Self::Aborted { rank, .. } | Self::Exited { rank, .. } | Self::Left { rank, .. } => number(rank),
            Self::PeerLost(peer) => number(&mut peer.rank),
            Self::Timeout { missing, .. } | Self::Overdue { missing, .. } => {
                missing.late.iter_mut().chain(&mut missing.stopped).for_each(number);
                if !missing.not_done.is_empty() {
                    missing.more.clear();
                }
            }
            _ => {}
        }
        error
    }
}

/// A rank whose process ended without a word.
#[derive(Debug, Clone, PartialEq)]
pub struct LostPeer {
    /// The rank.
    pub rank: u32,
    /// The number of its process, if the system tells it.
    pub process: Option<u32>,
    /// Its end, if the system reported it.
    pub status: Option<WaitStatus>,
    /// What the rank was calling, in words.
    pub doing: String,
    /// What may have killed it, in words; may be empty.
    pub hint: &'static str,
}

impl fmt::Display for LostPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, process, status, doing, hint } = self;
        write!(f, "rank {rank}")?;
        process.map_or(Ok(()), |process| write!(f, " (process {process})"))?;
        match status.map(|status| (status.signal(), status.exit_status())) {
            Some((Some(signal), _)) => write!(f, " was killed by signal {signal}{}{hint}", name_of_signal(signal))?,
            Some((_, Some(status))) => write!(f, " ended with status {status} without leaving the job,")?,
            _ => write!(f, " ended without leaving the job,")?,
        }
        write!(f, " {doing}")
    }
}

/// Returns the name of a signal in parentheses, of those that end processes. Cited: signal(7).
fn name_of_signal(signal: u32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        _ => "",
    }
}

impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Self {
        Self::Core(interrupted.into())
    }
}

/// The result of anything in the engine that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The purpose of memory of `comm.empty`.
pub(crate) const SYMMETRIC_MEMORY: &str = "symmetric memory";

/// Returns what to do if there is no memory for a purpose.
fn advice_about(what: &str) -> &'static str {
    match what {
        SYMMETRIC_MEMORY => "make smaller arrays, or release some",
        _ => "pass smaller arrays, or another algorithm or path",
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_change_the_words_and_the_named_ranks() {
        let missing = LateRanks {
            late: vec![0, 2],
            not_done: "entered the call".into(),
            stopped: vec![2],
            more: "; rank 9 of the run is elsewhere".into(),
        };
        let error = Error::Overdue { what: "shrink".into(), seconds: 3.0, missing: Box::new(missing) };
        let found = error.renumbered(&[4, 5, 6]);
        assert_eq!(found.to_string(), "shrink timed out after 3 s: ranks 4, 6 have not entered the call");
        let NamedRanks { ranks, late, stopped, left } = found.named_ranks();
        assert_eq!((ranks, late, stopped, left), (vec![4, 6], vec![4, 6], vec![6], vec![]));

        let error = Error::NoPeer { rank: 1, waiter: 0, what: "recv of 4 f32".into() }.renumbered(&[7, 8]);
        assert!(error.to_string().starts_with("the program of rank 8 returned, and rank 7 called recv"), "{error}");
        assert_eq!(error.named_ranks().left, [8]);
        assert_eq!(Error::Exited { rank: 3, status: 2 }.renumbered(&[7]).named_ranks().ranks, [3], "no such number");
    }
}
