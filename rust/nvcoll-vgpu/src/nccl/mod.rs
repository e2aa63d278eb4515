//! NCCL without a network: communicators here, collectives and group calls in `collectives`.
//!
//! torch's ProcessGroupNCCL runs on these entry points as they are. A communicator is its number of
//! ranks and this process's rank; nobody is asked whether the others exist. A collective becomes one
//! record (kind 9) and, if it is small, leaves in memory what it would leave if all ranks held the
//! same as this one ([`mod@data`]).
//!
//! Facts of the interface (names, argument orders, values of enums) are the facts that NCCL's guide
//! documents, <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>.
//!
//! What it does not do: device-side communicators and one-sided signals answer success and are named as
//! unanswered.

mod collectives;
mod configured;
mod data;
mod numbers;
mod ops;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::Mutex;

use crate::arguments::{List, Room, Text};
use crate::entry_points::{functions, number, refused, values};
use crate::gpu::gpu;
use crate::handles::Handles;
use crate::lock::lock;
use crate::log::{self, RecordKind};
use crate::{memory, set, Answer, Failure, Handle, Out, Status};

/// `ncclResult_t`: an error of CUDA where memory is out, otherwise an invalid argument.
pub(crate) fn answer(body: impl FnOnce() -> Answer) -> Status {
    match body() {
        Err(Failure::OUT_OF_MEMORY) => 1,
        answer => number(answer, 4, 4),
    }
}

/// What communicators take of a GPU, from the first one of several ranks to the end of the last one.
const BYTES: usize = crate::memory_constants::NCCL_BYTES as usize;

/// A communicator of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NcclCommunicator {
    id: u64,
    ranks: u32,
    rank: u32,
    device: u16,
}

static COMMUNICATORS: Handles<NcclCommunicator> = Handles::new();
/// Communicators of several ranks, by GPU.
static HOLDERS: Mutex<BTreeMap<u16, usize>> = Mutex::new(BTreeMap::new());
/// Numbers of communicators and of unique ids; both count from 1.
static COMMUNICATOR_IDS: AtomicU64 = AtomicU64::new(0);
static UNIQUE_IDS: AtomicU64 = AtomicU64::new(0);
/// The result of the next `ncclCommSplit`, as set by `nvcoll_vgpu_split_hint`; 0 ranks: not set.
static SPLIT_RANKS: AtomicI32 = AtomicI32::new(0);
static SPLIT_RANK: AtomicI32 = AtomicI32::new(0);

/// `ncclUniqueId`: 128 bytes, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId([u8; 128]);

/// The head of `ncclConfig_t` of 2.27 and later, up to the name of the communicator. Its first field is its size in bytes, which
/// differs between versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    settings: [c_int; 4],
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: Text<'static>,
}

