//! The wait of a rank for its peers: the one loop that backs off, posts notices, sleeps and gives up.
//!
//! ```text
//! advance     the flight moves as far as it goes; over?   ─▶ return
//!             moved: look at the limit, begin again           waits: back off
//! pause       some times
//! give way    some times, after a look at the limit
//! sleep       after a look who left; the notice says for whom the rank waits
//! ```
//!
//! A *flight* is what a rank waits for: a collective, a pass of a group, a split, or transfers of messages. It moves only while somebody
//! advances it. The wait ends with the flight, an abort, the deadline, an interrupt by the user, or the end of a peer.
//!
//! **Who waits.** A call is an `async` function, which says [`fly`] where it waits. If its thread waits, [`now`] runs it: there `fly` is the
//! loop above, and nothing is ever pending. A call that was issued is polled by the progress thread (`progress_thread.rs`), which
//! waits for many at once: there `fly` looks once and is pending.

use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::deadline::WaitLimit;
use crate::kernel::FloatEnvironment;
use crate::memory::world::notice::Notice;
use crate::memory::world::notice_board::PostedNotice;
use crate::memory::world::World;
use crate::run::wait_graph::{wait_graph, WaitGraph};
use crate::sync::atomic::pause;
use crate::sync::backoff::{give_way, Backoff, Next};
use crate::sync::{Cause, Doorbell};

/// How far a flight came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It is over.
    Over,
    /// It has moved, and may move again.
    Moved,
    /// It waits for peers.
    Waits,
}

/// What a rank waits for.
pub(crate) trait Flight<'world> {
    /// Moves as far as it goes without waiting.
    fn advance(&mut self) -> Result<Advance, Cause>;

    /// Returns the world in which it moves.
    fn world(&self) -> &'world World;

    /// Returns the bell that rings when it can move.
    fn bell(&self) -> &'world Doorbell;

    /// Returns when the wait is to look at the flight again, though nothing rings.
    fn until(&self) -> Option<Instant> {
        None
    }

    /// Returns the rank that waits, which is named if the wait ends here.
    fn rank(&self) -> u32;

    /// Looks whether peers are there for which it waits; returns the cause if one is not.
    fn look_who_left(&mut self) -> Option<Cause>;

    /// Says for whom the rank waits; `None` if nobody outside needs to know.
    fn notice(&self) -> Option<Notice>;

    /// Keeps what the peers do when the time is up, in words, for the error.
    fn keep_wait_graph(&mut self, found: WaitGraph);
}

/// Makes a call whose limit is that of this thread, which waits in it.
///
/// # Panics
/// If the call was made with a limit of an issued one, and waits.
#[inline]
pub fn now<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("a thread that waits leaves nothing pending"),
    }
}

/// Waits until a flight is over.
///
/// # Errors
/// The cause of the abort that ended the wait. The wait raises it where its own limit, or the end of a peer, is the cause.
#[inline]
pub(crate) async fn fly<'world>(flight: &mut impl Flight<'world>, limit: &mut WaitLimit<'_>) -> Result<(), Cause> {
    if !limit.is_of_issued() {
        return wait(flight, limit);
    }
    let (mut backoff, mut posted) = (Backoff::of_rank(), None);
    poll_fn(|context| {
        let _environment = FloatEnvironment::round_to_nearest();
        poll(flight, limit, (&mut backoff, &mut posted), context)
    })
    .await
}

/// Looks once at the flight of an issued call. It is polled again at once if it has moved.
fn poll<'world>(
    flight: &mut impl Flight<'world>,
    limit: &mut WaitLimit<'_>,
    (backoff, posted): (&mut Backoff, &mut Option<PostedNotice<'world>>),
    context: &Context<'_>,
) -> Poll<Result<(), Cause>> {
    match flight.advance()? {
        Advance::Over => return Poll::Ready(Ok(())),
        Advance::Moved => {
            *backoff = Backoff::of_rank();
            context.waker().wake_by_ref();
        }
        Advance::Waits => {}
    }
    if let Some(cause) = flight.world().abort().cause() {
        return Poll::Ready(Err(cause));
    }
    look_at_limit(flight, limit, posted)?;
    if backoff.look() == Next::Sleep {
        look_at_peers(flight, posted)?;
    }
    Poll::Pending
}

