//! Faults that a test asks for.

use super::{Member, ENDED};
use crate::error::{Error, Result};
use crate::run::fault::{Fault, Moment, Strike};

impl Member {
    /// Has a fault strike this rank in a call of this communicator, or in a send or receive of it: `calls` after the next. It replaces the
    /// fault asked for before. The fault writes the time and the number of steps to descriptor `descriptor` as it strikes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the rank is a thread and the fault would strike its process; [`Error::Closed`] and [`Error::Busy`] as
    /// [`Member::run`].
    pub fn arm(
        &self,
        is_of_messages: bool,
        calls: u32,
        at: Moment,
        strike: Strike,
        descriptor: Option<i32>,
    ) -> Result<()> {
        if strike.is_of_process() && self.world.origin().longest_quiesce().is_none() {
            return Err(Error::Invalid(
                "the rank is a thread, and this fault would strike the process of all ranks: delay it, let it raise, or \
                 make ranks processes"
                    .to_owned(),
            ));
        }
        let fault = |call| Fault::new(call, at, strike, descriptor);
        if is_of_messages {
            return self.mailbox()?.with(|mailbox| mailbox.arm(calls, fault)).ok_or(ENDED);
        }
        let mut calls_of_rank = self.begin()?;
        let own = calls_of_rank.as_mut().ok_or(ENDED)?;
        own.rank_worker.fault = Some(Box::new(fault(own.number.wrapping_add(1).wrapping_add(calls))));
        Ok(())
    }
}