impl UniqueId {
    fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// The name that a configuration gives a communicator, if it gives one.
fn name_in(config: List<Config>) -> Option<String> {
    let bytes = config.cast::<usize>().read(1).ok()?[0];
    if bytes < size_of::<Config>() {
        return None;
    }
    let name = config.read(1).ok()?[0].name;
    name.read().ok().map(|name| name.to_string_lossy().into_owned())
}

/// Makes a communicator and hands out its handle.
fn make(out: Out<'_, Handle>, name: &str, ranks: c_int, rank: c_int) -> Answer {
    crate::make(out, || create(name, ranks, rank))
}

/// Makes a communicator and logs it.
fn create(name: &str, ranks: c_int, rank: c_int) -> Result<Handle, Failure> {
    if ranks < 1 || rank < 0 || rank >= ranks {
        return Err(Failure::INVALID_VALUE);
    }
    if ranks > 1 {
        let mut holders = lock(&HOLDERS);
        let count = holders.entry(log::device()).or_default();
        if *count == 0 {
            memory::hold(log::device(), BYTES)?;
        }
        *count += 1;
    }
    let id = COMMUNICATOR_IDS.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: only uniqueness counts
    let (ranks, rank) = (ranks as u32, rank as u32);
    log::push(RecordKind::Communicator, 0, log::name(name), [id, u64::from(ranks), u64::from(rank)]);
    Ok(COMMUNICATORS.insert(NcclCommunicator { id, ranks, rank, device: log::device() }))
}

/// Ends a communicator.
fn destroy(comm: Handle) -> Answer {
    let NcclCommunicator { ranks, device, .. } = COMMUNICATORS.find(comm)?;
    COMMUNICATORS.remove(comm)?;
    if ranks > 1 {
        let mut holders = lock(&HOLDERS);
        let count = holders.entry(device).or_default();
        *count -= 1;
        if *count == 0 {
            memory::let_go(device, BYTES);
        }
    }
    Ok(())
}

/// Says what the next `ncclCommSplit` makes: torch knows the ranks of a split, NCCL's call does not.
pub(crate) fn set_split_hint(ranks: c_int, rank: c_int) {
    // Relaxed: the thread that splits gave the hint, or was started after it.
    SPLIT_RANKS.store(ranks, Ordering::Relaxed);
    SPLIT_RANK.store(rank, Ordering::Relaxed);
}

/// An identifier that no other call of this process gives.
fn unique_id() -> UniqueId {
    let mut id = UniqueId([0; 128]);
    let number = UNIQUE_IDS.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: only uniqueness counts
    let text = format!("communicator {number}");
    id.0[..text.len()].copy_from_slice(text.as_bytes());
    id
}

/// Makes one communicator per device of this process.
fn make_all(out: Room<Handle>, devices: c_int) -> Answer {
    if out.is_null() || devices < 1 {
        return Err(Failure::INVALID_VALUE);
    }
    let made = (0..devices).map(|rank| create("all devices", devices, rank)).collect::<Result<Vec<_>, _>>()?;
    out.write(&made)
}

/// Splits a communicator; ranks and rank come from the hint, or from the whole.
fn split(comm: Handle, color: c_int, out: Out<'_, Handle>, config: List<Config>) -> Answer {
    let whole = COMMUNICATORS.find(comm)?;
    if color < 0 {
        return set(out, 0);
    }
    // Relaxed: see `set_split_hint`.
    let (ranks, rank) = match SPLIT_RANKS.load(Ordering::Relaxed) {
        0 => (whole.ranks as c_int, whole.rank as c_int),
        ranks => (ranks, SPLIT_RANK.load(Ordering::Relaxed)),
    };
    make(out, &name_in(config).unwrap_or_else(|| format!("split of {} with color {color}", whole.id)), ranks, rank)
}

/// Makes a communicator without the ranks of a list.
fn shrink(comm: Handle, excluded: List<c_int>, count: c_int, out: Out<'_, Handle>, config: List<Config>) -> Answer {
    let whole = COMMUNICATORS.find(comm)?;
    let excluded =
        excluded.read(usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Failure::INVALID_VALUE)?)?;
    let before = excluded.iter().filter(|rank| **rank < whole.rank as c_int).count();
    let name = name_in(config).unwrap_or_else(|| format!("rest of {}", whole.id));
    make(out, &name, (whole.ranks as c_int).saturating_sub(count), whole.rank as c_int - before as c_int)
}

/// `ncclTeam_t`: ranks of a communicator, `stride` apart.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct NcclTeam {
    ranks: c_int,
    rank: c_int,
    stride: c_int,
}

/// The ranks that share the host of a rank, or (across hosts) its place on each; none for an unknown communicator.
fn team(comm: Handle, is_across: bool) -> NcclTeam {
    let Ok(whole) = COMMUNICATORS.find(comm) else { return NcclTeam::default() };
    let (ranks, rank) = (whole.ranks as c_int, whole.rank as c_int);
    let on_host = ranks.min(gpu().devices as c_int).max(1);
    match is_across {
        true => NcclTeam { ranks: ranks / on_host, rank: rank / on_host, stride: on_host },
        false => NcclTeam { ranks: on_host, rank: rank % on_host, stride: 1 },
    }
}

values! {
    ncclTeamLsa(comm: Handle) -> NcclTeam => team(comm, false);
    ncclTeamRail(comm: Handle) -> NcclTeam => team(comm, true);
    ncclTeamRankToWorld(comm: Handle, team: NcclTeam, rank: c_int) -> c_int =>
        COMMUNICATORS.find(comm).map_or(-1, |whole| whole.rank as c_int + (rank - team.rank) * team.stride);
    // The last error in words: none.
    ncclGetLastError() -> *const c_char => c"".as_ptr();
}

