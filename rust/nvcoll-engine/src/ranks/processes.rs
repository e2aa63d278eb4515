//! Ranks that are processes: each maps the memory of the others, and their calls run as those of ranks that are threads.
//!
//! ```text
//! rank r   makes   words, maps them to write, closes them to writers          passes the descriptors
//!                  bells, staging                                      ──────────────────────────────▶  every peer maps them:
//!          maps    the words of its peers to read, their bells and staging                              words to read only
//! ```
//!
//! Every rank makes and passes its own memory, for the world of all ranks and for each group that it is in. So no rank is special after
//! the join, and a rank that ends takes nothing with it: memory lives as long as somebody maps it.
//!
//! Source: XPMEM-free designs of shared-memory MPI; memory without a name is ours (`memory/shared.rs`).

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvcoll_core::limits::staging_bytes;

use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::heap::{HeapBlock, SymmetricHeap};
use crate::memory::shared::SharedMemory;
use crate::memory::world::addresses::{Addresses, RegionTable};
use crate::memory::world::{RankRegions, World, WorldOrigin, BELLS_BYTES, WORDS_BYTES};
use crate::ranks::member::Member;
use crate::ranks::memberships::Memberships;
use crate::ranks::mesh::{JobSettings, Mesh};
use crate::ranks::rank_end::{fail, retire};
use crate::run::deadline::Deadline;
use crate::system::process::Process;

/// How long a rank whose call failed waits for peers that are stopped. Chosen: a peer that runs acknowledges within milliseconds.
const LONGEST_QUIESCE: Duration = Duration::from_secs(1);

/// Of messages with the memory of a world; the second number of their key says which world.
const WORLD: u64 = 1;

/// Of messages with a region of a rank's symmetric heap; the second number of their key says which region.
const REGION: u64 = 2;

/// This process as a rank of a job.
#[derive(Debug)]
pub struct ProcessRank {
    member: Arc<Member>,
    memberships: Arc<Memberships<Member>>,
    process: Process,
}

/// What the worlds of one rank share: the connections with its peers, the regions of all, and its heap.
#[derive(Debug)]
struct JobMemory {
    mesh: Arc<Mesh>,
    table: Arc<RegionTable>,
    heap: Arc<SymmetricHeap>,
}

impl ProcessRank {
    /// Joins a job. Returns when all ranks have.
    ///
    /// # Errors
    /// Those of [`Mesh::join`]; [`Error::NoMemory`].
    pub fn join(settings: &JobSettings, is_interrupted: &mut dyn FnMut() -> bool) -> Result<Self> {
        let mesh = Arc::new(Mesh::join(settings, is_interrupted)?);
        let (own, world_size) = (mesh.rank(), mesh.world_size());
        let receiver = mesh.clone();
        let receive = move |rank, number| receive_region(&receiver, rank, number).ok();
        let table = Arc::new(RegionTable::new(world_size, Box::new(receive)));
        let (sender, own_regions) = (mesh.clone(), table.clone());
        let make = move |number, bytes| make_region(&sender, &own_regions, number, bytes);
        let job = Arc::new(JobMemory { mesh, table, heap: SymmetricHeap::new(Box::new(make)) });
        let world = make_world(&job, 0, (0..world_size).collect(), false, settings.deadline)?;
        let memberships = Arc::<Memberships<Member>>::default();
        let member = Member::join(world, own, memberships.clone());
        Ok(Self { member, memberships, process: Process::current() })
    }

    /// Returns the member in the communicator of all ranks.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Ends the rank, because its program returned. A peer that makes one more call with it gets an error.
    ///
    /// # Errors
    /// [`Error::Busy`] if another thread is in a call of one of its communicators: then the rank has failed.
    pub fn leave(&self) -> Result<()> {
        match self.process.is_current() {
            true => retire(&self.memberships),
            false => Ok(()), // a child that was forked off is no rank
        }
    }

    /// Ends every call, now and later, of every communicator that contains this rank, because its program failed.
    pub fn fail(&self) {
        if self.process.is_current() {
            fail(&self.memberships);
        }
    }
}

/// How long a rank waits for a region that a record has named: the message lies in its socket already. Chosen.
const REGION_TIMEOUT_S: f64 = 10.0;

