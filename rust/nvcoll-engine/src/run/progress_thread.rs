//! The progress thread of a rank: it advances what nobody waits for, in all communicators of the rank.
//!
//! ```text
//! issue, isend, irecv      not over at once: the member is watched          the first one starts the thread `nvcoll-progress`
//! thread                   advances the calls and transfers in flight       something moved: again, at once or soon
//!                          sleeps at the bells of what waits                 nothing has moved for long
//!                          ends                                             nobody was watched for a second, or the rank has ended
//! work.wait()              moves transfers itself                           the thread leaves the transfers of that member alone meanwhile
//! ```
//!
//! Without it, a call would move only while its rank is in a call of the communicator, as with most MPI. Two programs then wait for
//! each other: one sends a large message and waits in another communicator for a rank that receives the message first. gloo and NCCL
//! finish them.
//!
//! The thread waits for no single member, so none keeps another waiting. For collectives it spins like a rank, since its peers do. Where
//! only messages are in flight, short sleeps by the clock come first: a thread that sleeps at a bell would be woken by each message of a
//! program that is just about to wait.
//!
//! Cost: nothing while nothing is in flight. One thread per rank: one in a process that is a rank. Ranks that are threads of one process
//! have one each, since a collective moves its data on the threads of its ranks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::memory::world::World;
use crate::run::wait::Advance;
use crate::sync::atomic::{pause, AtomicBool, Ordering};
use crate::sync::backoff::{give_way, Backoff, Next};
use crate::sync::futex::LONGEST_SLEEP;
use crate::sync::Doorbell;

/// The first and the longest sleep by the clock. Chosen: a pipe of chunks needs one move for 4 MiB, and a move in vain takes 1 us.
const SLEEPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];

/// The longest sleep at bells while a collective is in flight: its deadline rings no bell, nor does the end of a call of another thread
/// for which it waits. Chosen: nobody notices it.
const LONGEST_IN_A_CALL: Duration = Duration::from_millis(20);

/// How many of the longest sleeps the thread makes with nobody to watch before it ends. Chosen: about a second.
const IDLE_SLEEPS: u32 = 10;

/// The stack of the thread. Chosen: it copies, and may call Python where it reports. Only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// What the thread advances.
pub(crate) trait HasFlights: Send + Sync + 'static {
    /// Advances what is in flight and nobody waits for; `Over` if nothing is. Who moves and may go on at once wakes the waker.
    fn advance(&self, waker: &Waker) -> Advance;

    /// Says what is in flight, and where it can be waited for; `None` if nothing is.
    fn in_flight(&self) -> Option<FlightsOfMember>;
}

/// The flights of a member for which nobody waits.
pub(crate) struct FlightsOfMember {
    pub(crate) world: Arc<World>,
    pub(crate) rank: u32,
    /// Whether a call is among them, which may send and receive as well.
    pub(crate) has_call: bool,
    /// Whether a thread waits for messages, and moves those in flight.
    pub(crate) has_waiter: bool,
}

impl FlightsOfMember {
    /// Returns the bells that ring when they can move.
    fn bells(&self) -> impl Iterator<Item = &Doorbell> {
        let lines = &self.world.lines[self.rank as usize];
        let of_messages = (self.has_call || !self.has_waiter).then(|| lines.message_bell());
        self.has_call.then(|| lines.doorbell()).into_iter().chain(of_messages)
    }
}

/// The progress thread of a rank.
#[derive(Default)]
pub(crate) struct ProgressThread {
    news: Doorbell,
    watched: Mutex<WatchedMembers>,
    /// Whether a flight asked to be advanced again at once.
    goes_on: AtomicBool,
}

#[derive(Default)]
struct WatchedMembers {
    members: Vec<Weak<dyn HasFlights>>,
    thread: Option<JoinHandle<()>>,
    /// Whether the rank has ended.
    is_closed: bool,
}

impl std::fmt::Debug for ProgressThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} members watched", self.lock().members.len())
    }
}

impl Wake for ProgressThread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Relaxed: flights are advanced on the thread that reads it.
        self.goes_on.store(true, Ordering::Relaxed);
    }
}

impl ProgressThread {
    /// Has the thread advance what is in flight of a member, until nothing is. `begin` puts something there, once there is a thread.
    ///
    /// # Errors
    /// [`Error::System`] if there can be no thread.
    pub(crate) fn watch<M: HasFlights>(self: &Arc<Self>, member: &Weak<M>, begin: impl FnOnce()) -> Result<()> {
        let mut watched = self.lock();
        if watched.thread.is_none() {
            watched.thread = Some(self.start()?);
        }
        begin();
        if !watched.members.iter().any(|one| one.as_ptr().addr() == member.as_ptr().addr()) {
            watched.members.push(member.clone());
        }
        drop(watched);
        self.look_again();
        Ok(())
    }