functions! { answer:
    // 22304 is 2.23.4.
    ncclGetVersion(out: Out<c_int>) => set(out, if gpu().cuda == 12 { 22_705 } else { 23_007 });
    ncclGetUniqueId(out: Out<UniqueId>) => set(out, unique_id());
    // The identifier with which a communicator grows.
    ncclCommGetUniqueId(comm: Handle, out: Out<UniqueId>) => COMMUNICATORS.find(comm).and_then(|_| set(out, unique_id()));
    ncclCommInitRank(out: Out<Handle>, ranks: c_int, id: UniqueId, rank: c_int) => make(out, &id.text(), ranks, rank);
    ncclCommInitRankConfig(out: Out<Handle>, ranks: c_int, id: UniqueId, rank: c_int, config: List<Config>) =>
        make(out, &name_in(config).unwrap_or_else(|| id.text()), ranks, rank);
    // Of several identifiers the first is the name.
    ncclCommInitRankScalable(out: Out<Handle>, ranks: c_int, rank: c_int, _ids: c_int, first: Option<&UniqueId>,
        config: List<Config>) => {
        let name = name_in(config).or_else(|| first.map(UniqueId::text));
        make(out, &name.ok_or(Failure::INVALID_VALUE)?, ranks, rank)
    };
    ncclCommInitAll(out: Room<Handle>, devices: c_int) => make_all(out, devices);
    ncclCommSplit(comm: Handle, color: c_int, _key: c_int, out: Out<Handle>, config: List<Config>) =>
        split(comm, color, out, config);
    ncclCommShrink(comm: Handle, excluded: List<c_int>, count: c_int, out: Out<Handle>, config: List<Config>) =>
        shrink(comm, excluded, count, out, config);
    ncclCommGrow(comm: Handle, ranks: c_int, _id: usize, rank: c_int, out: Out<Handle>, config: List<Config>) => {
        let own = COMMUNICATORS.find(comm).map_or(rank, |whole| whole.rank as c_int);
        make(out, &name_in(config).unwrap_or_else(|| "grown".into()), ranks, own)
    };
    ncclCommDestroy ncclCommAbort(comm: Handle) => destroy(comm);
    ncclCommFinalize ncclCommRevoke ncclCommSuspend ncclCommResume ncclCommDeregister ncclCommWindowDeregister(comm: Handle) =>
        COMMUNICATORS.find(comm).map(drop);
    ncclCommCount(comm: Handle, out: Out<c_int>) => set(out, COMMUNICATORS.find(comm)?.ranks as c_int);
    ncclCommUserRank(comm: Handle, out: Out<c_int>) => set(out, COMMUNICATORS.find(comm)?.rank as c_int);
    ncclCommCuDevice(comm: Handle, out: Out<c_int>) => set(out, COMMUNICATORS.find(comm)?.device.into());
    ncclCommGetAsyncError(comm: Handle, out: Out<c_int>) => COMMUNICATORS.find(comm).and_then(|_| set(out, 0));
    // The communicators of a GPU share what they take: none of it is of one.
    ncclCommMemStats(comm: Handle, _which: c_int, out: Out<u64>) => COMMUNICATORS.find(comm).and_then(|_| set(out, 0));
    ncclMemAlloc(out: Out<Handle>, bytes: usize) => crate::make(out, || memory::allocate(bytes));
    ncclMemFree(at: Handle) => memory::release(at);
    // The handle of a buffer and of a window is the address of the buffer.
    ncclCommRegister ncclCommWindowRegister(comm: Handle, buffer: Handle, _bytes: usize, out: Out<Handle>) =>
        COMMUNICATORS.find(comm).and_then(|_| set(out, buffer));
    ncclWinGetUserPtr(comm: Handle, window: Handle, out: Out<Handle>) =>
        COMMUNICATORS.find(comm).and_then(|_| set(out, window));
}

refused! { answer: ncclCommQueryProperties }
