//! The progress thread: it moves the transfers whose calls have returned, and for which nobody waits.
//!
//! ```text
//! isend, irecv     not over at once: the member is watched            the first one starts the thread `nvcoll-progress`
//! thread           moves the transfers of all watched members         something moved: again after 20 us, doubled up to 500 us
//!                  sleeps at the bells of messages                    nothing has moved for long
//!                  ends                                               nobody was watched for a second
//! work.wait()      moves the transfers itself                         the thread leaves that member alone meanwhile
//! ```
//!
//! Without it, a message would move only while its rank is in a call of the communicator, as with most MPI. Two programs then wait for
//! each other: one sends a large message and waits in another communicator for a rank that receives the message first. gloo and NCCL
//! finish them.
//!
//! The thread waits for no single member, so none keeps another waiting. Short sleeps by the clock come first, since a thread that sleeps at
//! a bell would be woken by each message of a program that is just about to wait.
//!
//! Cost: nothing while nothing is in flight. One thread per process, however many ranks and communicators it has.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::memory::world::World;
use crate::run::wait::Advance;
use crate::sync::futex::LONGEST_SLEEP;
use crate::sync::Doorbell;
use crate::system::process::Process;

/// The first and the longest sleep by the clock. Chosen: a pipe of chunks needs one move for 4 MiB, and a move in vain takes 1 us.
const SLEEPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];

/// How many of the longest sleeps the thread makes with nobody to watch before it ends. Chosen: about a second.
const IDLE_SLEEPS: u32 = 10;

/// The stack of the thread. Chosen: it copies, and may call Python where it reports. Only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// What the thread moves.
pub(crate) trait HasTransfers: Send + Sync + 'static {
    /// Moves what is in flight, unless another thread does; `Over` if nothing is.
    fn advance(&self) -> Advance;

    /// Says whether something is in flight.
    fn is_in_flight(&self) -> bool;

    /// Returns the world and the rank at whose bell of messages it can be waited for; `None` while another thread waits there.
    fn place(&self) -> Option<(Arc<World>, u32)>;
}

/// The progress thread of a process.
struct ProgressThread {
    process: Process,
    news: Doorbell,
    watched: Mutex<WatchedMembers>,
}

#[derive(Default)]
struct WatchedMembers {
    members: Vec<Weak<dyn HasTransfers>>,
    is_running: bool,
}

/// That of this process, or of a parent that forked it.
static CURRENT: AtomicPtr<ProgressThread> = AtomicPtr::new(null_mut());

/// Has the progress thread move what is in flight of a member, until nothing is.
///
/// # Errors
/// [`Error::System`] if there can be no thread.
pub(crate) fn watch<M: HasTransfers>(member: &Weak<M>) -> Result<()> {
    let thread = ProgressThread::current();
    let mut watched = thread.lock();
    if !watched.is_running {
        thread.start()?;
        watched.is_running = true;
    }
    if !watched.members.iter().any(|one| one.as_ptr().addr() == member.as_ptr().addr()) {
        watched.members.push(member.clone());
        drop(watched);
        wake();
    }
    Ok(())
}

/// Has the progress thread look again: a thread that has moved what is in flight of a member does so no more.
pub(crate) fn wake() {
    Doorbell::ring_all([&ProgressThread::current().news]);
}

impl ProgressThread {
    /// Returns the one of this process. A child of a fork gets its own: the locks of its parent may be held for ever.
    fn current() -> &'static Self {
        loop {
            // Acquire: pairs with the Release below.
            let found = CURRENT.load(Ordering::Acquire);
            // SAFETY: what is stored there was leaked by `Box::into_raw`, and is never freed.
            if let Some(current) = unsafe { found.as_ref() }.filter(|current| current.process.is_current()) {
                return current;
            }
            let (news, watched) = Default::default();
            let new = Box::into_raw(Box::new(Self { process: Process::current(), news, watched }));
            if CURRENT.compare_exchange(found, new, Ordering::Release, Ordering::Relaxed).is_err() {
                // SAFETY: it was just made by `Box`, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    fn start(&'static self) -> Result<()> {
        let builder = thread::Builder::new().name("nvcoll-progress".into()).stack_size(STACK_BYTES);
        let started = builder.spawn(|| self.run()).map_err(|error| Error::System {
            what: "no thread for messages in flight: end threads".into(),
            number: error.raw_os_error().unwrap_or(0),
        });
        started.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, WatchedMembers> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut sleep, mut idle_sleeps, mut sleeps_at_all) = (SLEEPS[0], 0, true);
        loop {
            let members = self.lock().members.clone();
            idle_sleeps = if members.is_empty() { idle_sleeps + 1 } else { 0 };
            if idle_sleeps > IDLE_SLEEPS && self.may_end() {
                return;
            }
            let has_moved = advance_all(&members);
            sleep = if has_moved { SLEEPS[0] } else { (2 * sleep).min(SLEEPS[1]) };
            let is_quiet = sleep == SLEEPS[1];
            if is_quiet {
                self.forget_idle();
            }
            let at_bells = members.is_empty() || (is_quiet && sleeps_at_all);
            let places = members.iter().filter(|_| at_bells).filter_map(|member| member.upgrade()?.place());
            let places: Vec<(Arc<World>, u32)> = places.collect();
            let bells = places.iter().map(|(world, rank)| world.lines[*rank as usize].message_bell());
            let bells: Vec<&Doorbell> = [&self.news].into_iter().chain(bells).collect();
            let has_news = || self.lock().members.len() != members.len() || advance_all(&members);
            let longest = if at_bells { LONGEST_SLEEP } else { sleep };
            sleeps_at_all &= Doorbell::sleep_at_all(&bells, has_news, longest);
        }
    }

    /// Forgets members of which nothing is in flight. It holds the lock: a member of which something is from now on is watched afterwards.
    fn forget_idle(&self) {
        self.lock().members.retain(|member| member.upgrade().is_some_and(|member| member.is_in_flight()));
    }

    /// Says whether nobody is watched; then the next to be watched starts a thread again.
    fn may_end(&self) -> bool {
        let mut watched = self.lock();
        watched.is_running = !watched.members.is_empty();
        !watched.is_running
    }
}

/// Moves what is in flight of some members; says whether something moved.
fn advance_all(members: &[Weak<dyn HasTransfers>]) -> bool {
    let live = members.iter().filter_map(Weak::upgrade);
    live.filter(|member| member.advance() == Advance::Moved).count() > 0
}
