//! The mesh: a socket between each two ranks that are processes of one machine, and the join by which they find each other.
//!
//! Memory that processes share has no name: one process makes it and passes its descriptor. For this every rank needs a connection to
//! every other one, and a way to find it that any launcher can arrange. A name of the job is enough: rank 0 listens under it, the others
//! connect. Afterwards no rank is special and nothing listens.
//!
//! ```text
//!    rank 0                    rank 1                     rank 2                 (of 3)
//!      │ listens at              │ listens at               │ nobody is above it
//!      │ nvcoll.<user>.<job>     │ a name of the kernel     │
//!      │◀─────────── hello ──────┤                          │        rank, world size, token, job, own name
//!      │◀─────────── hello ──────┼──────────────────────────┤
//!      │ all have come: stops to listen                     │
//!      ├──────────── welcome ───▶│                          │        token, number of the join, names of all
//!      ├──────────── welcome ────┼─────────────────────────▶│
//!      │                         │◀──────────── hello ──────┤        each rank calls all lower ones but 0
//!      │                         ├───────────── answer ────▶│        a hello of the other end
//!      │◀─────────── ready ──────┤                          │        connected with all
//!      │◀─────────── ready ──────┼──────────────────────────┤
//!      ├──────────── go ────────▶│                          │        all are: the join is complete
//!      ├──────────── go ─────────┼─────────────────────────▶│
//!      │◀═══════════ message ═══▶│◀════════════ message ═══▶│        between any two ranks, on the same sockets
//! ```
//!
//! **All or none.** A join ends in the same way on all ranks. A rank that gives up sends rank 0 a `refusal` with its reason. Rank 0 sends
//! it to all ranks, also if it gives up itself or if a connection ends. There is one exception: a rank that gives up between its `ready`
//! and the `go` can be too late to stop the others. They see its end like that of any rank that leaves later ([`Mesh::has_left`]).
//!
//! **Who may join.** The kernel says which user is at the other end (`SO_PEERCRED`), on both ends of every connection. Processes of other
//! users are closed without being read. Hello, welcome and answer show the token of the job, which is compared in constant time, and the
//! ranks of a join also know its number, which rank 0 draws at random. Only a process that has passed all this can make a join fail: by
//! another world size, or by a rank that somebody has. Everybody else is turned away and counts for nothing (`handshake.rs`). Descriptors that
//! come before a rank has joined are closed by the kernel. All packets have a fixed form (`wire.rs`).
//!
//! **Names.** They are of the abstract namespace. No file system has them, and they go with the last copy of the socket. They are of a
//! network namespace: containers find each other if they share it, and other hosts never. A copy of the socket may live for a moment in a
//! child that is about to start a program. Therefore rank 0 shuts it down before it closes it, and a name that is taken while nobody
//! listens is tried again.
//!
//! **Joining again.** Rank 0 stops to listen before it sends the first welcome. A rank that joins again under the same name cannot find
//! the old join. Ranks whose hello was not read see a reset and call again.
//!
//! | step | where |
//! |---|---|
//! | system calls | `socket.rs`, the only unsafe code |
//! | packets | `wire.rs` |
//! | whom to admit | `settings.rs`, `handshake.rs` |
//! | the join of rank 0 | `rank_zero.rs` |
//! | the join of another rank: with rank 0, with the others | `with_rank_zero.rs`, `with_others.rs` |
//! | reasons of failures and their words | `failure.rs` |
//! | messages | `control_messages.rs` |
//!
//! Cost: n - 1 descriptors per rank, and one more during the join; four packets between rank 0 and each other rank, and two between each
//! other two. A rank that waits looks at its deadline and at the user's wish at least every 50 ms.
//!
//! What it does not do: it does not encrypt, and a process of the same user that listens under the name of the job before rank 0 learns
//! the token. It could as well read the memory of the ranks. It does not notice a rank that is stopped, other than by the deadline. A
//! rank in another namespace of processes can join; its process number reads as 0.

mod control_messages;
mod failure;
mod handshake;
mod patience;
mod rank_zero;
mod settings;
mod socket;
#[cfg(all(test, not(loom)))]
mod tests;
mod wire;
mod with_others;
mod with_rank_zero;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::BorrowedFd;

use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::sync::condition::IsInterrupted;
use crate::system::process::Process;

pub(crate) use control_messages::too_many_in_flight;
pub use control_messages::Message;
pub use settings::JobSettings;
pub(crate) use socket::Sending;

use control_messages::PeerConnection;
use patience::JoinWait;

/// The connections of one rank with all others. Dropping it closes them.
#[derive(Debug)]
pub struct Mesh {
    rank: u32,
    /// One place per rank; that of this rank is empty.
    peers: Vec<Option<PeerConnection>>,
    process: Process,
}

