//! Ranks that are processes: each maps the memory of the others, and calls run as between ranks that are threads.
//!
//! ```text
//! rank r   makes   words, maps them to write, closes them to writers          passes the descriptors
//!                  bells, staging                                      ──────────────────────────────▶  every peer maps them:
//!          maps    the words of its peers to read, their bells and staging                              words to read only
//! ```
//!
//! Every rank makes and passes its own memory, for the world of all ranks and for each group that it is in. So no rank is special after
//! the join, and a rank that ends takes nothing with it: memory lives as long as somebody maps it. If a rank has no memory or descriptors
//! for a world, no rank has that world, and the worlds that exist can still be used.
//!
//! Source: XPMEM-free designs of shared-memory MPI; memory without a name is ours (`memory/shared.rs`).

mod exit;
mod guard;
pub mod recorder;
mod regions;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::deadline::{Deadline, WaitLimit};
use crate::error::{Error, Result};
use crate::join::{JobSettings, Mesh};
use crate::memory::heap::{HeapBlock, IsHarmless, SymmetricHeap};
use crate::memory::shared::SharedMemory;
use crate::memory::world::addresses::{Addresses, RegionTable};
use crate::memory::world::{HasLeft, RankRegions, SubsetKey, World, WorldOrigin, BELLS_BYTES, WORDS_BYTES};
use crate::processes::exit::leave_at_exit;
use crate::processes::guard::{Guard, Watch};
use crate::processes::regions::JobRegions;
use crate::ranks::member::Member;
use crate::ranks::memberships::Memberships;
use crate::ranks::rank_end::{fail, finish_issued, retire};
use crate::sync::condition::IsInterrupted;
use crate::sync::Deaths;
use crate::system::caches::{ring_bytes, staging_bytes};
use crate::system::cpus;
use crate::system::memory::begin_to_count_kills;
use crate::system::process::Process;

/// How long a rank whose call failed waits for peers that are stopped. Chosen: a peer that runs acknowledges within milliseconds.
const LONGEST_QUIESCE: Duration = Duration::from_secs(1);

/// Of messages with the memory of a world; the second number of their key says which world.
const WORLD: u64 = 1;

/// Of the message in which rank 0 tells for how many workers `auto` chooses.
const SIZES: u64 = 3;

/// This process as a rank of a job.
#[derive(Debug)]
pub struct ProcessRank {
    workers: usize,
    member: Arc<Member>,
    memberships: Arc<Memberships<Member>>,
    process: Process,
    regions: Arc<JobRegions>,
    /// Its end says that this rank has left the job. `None` for the only rank of a job.
    guard: Mutex<Option<Guard>>,
}

/// What the worlds of one rank share: the connections with its peers, the regions of all, and its heap.
struct JobMemory {
    mesh: Arc<Mesh>,
    table: Arc<RegionTable>,
    heap: Arc<SymmetricHeap>,
    deaths: Arc<Deaths>,
    regions: Arc<JobRegions>,
    /// The staging of a rank by [`ring_bytes`].
    ring: usize,
    /// Blocks that a peer may still read, each with the question whether the peer has left.
    kept: Mutex<Vec<(HeapBlock, HasLeft)>>,
}

impl std::fmt::Debug for JobMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobMemory").field("mesh", &self.mesh).field("heap", &self.heap).finish_non_exhaustive()
    }
}

