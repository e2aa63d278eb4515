//! The tender of a rank: a thread that moves sends and receives in flight while the program computes or waits elsewhere.
//!
//! ```text
//! isend, irecv     not over at once: the transfer is tended                         the first one starts the thread `nvcoll-messages`
//! tender           polls communicators with tended transfers, sleeps between        20 us, doubled up to 500 us while nothing moves
//!                  sleeps until the next one, if all have ended
//! work.wait()      drives the transfers itself, as without a tender                 the tender finds the mailbox locked
//! ```
//!
//! Without a tender, a message moves only while its rank is in a call of the communicator, as with most MPI. Two programs then wait for
//! each other: one sends a large message and waits in another communicator for a rank that receives the message first. gloo and NCCL
//! finish them, so programs for torch contain them.
//!
//! A thread of the program that needs the mailbox is a visitor: the tender and threads that wait for a transfer leave the mailbox to it.
//!
//! Cost: nothing while nothing is in flight. One thread per rank.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};

/// The first and the longest sleep between two polls. Chosen: a pipe of chunks needs one poll for 4 MiB, and an idle poll takes 1 us.
const SLEEPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];

/// The stack of the thread. Chosen, as that of lanes.
const STACK_BYTES: usize = 1 << 20;

/// What a tender polls.
pub(crate) trait HasMessages: Send + Sync + 'static {
    /// Says whether a tended transfer has not ended.
    fn has_tended(&self) -> bool;

    /// Moves the transfers once, unless another thread does; says whether something moved.
    fn poll_tended(&self) -> bool;
}

/// The tender of the communicators of one rank. Its drop ends the thread.
#[derive(Debug)]
pub(crate) struct Tender<Member>(Arc<TenderState<Member>>);

#[derive(Debug)]
struct TenderState<Member> {
    tended: Mutex<Tended<Member>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Tended<Member> {
    members: Vec<Weak<Member>>,
    is_running: bool,
    is_closed: bool,
}

impl<Member> Default for Tender<Member> {
    fn default() -> Self {
        let tended = Mutex::new(Tended { members: Vec::new(), is_running: false, is_closed: false });
        Self(Arc::new(TenderState { tended, changed: Condvar::new() }))
    }
}

impl<Member> TenderState<Member> {
    fn lock(&self) -> MutexGuard<'_, Tended<Member>> {
        self.tended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Member: HasMessages> Tender<Member> {
    /// Polls a member from now on, until its tended transfers have ended.
    ///
    /// # Errors
    /// [`Error::System`] if there can be no thread.
    pub(crate) fn tend(&self, member: &Arc<Member>) -> Result<()> {
        let mut tended = self.0.lock();
        if !tended.is_running {
            let state = self.0.clone();
            let builder = thread::Builder::new().name("nvcoll-messages".into()).stack_size(STACK_BYTES);
            builder.spawn(move || run(&state)).map_err(|error| Error::System {
                what: "no thread for messages in flight: end threads".into(),
                number: error.raw_os_error().unwrap_or(0),
            })?;
            tended.is_running = true;
        }
        let own = Arc::downgrade(member);
        if !tended.members.iter().any(|one| Weak::ptr_eq(one, &own)) {
            tended.members.push(own);
            self.0.changed.notify_all();
        }
        Ok(())
    }
}

impl<Member> Drop for Tender<Member> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

fn run<Member: HasMessages>(state: &TenderState<Member>) {
    let mut sleep = SLEEPS[0];
    loop {
        let members: Vec<Arc<Member>> = {
            let mut tended = state.lock();
            while tended.members.is_empty() && !tended.is_closed {
                sleep = SLEEPS[0];
                tended = state.changed.wait(tended).unwrap_or_else(PoisonError::into_inner);
            }
            if tended.is_closed {
                return;
            }
            // Under the lock: who begins a transfer now is listed afterwards.
            tended.members.retain(|member| member.upgrade().is_some_and(|member| member.has_tended()));
            tended.members.iter().filter_map(Weak::upgrade).collect()
        };
        let moved = members.iter().filter(|member| member.poll_tended()).count();
        drop(members);
        sleep = if moved > 0 { SLEEPS[0] } else { (sleep * 2).min(SLEEPS[1]) };
        thread::sleep(sleep);
    }
}
