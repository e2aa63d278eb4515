//! Waits of a worker: how they go from pausing to sleeping, what ends them, and the notice that a rank posts before it sleeps.

use super::{is_over, RankWorker};
use crate::deadline::WaitLimit;
use crate::memory::world::notice::{Notice, RankList};
use crate::memory::world::notice_board::PostedNotice;
use crate::memory::world::World;
use crate::program::batch::Pass;
use crate::program::order::Wait;
use crate::run::doings::doings;
use crate::sync::atomic::pause;
use crate::sync::backoff::{give_way, Backoff, Next};
use crate::sync::{Cause, Pair};

impl RankWorker {
    /// Returns the ranks of the run that the next steps wait for.
    pub(super) fn awaited(&self, world: &World, pass: Pass<'_>, number: u32) -> RankList {
        let order = pass.order();
        let waits = self.cursors.iter().flat_map(|cursor| {
            let task = order.queues[cursor.rank as usize][cursor.queue as usize][cursor.index as usize];
            let waits = &order.links[task as usize].waits[cursor.over..];
            waits.iter().filter(|wait| !is_over(world, wait, number, cursor.tile)).map(Wait::rank)
        });
        waits.filter(|rank| !self.ranks.contains(rank)).map(|rank| world.ranks()[rank as usize]).collect()
    }

    /// Returns the notice of a wait in a call.
    fn notice(&self, world: &World, call: u32, awaited: RankList) -> Notice {
        let record = world.lines[self.ranks.start as usize].record.read(call);
        Notice { world: *world.name(), call, record, awaited, since_ns: 0, until_ns: 0 }
    }

    /// Notes what the others do while this rank still waits for them, since its time is up.
    #[cold]
    fn give_up<'a>(&self, world: &'a World, notice: Notice, posted: &mut Option<PostedNotice<'a>>) {
        let posted = posted.get_or_insert_with(|| PostedNotice::new(world.board(), self.rank_of_run(world)));
        let notice = posted.post(notice, true);
        _ = self.doings.set(doings(world, self.rank_of_run(world), &notice));
    }

    fn rank_of_run(&self, world: &World) -> u32 {
        world.ranks()[self.ranks.start as usize]
    }

    /// Waits until `is_over`: it pauses, then yields, then sleeps. The wait needs peers to reach `call`. `awaited` are the ranks of the
    /// run that it waits for.
    pub(super) fn wait(
        &self,
        world: &World,
        call: u32,
        patience: &mut WaitLimit<'_>,
        is_over: impl Fn(&Self) -> bool,
        awaited: impl Fn(&Self) -> RankList,
    ) -> std::result::Result<(), Cause> {
        let mut posted = None;
        let mut backoff = Backoff::of_rank();
        while !is_over(self) {
            if let Some(cause) = world.abort().cause() {
                return Err(cause);
            }
            let next = backoff.look();
            if next == Next::Pause {
                pause();
                continue;
            }
            let give_up = || {
                if self.is_member {
                    self.give_up(world, self.notice(world, call, awaited(self)), &mut posted);
                }
            };
            self.go_on(world, patience, give_up)?;
            if next == Next::GiveWay {
                give_way();
                continue;
            }
            if let Some(cause) = self.who_left(world, call) {
                return Err(world.abort().raise(cause));
            }
            if self.is_member {
                let posted = posted.get_or_insert_with(|| PostedNotice::new(world.board(), self.rank_of_run(world)));
                posted.post(self.notice(world, call, awaited(self)), false);
            }
            let doorbell = world.lines[self.ranks.start as usize].doorbell();
            let until = patience.deadline.at();
            // The last question moves messages that came before the fence; those that come later ring.
            let has_news = || {
                is_over(self)
                    || world.abort().cause().is_some()
                    || self.who_left(world, call).is_some()
                    || (patience.is_interrupted)()
            };
            doorbell.sleep(has_news, until);
        }
        Ok(())
    }

    /// Raises the abort if this worker has waited long enough, after `give_up`, or if its caller was interrupted.
    pub(super) fn go_on(
        &self,
        world: &World,
        patience: &mut WaitLimit<'_>,
        give_up: impl FnOnce(),
    ) -> std::result::Result<(), Cause> {
        if patience.deadline.has_passed() {
            give_up();
            return Err(world.abort().raise(Cause::TimedOut(self.ranks.start)));
        }
        if (patience.is_interrupted)() {
            return Err(world.abort().raise(Cause::Interrupted(self.ranks.start)));
        }
        Ok(())
    }

    /// Finds a peer whose program has returned before it made `call`, or whose process is gone.
    fn who_left(&self, world: &World, call: u32) -> Option<Cause> {
        let cause = |rank: u32| {
            let departure = &world.lines[rank as usize].departure;
            if departure.is_before(call) {
                return Some(Cause::Returned(Pair { ranks: [rank, self.ranks.start], call }));
            }
            world.death_of(rank)
        };
        (0..world.world_size()).filter(|_| self.is_member).find_map(cause)
    }
}

/// Returns the ranks of the run that have not entered a call.
pub(super) fn not_entered(world: &World, call: u32) -> RankList {
    let ranks = world.lines.iter().zip(world.ranks());
    ranks.filter(|(lines, _)| !lines.stamp.has_entered(call)).map(|(_, &rank)| rank).collect()
}