impl ProcessRank {
    /// Joins a job. Returns when all ranks have.
    ///
    /// # Errors
    /// As [`Mesh::join`]; [`Error::NoMemory`].
    pub fn join(settings: &JobSettings, is_interrupted: IsInterrupted<'_>) -> Result<Self> {
        let mesh = Arc::new(Mesh::join(settings, is_interrupted)?);
        begin_to_count_kills();
        let (own, world_size) = (mesh.rank(), mesh.world_size());
        let regions = Arc::new(JobRegions::new(mesh.clone()));
        let asking = regions.clone();
        let table = Arc::new(RegionTable::new(world_size, Box::new(move |peer, number| asking.ask(peer, number))));
        let (making, own_regions) = (regions.clone(), table.clone());
        let make = move |number, bytes| {
            let region = making.make(bytes)?;
            own_regions.add(own, number, region.block.clone());
            Ok(region)
        };
        let (heap, deaths) = (SymmetricHeap::new(Box::new(make)), Arc::new(Deaths::of_ranks(world_size)));
        // Before the world exists: a rank without a guard fails while its peers can still fail with it.
        let mut guard = (world_size > 1).then(|| Guard::start(&mesh)).transpose()?;
        let mut limit = WaitLimit::new(settings.deadline, is_interrupted);
        let [workers, ring] = sizes_of_rank_zero(&mesh, &mut limit)?;
        let kept = Mutex::default();
        let job = Arc::new(JobMemory { mesh, table, heap, deaths, regions: regions.clone(), ring, kept });
        let world = make_world(&job, [0, 0], (0..world_size).collect(), false, &mut limit)?;
        regions.begin_to_ask(&world);
        let memberships = Arc::<Memberships<Member>>::default();
        if let Some(guard) = &mut guard {
            let (mesh, world) = (job.mesh.clone(), world.clone());
            guard.begin(Watch { world, own, mesh, memberships: memberships.clone(), regions: regions.clone() });
        }
        world.identify(own, &settings.job);
        let member = Member::join(world, own, memberships.clone());
        Ok(Self { workers, member, memberships, process: Process::current(), regions, guard: Mutex::new(guard) })
    }

    /// Returns the number of workers for which programs are made: the CPUs that rank 0 may use. Each rank may be bound to other CPUs, and
    /// `auto` must choose alike on all.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the member in the communicator of all ranks.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Makes the calls that this rank issued and that are in flight, because its program returned. If there are any, it makes no call
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: then the rank has failed; [`Error::System`] as [`Member::issue`].
    pub fn finish_issued(&self, is_interrupted: IsInterrupted<'_>) -> Result<()> {
        match self.process.is_current() {
            true => finish_issued(&self.memberships, &mut WaitLimit::new(Deadline::default(), is_interrupted)),
            false => Ok(()), // as in `leave`
        }
    }

    /// Ends the rank, because its program returned. A peer that makes one more call with it gets an error.
    ///
    /// # Errors
    /// [`Error::Busy`] if another thread is in a call of one of its communicators: then the rank has failed.
    pub fn leave(&self) -> Result<()> {
        if !self.process.is_current() {
            return Ok(()); // a child that was forked off is no rank
        }
        self.regions.pass_streams();
        let outcome = retire(&self.memberships);
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome
    }

    /// Ends the rank when its process ends: as one that returned if the exit status is 0, else as one that failed.
    ///
    /// # Errors
    /// As [`ProcessRank::leave`].
    pub fn leave_at_exit(&self) -> Result<()> {
        if !self.process.is_current() {
            return Ok(()); // as in `leave`
        }
        self.regions.pass_streams();
        leave_at_exit(&self.memberships)
    }

    /// Ends every call, now and later, of every communicator that contains this rank, because its program failed.
    pub fn fail(&self) {
        if self.process.is_current() {
            fail(&self.memberships);
        }
    }
}

/// On rank 0, tells every peer the CPUs that it may use, and the staging that suits its caches. Returns those of rank 0.
fn sizes_of_rank_zero(mesh: &Mesh, limit: &mut WaitLimit<'_>) -> Result<[usize; 2]> {
    let key = [SIZES, 0, 0];
    if mesh.rank() != 0 {
        let message = mesh.receive(0, key, limit.deadline, &mut || limit.is_interrupted())?;
        let sizes = <[u64; 2]>::try_from(message.words).map_err(|_| not_shared(0))?;
        return Ok(sizes.map(|size| size as usize));
    }
    let sizes = [cpus::usable(), ring_bytes(mesh.world_size())];
    for peer in 1..mesh.world_size() {
        mesh.send(peer, key, &sizes.map(|size| size as u64), &[], limit.deadline, &mut || limit.is_interrupted())?;
    }
    Ok(sizes)
}

