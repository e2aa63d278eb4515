//! The guard: a thread of a rank that is a process. Its end tells the peers that the process has ended, and it waits for theirs.
//!
//! ```text
//! process of rank 1 ends      the kernel marks its life word, and wakes one guard                      (sync/life.rs)
//! guard of rank 0             wakes the other guards on that word
//!                             asks how the process ended, notes it, rings the doorbells of its own rank
//! call of rank 0              looks at the note, raises the abort; its peers do the same               (run/wait.rs)
//! guard of rank 0             notes at last that no thread of rank 1 runs any more                     (run/quiesce.rs)
//! ```
//!
//! It is a thread of its own because any other thread of a program may end before the process does. It blocks all signals, so that Python
//! handles them where it did before. The child of a fork has no guard, and its end is nobody's. A process that becomes another program by
//! `exec` ends its threads, and so has ended as a rank.
//!
//! It also passes regions of symmetric memory to peers that ask for them (`regions.rs`).
//!
//! Cost: a thread, which sleeps; a descriptor per peer where the kernel tells the status of a process that was collected (6.15), none
//! before. A guard wakes every 100 ms, in case that one which should wake it was killed just then. It wakes every 4 ms if it
//! cannot sleep on all words: before Linux 5.16, with more than 127 peers, or while a peer holds no life word. A peer that never holds one
//! has ended when its process is not there any more, or when its socket is closed.

