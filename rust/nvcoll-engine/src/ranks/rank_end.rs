//! The end of a rank, announced to its peers in every communicator that it is in.
//!
//! A rank whose program returned has calls and sends in flight that it issued. They are made, since peers wait for them, and each
//! communicator departs after its last call. Those without calls depart at once: a peer that waits there, and could end a call in
//! flight, hears of it. A send ends also when the program of its receiver has ended, which would not receive it. Receives end at once,
//! since nobody is there to read what they bring.

use std::thread::sleep;

use crate::deadline::WaitLimit;
use crate::error::{Error, Result};
use crate::ranks::member::{Member, BETWEEN_LOOKS};
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::run::wait::is_asking;
use crate::sync::WaitEnd;

const LEFT_IN_A_CALL: Error =
    Error::Busy("the program returned while a communicator was in a call of another thread: join the thread");

const ENDED_IN_A_HANDLER: Error = Error::Busy(
    "the program of this rank was ended by the handler of a signal, in the middle of a call: let the handler raise, or end it after the \
     call",
);

/// Makes the calls in flight of a rank whose program returned: see above. Without any it does nothing.
///
/// # Errors
/// [`Error::Busy`] in a call of this thread, which would wait for itself; [`Error::Interrupted`]: then the rank has failed; [`Error::System`] as [`Member::issue`].
pub(crate) fn finish_issued(memberships: &Memberships<Member>, limit: &mut WaitLimit<'_>) -> Result<()> {
    if is_asking() {
        return Err(ENDED_IN_A_HANDLER);
    }
    if !finish_sends(memberships, limit) {
        fail(memberships);
        return Err(Error::Interrupted);
    }
    if !memberships.all().iter().any(|member| member.is_busy()) {
        return Ok(());
    }
    let members = memberships.end(RankEnd::Returned);
    let (left, idle): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.is_busy());
    idle.iter().for_each(|member| _ = member.end(RankEnd::Returned));
    left.iter().try_for_each(|member| member.depart_in_turn())?;
    if left.iter().all(|member| member.finish_issued(limit) == WaitEnd::Over) {
        return Ok(());
    }
    fail(memberships);
    Err(Error::Interrupted)
}

/// Moves the sends in flight until all have ended; says whether the user let them.
fn finish_sends(memberships: &Memberships<Member>, limit: &mut WaitLimit<'_>) -> bool {
    let sends_are_left = || memberships.all().iter().filter(|member| member.finish_sends()).count() > 0;
    if !sends_are_left() {
        return true;
    }
    memberships.all().iter().for_each(|member| member.begin_to_end());
    while sends_are_left() {
        if limit.is_interrupted() {
            return false;
        }
        sleep(BETWEEN_LOOKS);
    }
    true
}

/// Ends a rank whose program returned. A peer that makes one more call with it gets an error instead of waiting forever.
///
/// # Errors
/// [`Error::Busy`] if another thread is in a call of one of its communicators: then the rank has failed.
pub(crate) fn retire(memberships: &Memberships<Member>) -> Result<()> {
    let members = memberships.end(RankEnd::Returned);
    let left = members.iter().filter(|member| member.end(RankEnd::Returned)).count();
    if left < members.len() {
        fail(memberships);
        return Err(LEFT_IN_A_CALL);
    }
    memberships.progress.close();
    Ok(())
}

/// Ends every call, now and later, of every communicator of a rank, because its code failed. Returns when no thread of the rank is in a
/// call.
pub(crate) fn fail(memberships: &Memberships<Member>) {
    let members = memberships.end(RankEnd::Failed);
    members.iter().for_each(|member| _ = member.end(RankEnd::Failed));
    // Only now: a call of another thread may wait for a peer that waits in another communicator.
    members.iter().for_each(|member| member.close());
    // The handler of a signal runs in a call, and what was issued waits for it.
    if !is_asking() {
        memberships.progress.close();
    }
}
