//! The communicators that are made of one: splits, subsets, and what is left after an end.

use std::sync::Arc;

use super::{Member, ENDED};
use crate::call::{CallPurpose, SplitKey};
use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::program::Program;
use crate::ranks::memberships::RankEnd;
use crate::ranks::subset::subset;
use crate::ranks::{shrink, split};
use crate::run::wait::now;
use crate::sync::condition::IsInterrupted;
use crate::sync::single_flight::Unlocked;

/// How many seconds a rank whose split failed waits for peers that are through, to end the calls of their group. Its own deadline may have
/// passed. Chosen: they are about to come, unless they are stopped.
const GATHERING_S: f64 = 10.0;

impl Member {
    /// Splits the ranks into groups; returns this rank's member of its group, if it has a color.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a color of 2^31 or more; else as [`Member::run`].
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<Option<Arc<Self>>> {
        if color.is_some_and(|color| color > i32::MAX as u32) {
            return Err(Error::Invalid(format!("found color {}, expected one below 2^31", color.unwrap_or(0))));
        }
        let program = self.program_of_words(CallPurpose::Split, deadline, unlocked)?;
        unlocked.run(|| self.run_split(program, SplitKey { color, key }, WaitLimit::new(deadline, is_interrupted)))
    }

    /// Makes a communicator of some ranks of this one, in their order. These ranks call it, with the same list and tag, and no others. It is
    /// no call of this communicator.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a list that is none, or without this rank; [`Error::Overdue`] if a rank has not come before the deadline;
    /// [`Error::PeerLost`]; [`Error::Interrupted`]; [`Error::NoMemory`] and [`Error::System`], or [`Error::Aborted`] if a peer had none;
    /// [`Error::Closed`] as [`Member::run`].
    pub fn subset(
        &self,
        ranks: &[u32],
        tag: u32,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<Arc<Self>> {
        self.check_present()?;
        unlocked.run(|| {
            let mut limit = WaitLimit::new(deadline, is_interrupted);
            let (world, rank) = subset(&self.world, self.rank, &self.subsets, ranks, tag, &mut limit)?;
            Ok(Self::join(world, rank, self.memberships.clone()))
        })
    }

    fn run_split(&self, program: &Arc<Program>, key: SplitKey, mut limit: WaitLimit<'_>) -> Result<Option<Arc<Self>>> {
        let mut calls = self.begin_in_turn(|| program.call().clone().into(), &mut limit)?;
        let calls = calls.as_mut().ok_or(ENDED)?;
        // SAFETY: as in `agree_on_mapped`.
        let outcome = now(unsafe { calls.say(&self.world, program, key.words(), &mut limit) });
        let join = |limit: &mut WaitLimit<'_>| split::join(&self.world, program, calls.number, self.rank, limit);
        let joined = match outcome {
            Ok(()) => join(&mut limit),
            Err(_) => {
                let deadline = Deadline::after(Some(GATHERING_S));
                join(&mut WaitLimit::new(deadline, &mut || false))
            }
        };
        let group = match joined {
            Ok(group) => group,
            Err(error) => return Err(outcome.err().unwrap_or(error)),
        };
        let member = group.map(|(world, rank)| Self::join(world, rank, self.memberships.clone()));
        match outcome {
            Ok(()) => Ok(member),
            Err(error) => {
                // Peers that were through would wait for it.
                member.inspect(|member| _ = member.end(RankEnd::Failed));
                Err(error)
            }
        }
    }

    /// Returns the member of this rank among those that are left: whose processes run and whose programs have not ended.
    ///
    /// # Errors
    /// [`Error::Overdue`] names ranks that are left and have not called it; [`Error::Interrupted`]; [`Error::NoMemory`] and [`Error::System`], or
    /// [`Error::Aborted`] if a peer had none; [`Error::Closed`] as [`Member::run`].
    pub fn shrink(
        &self,
        deadline: Deadline,
        unlocked: &impl Unlocked,
        is_interrupted: IsInterrupted<'_>,
    ) -> Result<Arc<Self>> {
        self.check_present()?;
        unlocked.run(|| {
            let _alone = self.memberships.begin_to_shrink();
            let (world, rank) = shrink::shrink(&self.world, self.rank, &mut WaitLimit::new(deadline, is_interrupted))?;
            Ok(Self::join(world, rank, self.memberships.clone()))
        })
    }
}
