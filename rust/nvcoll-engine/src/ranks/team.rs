//! Teams: the ranks of one run. Every rank is a thread and makes its own calls, in one communicator or in several.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::memory::world::World;
use crate::ranks::member::Member;
use crate::ranks::memberships::{Memberships, RankEnd};
use crate::ranks::rank_end::{fail, finish_issued, retire};
use crate::system::process::Process;

/// The state that the ranks of one run share.
#[derive(Debug, Clone)]
pub struct Team {
    world: Arc<World>,
    memberships: Arc<[Arc<Memberships<Member>>]>,
    /// Whether each rank has its member already.
    joined: Arc<[AtomicBool]>,
    process: Process,
}

impl Team {
    /// Makes a team of `world_size` ranks that have called nothing yet.
    pub fn new(world_size: u32) -> Self {
        let memberships = (0..world_size).map(|_| Arc::default()).collect();
        let joined = (0..world_size).map(|_| AtomicBool::new(false)).collect();
        Self { world: Arc::new(World::new(world_size)), memberships, joined, process: Process::current() }
    }

    /// Makes the member with this rank, in the communicator of all ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank, or if the rank has its member: the words of a rank have one writer.
    pub fn member(&self, rank: u32) -> Result<Arc<Member>> {
        let Some(joined) = self.joined.get(rank as usize) else {
            let last = self.joined.len() - 1;
            return Err(Error::Invalid(format!("found rank {rank}, expected one from 0 to {last}")));
        };
        // Relaxed: the flag orders nothing; of two that ask at once, one sees it set.
        if joined.swap(true, Ordering::Relaxed) {
            return Err(Error::Invalid(format!(
                "rank {rank} has its communicator already, and two would write the same words: use that one"
            )));
        }
        Ok(Member::join(self.world.clone(), rank, self.memberships[rank as usize].clone()))
    }

    /// Ends a rank whose program returned, after the calls that it issued. A peer that makes one more call with it gets an error instead
    /// of waiting forever.
    ///
    /// # Errors
    /// [`Error::Busy`] if another thread is in a call of one of its communicators: then the rank has failed.
    pub fn retire(&self, rank: u32) -> Result<()> {
        if !self.process.is_current() {
            return Ok(()); // The peers live in the parent, and so do the threads that may hold the locks.
        }
        let memberships = &self.memberships[rank as usize];
        // An interrupt of the run ends the calls.
        finish_issued(memberships, &mut WaitLimit::new(Deadline::default(), &mut || false))?;
        retire(memberships)
    }

    /// Ends every call, now and later, of every communicator that contains `rank`, because its code failed. Returns when no
    /// thread of the rank is in a call.
    pub fn fail(&self, rank: u32) {
        if self.process.is_current() {
            fail(&self.memberships[rank as usize]);
        }
    }

    /// Ends every call of the run, now and later, because the user interrupted the program.
    pub fn interrupt(&self) {
        if !self.process.is_current() {
            return; // as in `retire`
        }
        for memberships in self.memberships.iter() {
            memberships.end(RankEnd::Interrupted).iter().for_each(|member| _ = member.end(RankEnd::Interrupted));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use nvcoll_core::collective::BARRIER;

    use super::*;
    use crate::call::{Call, CallPurpose, SplitKey};
    use crate::memory::buffers::Buffers;
    use crate::ranks::node::Node;
    use crate::ranks::words;
    use crate::sync::single_flight::HoldsNoLock;

    /// 30 seconds: a watchdog, not a bar.
    fn watchdog() -> Deadline {
        Deadline::after(Some(30.0))
    }

    fn meet(member: &Member) -> Result<()> {
        let (node, call) = (Node::new(2, None).unwrap(), Call::without_data(&BARRIER));
        let program = node.program_of_rank(&call, None).unwrap();
        let nothing = std::ptr::null_mut();
        // SAFETY: a barrier touches no buffer.
        unsafe { member.run(&program, Buffers::new(nothing, nothing, 1.0), watchdog()) }
    }

    /// Rank 0 enters its first call, a split, and is overtaken there: what it has not done yet, `Member::split` does later.
    fn enter_split(team: &Team, key: SplitKey) {
        let [fingerprint, small, count] = words::program(2, CallPurpose::Split, &HoldsNoLock).unwrap().fingerprint;
        let ([color, key], lines) = (key.words(), &team.world.lines[0]);
        lines.record.write(1, &[fingerprint, small, count, color, key, 0, 0, 1]);
        lines.stamp.enter(1, 0);
    }

    #[test]
    fn a_rank_whose_split_fails_while_its_peer_is_through_ends_the_calls_of_their_group() {
        let (team, key) = (Team::new(2), SplitKey { color: Some(3), key: 5 });
        let members = [0, 1].map(|rank| team.member(rank).unwrap());
        enter_split(&team, key);
        let group = members[1].split(key.color, 4, watchdog(), &HoldsNoLock, &mut || false).unwrap().unwrap();
        assert_eq!((group.rank(), group.ranks()), (0, &[1, 0][..]));
        members[1].abort().unwrap();
        let failed = members[0].split(key.color, key.key, watchdog(), &HoldsNoLock, &mut || false);
        assert_eq!(failed.unwrap_err(), Error::Aborted { rank: 1, cause: "called abort".into() });
        assert_eq!(
            meet(&group),
            Err(Error::Aborted { rank: 1, cause: "failed".into() }),
            "rank 0 is rank 1 of the group"
        );
    }

    #[test]
    fn a_rank_that_failed_or_returned_is_known_in_a_group_that_it_joins_afterwards() {
        for end in [RankEnd::Failed, RankEnd::Returned, RankEnd::Interrupted] {
            let team = Team::new(2);
            team.memberships[0].end(end);
            let world = Arc::new(World::of_group(vec![0, 1]));
            let _ended = Member::join(world.clone(), 0, team.memberships[0].clone());
            let found = meet(&Member::join(world, 1, team.memberships[1].clone())).unwrap_err();
            match end {
                RankEnd::Failed => assert_eq!(found, Error::Aborted { rank: 0, cause: "failed".into() }),
                RankEnd::Returned => assert!(matches!(found, Error::Returned { rank: 0, calls: 0, .. }), "{found}"),
                end => assert_eq!((end, found), (RankEnd::Interrupted, Error::Interrupted)),
            }
        }
    }
}