    /// Has the thread look again: there is something new in flight, or a thread that advanced it does so no more.
    pub(crate) fn look_again(&self) {
        Doorbell::ring_all([&self.news]);
    }

    /// Ends the thread when nothing is in flight any more, because the rank has ended; returns when it has, unless this is it.
    pub(crate) fn close(&self) {
        let thread = {
            let mut watched = self.lock();
            watched.is_closed = true;
            watched.thread.take_if(|thread| thread.thread().id() != thread::current().id())
        };
        self.look_again();
        thread.into_iter().for_each(|thread| thread.join().expect("calls that panic are caught"));
    }

    fn start(self: &Arc<Self>) -> Result<JoinHandle<()>> {
        let (builder, own) = (thread::Builder::new().name("nvcoll-progress".into()), self.clone());
        builder.stack_size(STACK_BYTES).spawn(move || own.run()).map_err(|error| Error::System {
            what: "no thread for calls that return at once: end threads, or leave `async_op` out".into(),
            number: error.raw_os_error().unwrap_or(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, WatchedMembers> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let (mut backoff, mut sleep, mut idle_sleeps, mut sleeps_at_all) = (Backoff::of_rank(), SLEEPS[0], 0, true);
        loop {
            let members = self.lock().members.clone();
            idle_sleeps = if members.is_empty() { idle_sleeps + 1 } else { 0 };
            if self.may_end(idle_sleeps > IDLE_SLEEPS) {
                return;
            }
            if self.advance_all(&members, &waker) {
                (backoff, sleep) = (Backoff::of_rank(), SLEEPS[0]);
                continue;
            }
            let flights: Vec<FlightsOfMember> = live(&members).filter_map(|member| member.in_flight()).collect();
            let has_call = flights.iter().any(|flights| flights.has_call);
            match backoff.look() {
                Next::Pause if has_call => {
                    pause();
                    continue;
                }
                Next::GiveWay if has_call => {
                    give_way();
                    continue;
                }
                _ => {}
            }
            let is_quiet = has_call || flights.is_empty() || sleep == SLEEPS[1];
            if is_quiet {
                self.forget_idle();
            }
            let at_bells = members.is_empty() || (is_quiet && sleeps_at_all);
            let bells = flights.iter().filter(|_| at_bells).flat_map(FlightsOfMember::bells);
            let bells: Vec<&Doorbell> = [&self.news].into_iter().chain(bells).collect();
            let has_news = || self.lock().members.len() != members.len() || self.advance_all(&members, &waker);
            let longest = match (at_bells, has_call) {
                (false, _) => sleep,
                (true, true) => LONGEST_IN_A_CALL,
                (true, false) => LONGEST_SLEEP,
            };
            sleeps_at_all &= Doorbell::sleep_at_all(&bells, has_news, longest);
            sleep = (2 * sleep).min(SLEEPS[1]);
        }
    }

    /// Advances the flights of some members; says whether one has moved.
    fn advance_all(&self, members: &[Weak<dyn HasFlights>], waker: &Waker) -> bool {
        // Relaxed: flights wake on this thread.
        self.goes_on.store(false, Ordering::Relaxed);
        let moved = live(members).filter(|member| member.advance(waker) == Advance::Moved).count();
        moved > 0 || self.goes_on.load(Ordering::Relaxed)
    }

    /// Forgets members that have nothing in flight. It holds the lock: a member that gets something in flight from now on is watched afterwards.
    fn forget_idle(&self) {
        self.lock().members.retain(|member| member.upgrade().is_some_and(|member| member.in_flight().is_some()));
    }

    /// Says whether the thread ends: nobody is watched, and it was idle for long or is closed. The next to be watched starts one again.
    fn may_end(&self, was_idle: bool) -> bool {
        let mut watched = self.lock();
        let ends = watched.members.is_empty() && (was_idle || watched.is_closed);
        // Who closes it has taken the handle, to join.
        watched.thread.take_if(|_| ends);
        ends
    }
}

fn live(members: &[Weak<dyn HasFlights>]) -> impl Iterator<Item = Arc<dyn HasFlights>> + '_ {
    members.iter().filter_map(Weak::upgrade)
}
