//! The end of a rank, told to its peers in every communicator that it is in.

use crate::error::{Error, Result};
use crate::ranks::member::Member;
use crate::ranks::memberships::{Memberships, RankEnd};

const LEFT_IN_A_CALL: Error =
    Error::Busy("the program returned while a communicator was in a call of another thread: join the thread");

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
    Ok(())
}

/// Ends every call, now and later, of every communicator of a rank, because its code failed. Returns when no thread of the rank is in a
/// call.
pub(crate) fn fail(memberships: &Memberships<Member>) {
    let members = memberships.end(RankEnd::Failed);
    members.iter().for_each(|member| _ = member.end(RankEnd::Failed));
    // Only now: a call of another thread may wait for a peer that waits in another communicator.
    members.iter().for_each(|member| member.close());
}
