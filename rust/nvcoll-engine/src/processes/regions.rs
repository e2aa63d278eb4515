//! Regions of symmetric memory between processes: a rank asks for a region of a peer when a record first names it, and the guard of the
//! peer passes its descriptor.
//!
//! ```text
//! rank that asks         question in its own words, rings the guard of the owner                  (sync/wanted.rs)
//! guard of the owner     passes the descriptor; or says that there is no such region, or that the system passes none now
//! rank that asks         maps the region, or asks again
//! ```
//!
//! The system limits the descriptors that a user has in flight: sent, and not received yet (`ulimit -n`). A rank has one question at a time
//! and waits for the answer, so a job has at most one descriptor in flight per thread that asks. A region that nobody uses is passed to nobody.
//!
//! A rank that leaves answers nobody afterwards. Before, it passes the regions of its message streams to the peers that have not asked for
//! them: what it sent can be received later.
//!
//! Cost: a descriptor per region, which its owner keeps; the first use of a region by a peer takes two wake-ups.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::error::{Error, Result, SYMMETRIC_MEMORY};
use crate::join::{too_many_in_flight, Mesh, Message, Sending};
use crate::memory::block::MemoryBlock;
use crate::memory::heap::HeapRegion;
use crate::memory::shared::SharedMemory;
use crate::memory::world::rank_lines::{InBlock, RankBells, RankWords};
use crate::memory::world::World;

/// Of messages with a region of a rank's symmetric heap; the second number of their key is the question.
const REGION: u64 = 2;

/// In the place of a question, of regions that a rank passes before it leaves. No question has this number.
const UNASKED: u64 = 1;

/// The wait for an answer before the rank that asks looks at the deadline of its call. Chosen.
const ANSWER_WAIT_S: f64 = 0.2;

/// The longest time for which a guard may have no room for a descriptor before a call fails. Chosen.
const LONGEST_SHORTAGE: Duration = Duration::from_secs(10);

/// The wait until a descriptor is passed again. Chosen.
const RETRY: Duration = Duration::from_millis(1);

/// Answers without a descriptor.
const NO_SUCH_REGION: u64 = 0;
const TOO_MANY_IN_FLIGHT: u64 = 1;

/// The regions of this rank, and the way to the regions of its peers.
#[derive(Debug)]
pub(super) struct JobRegions {
    mesh: Arc<Mesh>,
    /// The regions of this rank, by number.
    own: Mutex<Vec<Arc<SharedMemory>>>,
    /// Set when the world of all ranks exists.
    lines: OnceLock<AskingLines>,
    /// Since when descriptors are in short supply.
    shortage: Mutex<Option<Instant>>,
    /// Peers and the regions in which streams to them lie; and those that were passed.
    streams: Mutex<HashSet<(u32, usize)>>,
    passed: Mutex<HashSet<(u32, usize)>>,
}

/// The words of this rank and the bells of all ranks.
#[derive(Debug)]
struct AskingLines {
    own: InBlock<RankWords>,
    bells: Vec<InBlock<RankBells>>,
}

