//! The settings of a job, and the check whether a process that says hello belongs to it.

use std::fmt;
use std::hint::black_box;

use nvcoll_core::limits::MAX_RUNNING_RANKS;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::join::socket::LONGEST_NAME;
use crate::join::wire::{Hello, SocketName, JOB_ROOM};

/// The first bytes of the name under which rank 0 waits.
const PREFIX: &str = "nvcoll.";
/// The digits of the largest number of a user.
const USER_DIGITS: usize = 10;
const _: () = assert!(PREFIX.len() + USER_DIGITS + 1 + JOB_ROOM <= LONGEST_NAME);

/// The settings of a job, equal on every rank except for the rank, and the deadline by which all ranks must have come.
#[derive(Clone)]
pub struct JobSettings {
    /// The number of this rank, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The name of the job, 1 to 88 bytes. Two jobs of one user that join at the same time need two names.
    pub job: String,
    /// A secret of the job. Ranks without it are refused. `None`: every process of this user may be a rank.
    pub token: Option<[u8; 32]>,
    /// The time at which the join gives up.
    pub deadline: Deadline,
}

impl fmt::Debug for JobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world_size, job, token, deadline } = self;
        let token = token.map_or("none", |_| "secret");
        write!(f, "JobSettings {{ rank: {rank}, world_size: {world_size}, job: {job:?}, ")?;
        write!(f, "token: {token}, deadline: {deadline:?} }}")
    }
}

impl JobSettings {
    /// Checks the numbers and the name.
    pub(super) fn check(&self) -> Result<()> {
        let Self { rank, world_size, job, .. } = self;
        let refuse = |words: String| Err(Error::Invalid(words));
        if !(1..=MAX_RUNNING_RANKS).contains(world_size) {
            return refuse(format!("found world size {world_size}, expected 1 to {MAX_RUNNING_RANKS}"));
        }
        if rank >= world_size {
            return refuse(format!("found rank {rank} of {world_size}, expected 0 to {}", world_size - 1));
        }
        match job.len() {
            0 => refuse("the job has no name: pass one, the same on every rank".into()),
            1..=JOB_ROOM => Ok(()),
            bytes => {
                refuse(format!("the name of the job has {bytes} bytes, expected 1 to {JOB_ROOM}: pass a shorter one"))
            }
        }
    }

    /// Returns the name under which rank 0 of a user waits.
    pub(super) fn rendezvous(&self, user: u32) -> Vec<u8> {
        format!("{PREFIX}{user}.{}", self.job).into_bytes()
    }

    /// Returns what this rank says about itself.
    pub(super) fn hello(&self, join: [u64; 2], listens_at: SocketName) -> Hello {
        let Self { rank, world_size, token, .. } = *self;
        Hello { rank, world_size, token, job: self.job.clone().into_bytes(), join, listens_at }
    }

    /// Says whether a hello has the token of this job, or none if this job has none.
    pub(super) fn has_token_of(&self, hello: &Hello) -> bool {
        match (&self.token, &hello.token) {
            (Some(own), Some(other)) => are_equal(own, other),
            (own, other) => own.is_some() == other.is_some(),
        }
    }
}

/// Compares two tokens in a time that does not depend on their bytes.
fn are_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
    black_box(difference) == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn settings(rank: u32, world_size: u32, job: &str) -> JobSettings {
        JobSettings { rank, world_size, job: job.into(), token: None, deadline: Deadline::default() }
    }

    #[test]
    fn ranks_and_names_out_of_range_are_refused_with_the_range() {
        let words = |settings: JobSettings| settings.check().unwrap_err().to_string();
        assert_eq!(words(settings(0, 0, "a")), "found world size 0, expected 1 to 1024");
        assert_eq!(words(settings(4, 4, "a")), "found rank 4 of 4, expected 0 to 3");
        assert_eq!(words(settings(0, 1, "")), "the job has no name: pass one, the same on every rank");
        assert!(words(settings(0, 1, &"é".repeat(45))).starts_with("the name of the job has 90 bytes"));
        assert_eq!(settings(0, 1, &"é".repeat(44)).check(), Ok(()));
        assert!(settings(0, 1, &"a".repeat(JOB_ROOM)).rendezvous(u32::MAX).len() <= LONGEST_NAME);
    }

    #[test]
    fn tokens_are_equal_in_all_bits_or_absent_on_both_sides() {
        let with = |token| JobSettings { token, ..settings(0, 2, "a") };
        let has = |own, other| with(own).has_token_of(&with(other).hello([0, 0], Vec::new()));
        let token = [0xa5; 32];
        assert!(has(None, None) && has(Some(token), Some(token)));
        assert!(!has(None, Some(token)) && !has(Some(token), None));
        for bit in 0..256 {
            let mut other = token;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!has(Some(token), Some(other)), "bit {bit}");
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let printed = format!("{:?}", JobSettings { token: Some([77; 32]), ..settings(0, 2, "a") });
        assert!(printed.contains("token: secret") && !printed.contains("77"), "{printed}");
    }
}