/// Makes the world `id` of some ranks of the job; each of these ranks calls this. `root` is the world that it was shrunk from, or its own.
fn make_world(
    job: &Arc<JobMemory>,
    [id, root]: [u64; 2],
    ranks: Vec<u32>,
    is_group: bool,
    limit: &mut WaitLimit<'_>,
) -> Result<Arc<World>> {
    let take_back = |_: &Error| ranks.iter().for_each(|&rank| job.mesh.take_back(rank, [WORLD, id]));
    let lengths = lengths(ranks.len() as u32, job.ring);
    let (regions, words) = exchange_memory(&job.mesh, id, &ranks, lengths, limit).inspect_err(take_back)?;
    let addresses = match ranks.len() {
        1 => Addresses::OneSpace,
        _ => Addresses::Regions { table: job.table.clone(), ranks: ranks.clone() },
    };
    let origin = Box::new(ProcessOrigin { job: job.clone(), id, root, _words: words });
    Ok(Arc::new(World::of_regions(ranks, is_group, regions, addresses, job.deaths.clone(), origin)))
}

/// Makes this rank's memory of the world `id`, and maps that of all its ranks; returns also the words of this rank.
///
/// ```text
/// step d   pass the own memory to the rank d above, map that of the rank d below     so that few descriptors are on their way:
/// at last  tell everybody whether all of it was done, and hear the same              the system limits their number for a user
/// ```
///
/// A rank that fails goes on to the end. So either all ranks have the world, or all know who failed, and no message is left over unless
/// time runs out.
fn exchange_memory(
    mesh: &Mesh,
    id: u64,
    ranks: &[u32],
    lengths: [(&'static str, usize); 3],
    limit: &mut WaitLimit<'_>,
) -> Result<(Vec<RankRegions>, SharedMemory)> {
    let world_size = ranks.len();
    let own = ranks.iter().position(|&rank| rank == mesh.rank()).expect("a rank makes the worlds that it is in");
    let (mut regions, mut failure) = ((0..world_size).map(|_| None).collect::<Vec<_>>(), None);
    let made = note(&mut failure, OwnMemory::make(lengths));
    regions[own] = made.as_ref().and_then(|made| note(&mut failure, made.regions()));
    for step in 1..world_size {
        let (above, below) = (ranks[(own + step) % world_size], (own + world_size - step) % world_size);
        let descriptors = made.iter().flat_map(|made| made.memory.each_ref().map(SharedMemory::descriptor));
        let descriptors: Vec<_> = descriptors.collect();
        let sent = mesh.send(above, [WORLD, id, 0], &[], &descriptors, limit.deadline, &mut || limit.is_interrupted());
        note(&mut failure, sent);
        let mapped = peer_regions(mesh, ranks[below], [WORLD, id, 0], lengths, limit);
        regions[below] = note(&mut failure, mapped);
    }
    let peers = || ranks.iter().copied().filter(|&rank| rank != mesh.rank());
    let blamed = match &failure {
        None => NOBODY,
        Some(Error::Aborted { rank, .. } | Error::Left { rank, .. }) => u64::from(*rank),
        Some(_) => u64::from(mesh.rank()),
    };
    for peer in peers() {
        let sent = mesh.send(peer, [WORLD, id, 1], &[blamed], &[], limit.deadline, &mut || limit.is_interrupted());
        note(&mut failure, sent);
    }
    for peer in peers() {
        let heard = mesh.receive(peer, [WORLD, id, 1], limit.deadline, &mut || limit.is_interrupted());
        let heard = heard.and_then(|message| match message.words[..] {
            [NOBODY] => Ok(()),
            [blamed] if ranks.contains(&(blamed as u32)) => Err(not_shared(blamed as u32)),
            _ => Err(not_shared(peer)),
        });
        note(&mut failure, heard);
    }
    match (made, failure) {
        (Some(OwnMemory { memory: [words, ..] }), None) => Ok((regions.into_iter().flatten().collect(), words)),
        (_, failure) => Err(failure.unwrap_or_else(|| not_shared(mesh.rank()))),
    }
}

/// Keeps the first failure; returns the outcome of what did not fail.
fn note<T>(failure: &mut Option<Error>, outcome: Result<T>) -> Option<T> {
    outcome.map_err(|error| failure.get_or_insert(error)).ok()
}

/// In the place of the rank that is to blame.
const NOBODY: u64 = u64::MAX;

fn not_shared(rank: u32) -> Error {
    Error::Aborted { rank, cause: "could not share memory with its peers".into() }
}

/// The memory that a rank makes for a world: words, bells, staging.
struct OwnMemory {
    memory: [SharedMemory; 3],
}

impl OwnMemory {
    fn make([words, bells, staging]: [(&'static str, usize); 3]) -> Result<Self> {
        let make = |(what, bytes)| SharedMemory::make(what, bytes);
        Ok(Self { memory: [make(words)?, make(bells)?, make(staging)?] })
    }

    /// Maps it, and closes the words to writers.
    fn regions(&self) -> Result<RankRegions> {
        let [words, bells, staging] = self.memory.each_ref();
        let regions = RankRegions {
            words: Arc::new(words.map()?),
            bells: Arc::new(bells.map()?),
            staging: Arc::new(staging.map()?),
        };
        words.close_to_writers();
        Ok(regions)
    }
}

/// Returns what each memory of a rank is, with its length; `ring` is that of [`ring_bytes`] in the job.
fn lengths(world_size: u32, ring: usize) -> [(&'static str, usize); 3] {
    [("words", WORDS_BYTES), ("bells", BELLS_BYTES), ("staging", staging_bytes(world_size, ring))]
}

/// Receives and maps the memory of a peer.
fn peer_regions(
    mesh: &Mesh,
    peer: u32,
    key: [u64; 3],
    lengths: [(&'static str, usize); 3],
    limit: &mut WaitLimit<'_>,
) -> Result<RankRegions> {
    let message = mesh.receive(peer, key, limit.deadline, &mut || limit.is_interrupted())?;
    let descriptors = <[_; 3]>::try_from(message.descriptors).map_err(|_| not_shared(peer))?;
    let mut memory = lengths.into_iter().zip(descriptors);
    let mut next = || {
        let ((what, bytes), descriptor) = memory.next().expect("three of each");
        SharedMemory::received(what, bytes, descriptor)
    };
    Ok(RankRegions {
        words: Arc::new(next()?.map_to_read()?),
        bells: Arc::new(next()?.map()?),
        staging: Arc::new(next()?.map()?),
    })
}

/// A world whose ranks are processes.
#[derive(Debug)]
struct ProcessOrigin {
    job: Arc<JobMemory>,
    id: u64,
    /// The words of this rank stay open, so that `nvcoll dump` finds them from outside.
    _words: SharedMemory,
    /// The world from which this one was shrunk, maybe in several steps; its own number if it was not.
    root: u64,
}

impl WorldOrigin for ProcessOrigin {
    fn make_subset(&self, key: SubsetKey, ranks: Vec<u32>, limit: &mut WaitLimit<'_>) -> Result<Arc<World>> {
        let is_shrunk = matches!(key, SubsetKey::Shrink { .. });
        // Every process runs the same program, whose hasher has no secret.
        let mut hasher = DefaultHasher::new();
        (if is_shrunk { self.root } else { self.id }, key, &ranks).hash(&mut hasher);
        let id = hasher.finish();
        let root = if is_shrunk { self.root } else { id };
        let made = make_world(&self.job, [id, root], ranks, true, limit);
        if made.is_err() {
            self.job.mesh.forget([WORLD, id]);
        }
        made
    }

    fn root(&self) -> u64 {
        self.root
    }

    fn allocate(&self, bytes: usize) -> Result<Option<HeapBlock>> {
        self.job.heap.allocate(bytes).map(Some)
    }

    fn process_of(&self, rank: u32) -> Option<u32> {
        let is_peer = rank != self.job.mesh.rank();
        is_peer.then(|| self.job.mesh.process_of(rank)).filter(|&process| process != 0)
    }

    fn note_stream(&self, to: u32, block: &HeapBlock) {
        self.job.regions.note_stream(to, block.region());
    }

    fn keep_until(&self, block: HeapBlock, has_left: HasLeft) {
        let mut kept = self.job.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((block, has_left));
        kept.retain(|(_, has_left)| !has_left());
    }

    fn withhold_until(&self, is_harmless: Box<IsHarmless>) {
        self.job.heap.withhold_until(is_harmless);
    }

    fn longest_quiesce(&self) -> Option<Duration> {
        Some(LONGEST_QUIESCE)
    }
}