impl Mesh {
    /// Joins the other ranks of a job. Returns when all are connected with each other. `is_interrupted` says whether the user wishes
    /// to give up; it is asked often, so it must be cheap.
    ///
    /// # Errors
    /// - `Overdue`: the deadline of a rank passed. It names the ranks that are missing.
    /// - `Invalid`: settings that cannot be used, that differ between ranks, or that two processes share; another user, another version.
    /// - `Left`: a rank ended or gave up.
    /// - `System`: a descriptor or a socket was refused.
    /// - `Interrupted`.
    pub fn join(settings: &JobSettings, is_interrupted: IsInterrupted<'_>) -> Result<Self> {
        settings.check()?;
        let (mut wait, user) = (JoinWait::new(settings.deadline, is_interrupted), socket::own_user());
        let joined = match (settings.rank, settings.world_size) {
            (_, 1) => Ok(vec![None]),
            (0, _) => rank_zero::gather(settings, user, random_number(), &mut wait),
            _ => with_others::join(settings, user, &mut wait),
        };
        let joined = joined.map_err(|failure| failure.error(settings))?;
        let peer = |(rank, place): (u32, Option<_>)| place.map(|(socket, id)| PeerConnection::new(rank, socket, id));
        let peers = (0..).zip(joined).map(peer).collect();
        Ok(Self { rank: settings.rank, peers, process: Process::current() })
    }

    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.peers.len() as u32
    }

    /// Sends a message: at most 64 words and at most 8 descriptors, under a key by which the peer asks for it. Returns when the message
    /// is on its way. While the peer does not read, it waits until the deadline passes or `is_given_up`.
    ///
    /// # Errors
    /// - `Left`: the peer has closed its end.
    /// - `Overdue`, `Interrupted`: the deadline passed, or `is_given_up` said so. The message was not sent.
    /// - `Invalid`: no such peer, or too much for a message.
    /// - `System`: the system refused the message.
    /// - `Closed`: this process was forked off.
    pub fn send(
        &self,
        peer: u32,
        key: [u64; 3],
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
        deadline: Deadline,
        is_given_up: IsInterrupted<'_>,
    ) -> Result<()> {
        let mut limit = WaitLimit::new(deadline, is_given_up);
        self.peer(peer)?.send(key, words, descriptors, &mut limit)
    }

    /// Sends a message if that is possible now; whoever asked for it may be gone.
    pub(crate) fn try_to_send(
        &self,
        peer: u32,
        key: [u64; 3],
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
    ) -> Sending {
        let sent = self.peer(peer).and_then(|peer| peer.try_to_send(key, words, descriptors));
        sent.unwrap_or(Sending::Ended)
    }

    /// Receives the next message of a peer with a key, in the order in which it sent them. Messages with other keys are kept for those
    /// who ask for them. Several threads may ask at once.
    ///
    /// # Errors
    /// - `Left`: the peer has closed its end, and all of its messages with this key were received.
    /// - `Overdue`, `Interrupted`: the deadline passed, or `is_given_up` said so.
    /// - `System`: the message came without its descriptors, since this process had no more.
    /// - `Invalid`, `Closed`: as [`Mesh::send`].
    pub fn receive(
        &self,
        peer: u32,
        key: [u64; 3],
        deadline: Deadline,
        is_given_up: IsInterrupted<'_>,
    ) -> Result<Message> {
        self.peer(peer)?.receive(key, &mut WaitLimit::new(deadline, is_given_up))
    }

    /// Takes messages with descriptors back that a peer has not asked for, because what they were sent for has failed.
    pub(crate) fn take_back(&self, peer: u32, key: [u64; 2]) {
        self.peers[peer as usize].iter().for_each(|peer| peer.take_back(key));
    }

    /// Drops the messages with keys that begin so, those that come later too.
    pub(crate) fn forget(&self, key: [u64; 2]) {
        self.peers.iter().flatten().for_each(|peer| peer.forget(key));
    }

    /// As [`Mesh::forget`], for messages of one peer.
    pub(crate) fn forget_of(&self, peer: u32, key: [u64; 2]) {
        self.peers[peer as usize].iter().for_each(|peer| peer.forget(key));
    }

    /// Says whether a peer has closed its end: its process ended, or it dropped its mesh. It does not block. A rank does not leave itself.
    ///
    /// # Panics
    /// Without such a rank.
    pub fn has_left(&self, peer: u32) -> bool {
        self.peers[peer as usize].as_ref().is_some_and(PeerConnection::has_left)
    }

    /// Returns the process of a rank, as the kernel says it; 0 if it is in a namespace of processes that this one does not see.
    ///
    /// # Panics
    /// Without such a rank.
    pub fn process_of(&self, rank: u32) -> u32 {
        self.peers[rank as usize].as_ref().map_or_else(std::process::id, PeerConnection::process)
    }

    fn peer(&self, peer: u32) -> Result<&PeerConnection> {
        if !self.process.is_current() {
            return Err(Error::Closed("this process was forked off a rank, whose connections it may not use"));
        }
        let found = self.peers.get(peer as usize).and_then(Option::as_ref);
        found.ok_or_else(|| {
            let (own, last) = (self.rank, self.world_size() - 1);
            Error::Invalid(format!("found peer {peer}, expected another rank than {own} from 0 to {last}"))
        })
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        // A child that was forked off drops a copy, and its parent goes on.
        if self.process.is_current() {
            self.peers.iter().flatten().for_each(PeerConnection::leave);
        }
    }
}

/// Draws a number that other processes cannot guess.
fn random_number() -> [u64; 2] {
    [(); 2].map(|()| RandomState::new().build_hasher().finish())
}