/// Waits on this thread until a flight is over.
#[inline]
pub(crate) fn wait<'world>(flight: &mut impl Flight<'world>, limit: &mut WaitLimit<'_>) -> Result<(), Cause> {
    let _environment = FloatEnvironment::round_to_nearest();
    let world = flight.world();
    let (mut backoff, mut posted, mut at_bell) = (Backoff::of_rank(), None, None);
    loop {
        match at_bell.take().unwrap_or_else(|| flight.advance())? {
            Advance::Over => return Ok(()),
            Advance::Moved => {
                look_at_limit(flight, limit, &mut posted)?;
                backoff = Backoff::of_rank();
                continue;
            }
            Advance::Waits => {}
        }
        if let Some(cause) = world.abort().cause() {
            return Err(cause);
        }
        let next = backoff.look();
        if next == Next::Pause {
            pause();
            continue;
        }
        look_at_limit(flight, limit, &mut posted)?;
        match next {
            Next::GiveWay => give_way(),
            _ => at_bell = sleep(flight, limit, &mut posted)?,
        }
    }
}

/// Looks once at a flight that waits and that no thread waits for. It does not look who left: a thread that waits does.
///
/// # Errors
/// The cause of an abort, its deadline, or a death.
pub(crate) fn look<'world>(flight: &mut impl Flight<'world>, limit: &mut WaitLimit<'_>) -> Result<(), Cause> {
    let world = flight.world();
    if let Some(cause) = world.abort().cause() {
        return Err(cause);
    }
    look_at_limit(flight, limit, &mut None)?;
    world.first_death().map_or(Ok(()), |death| Err(world.abort().raise(death)))
}

/// Raises the abort if the flight has waited long enough, or if its caller was interrupted.
#[inline]
fn look_at_limit<'world>(
    flight: &mut impl Flight<'world>,
    limit: &mut WaitLimit<'_>,
    posted: &mut Option<PostedNotice<'world>>,
) -> Result<(), Cause> {
    let cause = if limit.deadline.has_passed() {
        give_up(flight, posted);
        Cause::TimedOut(flight.rank())
    } else if ask(limit) {
        Cause::Interrupted(flight.rank())
    } else {
        return Ok(());
    };
    Err(flight.world().abort().raise(cause))
}

thread_local! {
    /// Whether this thread waits for a flight and asks its caller whether to stop, who may run handlers of signals.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Says whether this thread waits for a flight, and its caller runs code that was asked whether to stop.
pub(crate) fn is_asking() -> bool {
    IS_ASKING.get()
}

/// Asks the caller of a wait whether the user interrupts.
fn ask(limit: &mut WaitLimit<'_>) -> bool {
    let before = IS_ASKING.replace(true);
    let is_interrupted = limit.is_interrupted();
    IS_ASKING.set(before);
    is_interrupted
}

/// Has the flight keep what its peers do while it still waits for them, since its time is up.
#[cold]
fn give_up<'world>(flight: &mut impl Flight<'world>, posted: &mut Option<PostedNotice<'world>>) {
    if let Some(notice) = post(flight, posted, true) {
        let (world, rank) = (flight.world(), flight.rank());
        flight.keep_wait_graph(wait_graph(world, world.ranks()[rank as usize], &notice));
    }
}

/// Posts for whom the rank waits, before it sleeps or as its time is up.
fn post<'world>(
    flight: &impl Flight<'world>,
    posted: &mut Option<PostedNotice<'world>>,
    has_timed_out: bool,
) -> Option<Notice> {
    let (world, notice) = (flight.world(), flight.notice()?);
    let new = || PostedNotice::new(world.board(), world.ranks()[flight.rank() as usize]);
    Some(posted.get_or_insert_with(new).post(notice, has_timed_out))
}

/// Looks who left, and posts for whom the rank waits.
fn look_at_peers<'world>(
    flight: &mut impl Flight<'world>,
    posted: &mut Option<PostedNotice<'world>>,
) -> Result<(), Cause> {
    if let Some(cause) = flight.look_who_left() {
        return Err(flight.world().abort().raise(cause));
    }
    post(flight, posted, false);
    Ok(())
}

/// Sleeps until the flight may go on. Returns how far it came at the bell, if it did not wait there.
fn sleep<'world>(
    flight: &mut impl Flight<'world>,
    limit: &mut WaitLimit<'_>,
    posted: &mut Option<PostedNotice<'world>>,
) -> Result<Option<Result<Advance, Cause>>, Cause> {
    let world = flight.world();
    look_at_peers(flight, posted)?;
    let until = [limit.deadline.at(), flight.until()].into_iter().flatten().min();
    let (bell, mut came) = (flight.bell(), Ok(Advance::Waits));
    let has_news = || {
        came = flight.advance();
        came != Ok(Advance::Waits) || world.abort().cause().is_some() || flight.look_who_left().is_some() || ask(limit)
    };
    bell.sleep(has_news, until);
    Ok(Some(came).filter(|came| *came != Ok(Advance::Waits)))
}
