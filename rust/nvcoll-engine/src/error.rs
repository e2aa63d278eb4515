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
        /// The ranks that did not enter, in words.
        missing: String,
    },
    /// The deadline of a wait passed that is no call: of joining, or of a message.
    #[error("{what} timed out after {seconds} s: {missing}")]
    Overdue {
        /// The wait, in words.
        what: String,
        /// The allowed time.
        seconds: f64,
        /// What did not happen, and what to do, in words.
        missing: String,
    },
    /// A rank that is a process ended, or closed its connection.
    #[error("rank {rank} left {circumstance}")]
    Left {
        /// The rank that left.
        rank: u32,
        /// When, and why if it said so, in words.
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

/// A rank whose process ended without a word.
#[derive(Debug, Clone, PartialEq)]
pub struct LostPeer {
    /// The rank.
    pub rank: u32,
    /// The number of its process, if the system tells it.
    pub process: Option<u32>,
    /// How it ended, if the system told it.
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
