//! What a member has in flight, for the progress thread: issued calls, and messages whose calls have returned.

use std::task::Waker;

use super::Member;
use crate::run::progress_thread::{FlightsOfMember, HasFlights};
use crate::run::wait::Advance;

impl HasFlights for Member {
    fn advance(&self, waker: &Waker) -> Advance {
        match [self.issued.advance(waker), self.messages.advance_issued(&self.world, self.rank)] {
            [Advance::Over, Advance::Over] => Advance::Over,
            came if came.contains(&Advance::Moved) => Advance::Moved,
            _ => Advance::Waits,
        }
    }

    fn in_flight(&self) -> Option<FlightsOfMember> {
        let (has_call, has_waiter) = (self.issued.are_in_flight(), self.messages.is_in_a_wait());
        (has_call || self.messages.has_issued()).then(|| FlightsOfMember {
            world: self.world.clone(),
            rank: self.rank,
            has_call,
            has_waiter,
        })
    }
}
