//! What a peer did while a rank waited for it in vain: a timeout says whether it was stopped, was starved, slept or computed.
//!
//! ```text
//! wait   sleeps for 100 ms     first look at the processes of the peers: their CPU time so far
//!        deadline              second look, before the abort: the peers that hold the call up have not seen it yet
//! ```
//!
//! It is known of ranks that are processes. Cost: nothing in waits below 100 ms; then a file per peer, once.

use std::time::Instant;

use crate::memory::world::World;
use crate::sync::futex::LONGEST_SLEEP;
use crate::system::process_line::ProcessLine;

/// The length of a tick. Cited: `USER_HZ` of Linux is 100 on every machine.
const TICK_S: f64 = 0.01;

/// The share of a CPU that is little: a process that is ready to run is starved with it, and one that sleeps needs it for its guard. Chosen.
const LITTLE: f64 = 0.05;

/// The most ranks of which a timeout says what they did. Chosen.
const MOST_DESCRIBED: usize = 4;

/// The peers of a rank, as it has looked at them in one wait.
#[derive(Debug, Default)]
pub(crate) struct HoldUp {
    began: Option<Instant>,
    looks: Option<[Looks; 2]>,
}

/// A look at the processes of all ranks.
#[derive(Debug, Default)]
struct Looks {
    at: Option<Instant>,
    lines: Vec<Option<ProcessLine>>,
}

impl Looks {
    fn at(world: &World) -> Self {
        let line = |rank| ProcessLine::read(&format!("/proc/{}/stat", world.process_of(rank)?));
        Self { at: Some(Instant::now()), lines: (0..world.world_size()).map(line).collect() }
    }
}

impl HoldUp {
    /// Begins the wait, if the rank has not slept in it; has the first look if it has slept for long.
    pub(crate) fn before_sleep(&mut self, world: &World) {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.looks.is_none() && began.elapsed() >= LONGEST_SLEEP {
            self.looks = Some([Looks::at(world), Looks::default()]);
        }
    }

    /// Has the second look.
    pub(crate) fn at_deadline(&mut self, world: &World) {
        let [first, _] = self.looks.take().unwrap_or_default();
        self.looks = Some([first, Looks::at(world)]);
    }

    /// Says what the processes of some ranks did, as far as the system told it; that they sleep, unless it was `said` that they wait.
    pub(crate) fn words(&self, ranks: &[u32], said: &str) -> String {
        let of_rank = |&rank: &u32| self.words_of(rank, !said.contains(" waits ")).map(|words| format!("; {words}"));
        ranks.iter().take(MOST_DESCRIBED).filter_map(of_rank).collect()
    }

    fn words_of(&self, rank: u32, tells_sleep: bool) -> Option<String> {
        let [first, second] = self.looks.as_ref()?;
        let last = (*second.lines.get(rank as usize)?)?;
        let first_line = first.lines.get(rank as usize).copied().flatten();
        let seconds = second.at?.saturating_duration_since(first.at.unwrap_or(second.at?)).as_secs_f64();
        let used = first_line.map(|line| last.cpu_ticks.saturating_sub(line.cpu_ticks) as f64 * TICK_S);
        let (is_known, is_little) = (used.is_some(), used.is_none_or(|used| used < seconds * LITTLE));
        let used = used.unwrap_or_default();
        Some(match last.state {
            b'T' | b't' => format!("the process of rank {rank} is stopped: continue it by SIGCONT"),
            b'R' if is_little && is_known => format!(
                "the process of rank {rank} is starved: it is ready to run, and got {used:.2} s of CPU time in the last {seconds:.2} s: \
                 see what else runs"
            ),
            b'S' if is_little && tells_sleep => format!("the process of rank {rank} sleeps in code of its own"),
            b'D' if is_little => format!("the process of rank {rank} waits for a device: see disks and network file systems"),
            _ if !is_little => format!("the process of rank {rank} used {used:.2} s of CPU time in the last {seconds:.2} s"),
            _ => return None,
        })
    }
}