/// Makes a region of this rank's heap, and passes it to all peers that are still there.
fn make_region(mesh: &Mesh, table: &RegionTable, number: usize, bytes: usize) -> Result<Arc<MemoryBlock>> {
    let memory = SharedMemory::make("symmetric memory", bytes)?;
    let block = Arc::new(memory.map()?);
    let deadline = Deadline::after(Some(REGION_TIMEOUT_S));
    for peer in (0..mesh.world_size()).filter(|&peer| peer != mesh.rank()) {
        let key = [REGION, number as u64, 0];
        match mesh.send(peer, key, &[bytes as u64], &[memory.descriptor()], deadline, &mut || false) {
            Ok(()) | Err(Error::Left { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    table.add(mesh.rank(), number, block.clone());
    Ok(block)
}

/// Receives and maps a region of a peer's heap.
fn receive_region(mesh: &Mesh, peer: u32, number: usize) -> Result<Arc<MemoryBlock>> {
    let deadline = Deadline::after(Some(REGION_TIMEOUT_S));
    let message = mesh.receive(peer, [REGION, number as u64, 0], deadline, &mut || false)?;
    let bytes = message.words.first().copied().unwrap_or(0) as usize;
    let wrong = || Error::Invalid(format!("rank {peer} passed a region without its descriptor"));
    let descriptor = message.descriptors.into_iter().next().ok_or_else(wrong)?;
    Ok(Arc::new(SharedMemory::received("symmetric memory", bytes, descriptor)?.map()?))
}

/// Makes the world `id` of some ranks of the job, each of which calls this.
fn make_world(
    job: &Arc<JobMemory>,
    id: u64,
    ranks: Vec<u32>,
    is_group: bool,
    deadline: Deadline,
) -> Result<Arc<World>> {
    let (key, mesh) = ([WORLD, id, 0], &*job.mesh);
    let made = OwnMemory::make(ranks.len() as u32)?;
    for &peer in ranks.iter().filter(|&&rank| rank != mesh.rank()) {
        mesh.send(peer, key, &[], &made.memory.each_ref().map(SharedMemory::descriptor), deadline, &mut || false)?;
    }
    let mut regions = Vec::with_capacity(ranks.len());
    for &rank in &ranks {
        regions.push(match rank == mesh.rank() {
            true => made.regions()?,
            false => peer_regions(mesh, rank, key, ranks.len() as u32, deadline)?,
        });
    }
    let addresses = match ranks.len() {
        1 => Addresses::OneSpace,
        _ => Addresses::Regions { table: job.table.clone(), ranks: ranks.clone() },
    };
    let origin = ProcessOrigin { job: job.clone(), id };
    Ok(Arc::new(World::of_regions(ranks, is_group, regions, addresses, Box::new(origin))))
}

/// The memory that a rank makes for a world: words, bells, staging.
struct OwnMemory {
    memory: [SharedMemory; 3],
}

impl OwnMemory {
    fn make(world_size: u32) -> Result<Self> {
        let [words, bells, staging] = lengths(world_size);
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

/// Returns what each memory of a rank is, with its length.
fn lengths(world_size: u32) -> [(&'static str, usize); 3] {
    [("words", WORDS_BYTES), ("bells", BELLS_BYTES), ("staging", staging_bytes(world_size))]
}

/// Receives and maps the memory of a peer.
fn peer_regions(mesh: &Mesh, peer: u32, key: [u64; 3], world_size: u32, deadline: Deadline) -> Result<RankRegions> {
    let message = mesh.receive(peer, key, deadline, &mut || false)?;
    let found = message.descriptors.len();
    let descriptors = <[_; 3]>::try_from(message.descriptors)
        .map_err(|_| Error::Invalid(format!("rank {peer} passed {found} descriptors, expected 3")))?;
    let mut memory = lengths(world_size).into_iter().zip(descriptors);
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
}

impl WorldOrigin for ProcessOrigin {
    fn make_group(&self, call: u32, color: u32, ranks: Vec<u32>, until: Option<Instant>) -> Result<Arc<World>> {
        // Every process runs the same program, whose hasher has no secret.
        let mut hasher = DefaultHasher::new();
        (self.id, call, color).hash(&mut hasher);
        make_world(&self.job, hasher.finish(), ranks, true, Deadline::until(until))
    }

    fn allocate(&self, bytes: usize) -> Result<Option<HeapBlock>> {
        self.job.heap.allocate(bytes).map(Some)
    }

    fn is_gone(&self, rank: u32) -> bool {
        self.job.mesh.has_left(rank)
    }

    fn longest_quiesce(&self) -> Option<Duration> {
        Some(LONGEST_QUIESCE)
    }
}