/// The questions of peers that a guard has answered, by rank.
#[derive(Debug, Default)]
pub(super) struct AnsweredQuestions {
    passed: Vec<u64>,
    /// Those whose ranks know that descriptors are in short supply.
    put_off: Vec<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JobRegions {
    pub(super) fn new(mesh: Arc<Mesh>) -> Self {
        Self {
            mesh,
            own: Mutex::default(),
            lines: OnceLock::new(),
            shortage: Mutex::default(),
            streams: Mutex::default(),
            passed: Mutex::default(),
        }
    }

    /// Lets this rank ask its peers, which it finds in the world of all ranks.
    pub(super) fn begin_to_ask(&self, world: &World) {
        let own = world.lines[self.mesh.rank() as usize].own_words();
        let bells = world.lines.iter().map(|lines| lines.all_bells()).collect();
        _ = self.lines.set(AskingLines { own, bells });
    }

    /// Makes the next region of this rank.
    pub(super) fn make(&self, bytes: usize) -> Result<HeapRegion> {
        let memory = Arc::new(SharedMemory::reserve(SYMMETRIC_MEMORY, bytes)?);
        let block = Arc::new(memory.map()?);
        locked(&self.own).push(memory.clone());
        Ok(HeapRegion { block, memory: Some(memory) })
    }

    /// Asks a peer for a region, and maps it. `None`: the peer has not answered yet. One thread at a time asks.
    ///
    /// # Errors
    /// The reason for which the peer cannot pass the region, or this process cannot map it.
    pub(super) fn ask(&self, peer: u32, number: usize) -> Result<Option<Arc<MemoryBlock>>> {
        let at_once = Deadline::after(Some(0.0));
        if let Ok(message) = self.mesh.receive(peer, [REGION, UNASKED, number as u64], at_once, &mut || false) {
            return map(message).map(Some);
        }
        let lines = self.lines.get().expect("records are read in worlds; the first world has all ranks");
        let question = lines.own.wanted.ask(peer, number);
        lines.bells[peer as usize].guard_bell.ring();
        let answer = self.await_answer(peer, question.word());
        lines.own.wanted.withdraw();
        if !matches!(answer, Ok(Some(_))) {
            self.mesh.forget_of(peer, [REGION, question.word()]);
        }
        answer
    }

    fn await_answer(&self, peer: u32, question: u64) -> Result<Option<Arc<MemoryBlock>>> {
        let deadline = Deadline::after(Some(ANSWER_WAIT_S));
        loop {
            match self.mesh.receive(peer, [REGION, question, 0], deadline, &mut || false) {
                // The guard of this rank hears of the end of a peer, and tells how it ended.
                Err(Error::Overdue { .. } | Error::Left { .. }) => return Ok(None),
                Ok(Message { words, descriptors }) if descriptors.is_empty() && words == [TOO_MANY_IN_FLIGHT] => {
                    self.note_shortage(peer)?;
                }
                answer => {
                    locked(&self.shortage).take();
                    return map(answer?).map(Some);
                }
            }
        }
    }

    /// Notes that a peer waits to pass a descriptor.
    ///
    /// # Errors
    /// If it has waited for too long.
    fn note_shortage(&self, peer: u32) -> Result<()> {
        let since = *locked(&self.shortage).get_or_insert_with(Instant::now);
        match since.elapsed() < LONGEST_SHORTAGE {
            true => Ok(()),
            false => Err(too_many_in_flight(&format!("rank {peer} could not pass its memory"))),
        }
    }

    /// Answers the questions of peers; says whether one has to be answered later. The guard calls it.
    pub(super) fn answer(&self, world: &World, answered: &mut AnsweredQuestions) -> bool {
        let [passed, put_off] = [&mut answered.passed, &mut answered.put_off];
        passed.resize(world.lines.len(), 0);
        put_off.resize(world.lines.len(), 0);
        let mut is_left = false;
        for (peer, lines) in (0..).zip(&world.lines).filter(|(peer, _)| *peer != self.mesh.rank()) {
            let at = peer as usize;
            let question = lines.wanted.read().filter(|question| question.owner() == self.mesh.rank());
            let Some(question) = question.filter(|question| question.word() != passed[at]) else { continue };
            let key = [REGION, question.word(), 0];
            let own = locked(&self.own);
            let sent = match own.get(question.region()) {
                Some(memory) => self.mesh.try_to_send(peer, key, &[memory.bytes() as u64], &[memory.descriptor()]),
                None => self.mesh.try_to_send(peer, key, &[NO_SUCH_REGION], &[]),
            };
            if sent == Sending::NotNow && put_off[at] != question.word() {
                put_off[at] = question.word();
                self.mesh.try_to_send(peer, key, &[TOO_MANY_IN_FLIGHT], &[]);
            }
            match sent {
                Sending::NoRoom | Sending::NotNow => is_left = true,
                Sending::Done | Sending::Ended => {
                    passed[at] = question.word();
                    locked(&self.passed).insert((peer, question.region()));
                }
            }
        }
        is_left
    }

    /// Notes that a stream to a peer lies in a region of this rank.
    pub(super) fn note_stream(&self, peer: u32, region: usize) {
        locked(&self.streams).insert((peer, region));
    }

    /// Passes the regions of streams to the peers that have not asked for them.
    pub(super) fn pass_streams(&self) {
        let until = Instant::now() + LONGEST_SHORTAGE;
        let unread: Vec<_> = locked(&self.streams).difference(&locked(&self.passed)).copied().collect();
        for (peer, region) in unread {
            let pass = || {
                let own = locked(&self.own);
                let (words, descriptors) = ([own[region].bytes() as u64], [own[region].descriptor()]);
                self.mesh.try_to_send(peer, [REGION, UNASKED, region as u64], &words, &descriptors)
            };
            // If it cannot be passed to a peer in time, the peer hears that this rank has left.
            while matches!(pass(), Sending::NoRoom | Sending::NotNow) && Instant::now() < until {
                sleep(RETRY);
            }
        }
    }
}

/// Maps the region that a message brings.
fn map(Message { words, descriptors }: Message) -> Result<Arc<MemoryBlock>> {
    let no_region = || Error::Invalid("the rank has no such region".into());
    let (bytes, descriptor) = words.first().zip(descriptors.into_iter().next()).ok_or_else(no_region)?;
    Ok(Arc::new(SharedMemory::received(SYMMETRIC_MEMORY, *bytes as usize, descriptor)?.map()?))
}