use std::sync::{mpsc, Arc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::join::Mesh;
use crate::memory::world::World;
use crate::processes::regions::{AnsweredQuestions, JobRegions};
use crate::ranks::member::Member;
use crate::ranks::memberships::Memberships;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::futex::{wait_while_all, wake, LONGEST_SLEEP};
use crate::sync::life::{Life, LifeState};
use crate::sync::WaitStatus;
use crate::system::other_process::{interrupt_registered, register_for_interrupts, OtherProcess};
use crate::system::process::Process;

/// The longest sleep while a word is missing on which the guard would sleep. Chosen: less than half of 10 ms.
const SHORT_SLEEP: Duration = Duration::from_millis(4);

/// The sleep until it is asked again whether a process that has ended still runs. Chosen: its threads end within microseconds.
const UNTIL_OVER: Duration = Duration::from_micros(200);

/// The stack of a guard. Chosen: it reads small files.
const STACK_BYTES: usize = 128 << 10;

/// What a guard needs to watch.
pub(super) struct Watch {
    /// The world of all ranks, which has the life words.
    pub(super) world: Arc<World>,
    pub(super) own: u32,
    pub(super) mesh: Arc<Mesh>,
    pub(super) memberships: Arc<Memberships<Member>>,
    pub(super) regions: Arc<JobRegions>,
}

/// The guard of this rank. It ends when the value is dropped: then the rank has left the job.
#[derive(Debug)]
pub(super) struct Guard {
    process: Process,
    /// Changes when the guard shall end.
    stop: Arc<AtomicU32>,
    begin: Option<mpsc::Sender<(Watch, mpsc::Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Starts the thread, which waits for [`Guard::begin`]. Peers are looked up now, while they live: of a process that has ended and was
    /// collected nothing can be known.
    ///
    /// # Errors
    /// [`Error::System`] if there can be no more threads.
    pub(super) fn start(mesh: &Mesh) -> Result<Self> {
        let peers = (0..mesh.world_size()).filter(|&rank| rank != mesh.rank());
        let watched = |rank| {
            let process = Some(mesh.process_of(rank)).filter(|&number| number != 0).and_then(OtherProcess::of);
            Watched { rank, process, has_ended: false }
        };
        let watched: Vec<_> = peers.map(watched).collect();
        let stop = Arc::<AtomicU32>::default();
        let (begin, watch) = mpsc::channel::<(Watch, mpsc::Sender<()>)>();
        let its_stop = stop.clone();
        let body = move || {
            if let Ok((watch, holds)) = watch.recv() {
                watch.run(watched, &its_stop, &holds);
            }
        };
        let thread = without_signals(|| Builder::new().name("nvcoll-guard".into()).stack_size(STACK_BYTES).spawn(body));
        let thread = thread.map_err(|error| Error::System {
            what: "no thread to watch other ranks: raise the limit of processes (`ulimit -u`) if it is reached".into(),
            number: error.raw_os_error().unwrap_or(libc::EAGAIN),
        })?;
        Ok(Self { process: Process::current(), stop, begin: Some(begin), thread: Some(thread) })
    }

    /// Watches the peers from now on. Returns when the guard holds the life word of this rank: a process that is killed right afterwards has
    /// held it.
    pub(super) fn begin(&mut self, watch: Watch) {
        let (holds, held) = mpsc::channel();
        if let Some(begin) = self.begin.take() {
            _ = begin.send((watch, holds));
            _ = held.recv();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.process.is_current() {
            std::mem::forget(thread); // it does not exist in the child of a fork
            return;
        }
        self.begin = None;
        // Release: pairs with the Acquire in `run`; the departures of the rank come before it.
        self.stop.store(1, Ordering::Release);
        wake(&self.stop);
        thread.map(JoinHandle::join);
    }
}

/// A peer that the guard watches.
struct Watched {
    rank: u32,
    process: Option<OtherProcess>,
    has_ended: bool,
}

impl Watch {
    fn run(self, mut watched: Vec<Watched>, stop: &AtomicU32, holds: &mpsc::Sender<()>) {
        let life = |rank: u32| &self.world.lines[rank as usize].life;
        register_for_interrupts();
        let held = HeldLife::hold(life(self.own));
        wake(life(self.own).word());
        _ = holds.send(());
        let (mut sleeps_on_all, mut answered) = (true, AnsweredQuestions::default());
        // Acquire: pairs with the Release in `Guard::drop`.
        while stop.load(Ordering::Acquire) == 0 {
            let bell = self.world.lines[self.own as usize].guard_bell();
            let (mut words, mut longest) = (vec![(stop, 0), (bell.word(), bell.heard())], LONGEST_SLEEP);
            if self.regions.answer(&self.world, &mut answered) {
                longest = SHORT_SLEEP;
            }
            watched.retain_mut(|peer| {
                let (state, word) = life(peer.rank).state();
                match state {
                    LifeState::Left => return false,
                    LifeState::Held => words.push((life(peer.rank).word(), word)),
                    LifeState::Nobody if !self.is_gone(peer) => {
                        words.push((life(peer.rank).word(), word));
                        longest = longest.min(SHORT_SLEEP);
                    }
                    _ => {
                        self.note(peer);
                        longest = UNTIL_OVER; // shorter than the others
                        return !self.is_over(peer);
                    }
                }
                true
            });
            sleeps_on_all = wait_while_all(&words, if sleeps_on_all { longest } else { longest.min(SHORT_SLEEP) });
        }
        drop(held);
    }

    /// Notes once that the process of a peer has ended.
    fn note(&self, peer: &mut Watched) {
        if std::mem::replace(&mut peer.has_ended, true) {
            return;
        }
        let lines = &self.world.lines[peer.rank as usize];
        wake(lines.life.word());
        let status = peer.process.as_ref().and_then(OtherProcess::wait_status).map(WaitStatus);
        self.world.deaths.note(peer.rank, status, lines.departure.last().is_some());
        self.ring();
    }

    /// Says whether no thread of a process that has ended runs any more, and notes it.
    fn is_over(&self, peer: &Watched) -> bool {
        // The kernel has sent SIGKILL to all threads of the process before one of them, the guard, has ended. A killed thread may wait
        // for a processor for milliseconds before it has begun to end.
        let is_over = interrupt_registered() || self.is_gone(peer);
        if is_over {
            self.world.deaths.note_over(peer.rank);
            self.ring();
        }
        is_over
    }

    /// Says whether the process of a peer has ended, without its life word.
    fn is_gone(&self, peer: &Watched) -> bool {
        peer.process.as_ref().is_some_and(OtherProcess::is_over) || self.mesh.has_left(peer.rank)
    }

    fn ring(&self) {
        self.memberships.all().iter().for_each(|member| member.wake());
    }
}

/// A life word that the calling thread holds. Dropping it leaves the job.
struct HeldLife<'a> {
    life: &'a Life,
    list: Box<RobustList>,
}

/// The list of robust futexes of a thread, with one entry. Cited: `struct robust_list_head`, linux/futex.h.
#[derive(Debug)]
#[repr(C)]
struct RobustList {
    /// The address of the entry.
    first: usize,
    /// What is added to the address of an entry to get that of its word.
    offset: isize,
    pending: usize,
    /// The entry: the address of the next one, which is the head.
    entry: usize,
}

impl<'a> HeldLife<'a> {
    /// Holds a life word until the thread ends; `None` if the system has no such lists.
    fn hold(life: &'a Life) -> Option<Self> {
        let mut list = Box::new(RobustList { first: 0, offset: 0, pending: 0, entry: 0 });
        let (head, entry) = (&raw const *list as usize, &raw const list.entry as usize);
        (list.first, list.entry) = (entry, head);
        list.offset = (life.word() as *const _ as usize).wrapping_sub(entry) as isize;
        // The thread has a list of the C library, for mutexes that this code does not use.
        set_robust_list(head)?;
        life.hold(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        Some(Self { life, list })
    }
}

impl Drop for HeldLife<'_> {
    fn drop(&mut self) {
        self.life.leave();
        wake(self.life.word());
        set_robust_list(0);
        debug_assert_ne!(self.list.first, 0, "the list was there until now");
    }
}

/// Sets the list of the calling thread: the address of its head, or 0 for none.
fn set_robust_list(head: usize) -> Option<()> {
    const HEAD_BYTES: usize = 3 * size_of::<usize>();
    // SAFETY: the kernel reads the list when the thread ends: until then its head and its entry stay where they are, and the word of the
    // entry is mapped, says whoever calls this.
    (unsafe { libc::syscall(libc::SYS_set_robust_list, head, HEAD_BYTES) } == 0).then_some(())
}

/// Blocks all signals while `start` starts a thread, which inherits that.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are places for the answers, and the mask of this thread is what it was afterwards.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}
