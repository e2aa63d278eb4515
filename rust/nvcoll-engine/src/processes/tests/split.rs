//! A split that fails on one rank.

use std::thread::{scope, sleep};
use std::time::Duration;

use crate::call::{CallPurpose, SplitKey};
use crate::deadline::{Deadline, WaitLimit};
use crate::join::JobSettings;
use crate::processes::ProcessRank;
use crate::ranks::{split, words};
use crate::sync::single_flight::HoldsNoLock;
use crate::sync::Cause;

/// Ranks that are processes meet in a group by messages, which the rank that is through may send later.
#[test]
fn a_rank_whose_split_fails_at_its_deadline_ends_the_calls_of_the_group_of_a_peer_that_is_through() {
    let (watchdog, job) = (Deadline::after(Some(30.0)), format!("late in a split {}", std::process::id()));
    let join = |rank| {
        let settings = JobSettings { rank, world_size: 2, job: job.clone(), token: None, deadline: watchdog };
        ProcessRank::join(&settings, &mut || false).unwrap()
    };
    let program = words::program(2, CallPurpose::Split, &HoldsNoLock).unwrap();
    let ([fingerprint, small, count], [color, key]) =
        (program.fingerprint, SplitKey { color: Some(0), key: 0 }.words());
    let [fails, through] = scope(|scope| {
        let through = scope.spawn(|| join(1));
        [join(0), through.join().unwrap()]
    });
    for member in [fails.member(), through.member()] {
        let lines = &member.world.lines[member.rank() as usize];
        lines.record.write(1, &[fingerprint, small, count, color, key, 0, 0, 1]);
        lines.stamp.enter(1, 0);
    }
    fails.member().raise(Cause::TimedOut(0));
    scope(|scope| {
        let group = scope.spawn(|| {
            sleep(Duration::from_millis(50));
            let mut never = || false;
            split::join(&through.member().world, &program, 1, 1, &mut WaitLimit::new(watchdog, &mut never))
        });
        let late = Deadline::after(Some(0.0));
        let error = fails.member().split(Some(0), 0, late, &HoldsNoLock, &mut || false).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 timed out in an earlier call: the call was aborted");
        let (world, _) = group.join().unwrap().unwrap().unwrap();
        assert_eq!(world.abort().cause(), Some(Cause::Failed(0)));
    });
}
