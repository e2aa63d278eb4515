//! NCCL without a network: communicators here, collectives and group calls in `collectives`.
//!
//! torch's ProcessGroupNCCL runs on these entry points as they are. A communicator is its number of
//! ranks and this process's rank; nobody is asked whether the others exist. A collective becomes one
//! record (kind 9) and, if it is small, leaves in memory what it would leave if all ranks held the
//! same as this one ([`mod@data`]).
//!
//! Facts of the interface (names, argument orders, values of enums) are those that NCCL's guide
//! documents, <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>.
//!
//! What it does not do: device-side communicators and one-sided signals answer success and are named as
//! unanswered.

mod collectives;
mod data;
mod numbers;
mod ops;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, CStr};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::Arc;

use crate::gpu::gpu;
use crate::handles::Handles;
use crate::log::{self, Kind};
use crate::{memory, set, Handle, Out};

/// Success, and the errors that this file reports, of `ncclResult_t`.
const SUCCESS: c_int = 0;
const UNHANDLED_CUDA_ERROR: c_int = 1;
pub(crate) const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;

/// Ends with the number of an error of `ncclResult_t`.
pub(crate) type Answer = Result<(), c_int>;

/// The result that NCCL's caller sees.
pub(crate) fn status(answer: Answer) -> c_int {
    answer.err().unwrap_or(SUCCESS)
}

/// Writes to an out-parameter; null is an invalid argument.
pub(crate) fn put<T>(out: Out<'_, T>, value: T) -> Answer {
    set(out, value).map_err(|_| INVALID_ARGUMENT)
}

/// A communicator of this process.
#[derive(Debug)]
pub(crate) struct Communicator {
    id: u64,
    ranks: u32,
    rank: u32,
    device: c_int,
}

static COMMUNICATORS: Handles<Communicator> = Handles::new();
/// Numbers of communicators and of unique ids; both count from 1.
static COMMUNICATOR_IDS: AtomicU64 = AtomicU64::new(0);
static UNIQUE_IDS: AtomicU64 = AtomicU64::new(0);
/// What the next `ncclCommSplit` makes, as `nvcoll_vgpu_split_hint` said; 0 ranks: nothing said.
static SPLIT_RANKS: AtomicI32 = AtomicI32::new(0);
static SPLIT_RANK: AtomicI32 = AtomicI32::new(0);

/// `ncclUniqueId`: 128 bytes, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// The first field of `ncclConfig_t`: the size of the whole in bytes, which differs between versions.
#[repr(C)]
struct ConfigSize(usize);

/// The head of `ncclConfig_t` of 2.27 and later, up to the name of the communicator.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    settings: [c_int; 4],
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
}

impl UniqueId {
    fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// The name that a configuration gives a communicator, if it gives one.
fn name_in(config: Option<&ConfigSize>) -> Option<String> {
    let size = config.filter(|size| size.0 >= size_of::<Config>())?;
    // SAFETY: the configuration is as large as its first field says, by NCCL's interface, so it reaches past the name.
    let name = unsafe { (*std::ptr::from_ref(size).cast::<Config>()).name };
    if name.is_null() {
        return None;
    }
    // SAFETY: a name that is set is a C string, by NCCL's interface.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Makes a communicator, logs it and hands out its handle.
fn make(out: Out<'_, Handle>, name: &str, ranks: c_int, rank: c_int) -> Answer {
    if out.is_none() || ranks < 1 || rank < 0 || rank >= ranks {
        return Err(INVALID_ARGUMENT);
    }
    let id = COMMUNICATOR_IDS.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: only uniqueness counts
    let (ranks, rank) = (ranks as u32, rank as u32);
    log::push(Kind::Communicator, 0, log::name(name), [id, u64::from(ranks), u64::from(rank)]);
    put(out, COMMUNICATORS.insert(Communicator { id, ranks, rank, device: c_int::from(log::device() as i16) }))
}

/// The communicator of a handle that a caller passed.
pub(crate) fn communicator(handle: Handle) -> Result<Arc<Communicator>, c_int> {
    COMMUNICATORS.find(handle).ok_or(INVALID_ARGUMENT)
}

/// Says what the next `ncclCommSplit` makes: torch knows the ranks of a split, NCCL's call does not.
#[no_mangle]
extern "C" fn nvcoll_vgpu_split_hint(ranks: c_int, rank: c_int) {
    // Relaxed: the thread that splits gave the hint, or was started after it.
    SPLIT_RANKS.store(ranks, Ordering::Relaxed);
    SPLIT_RANK.store(rank, Ordering::Relaxed);
}

/// Writes the version as NCCL codes it (22304: 2.23.4).
#[no_mangle]
extern "C" fn ncclGetVersion(out: Out<'_, c_int>) -> c_int {
    status(put(out, if gpu().cuda == 12 { 22_705 } else { 23_007 }))
}

/// Writes an identifier that no other call of this process gives.
#[no_mangle]
extern "C" fn ncclGetUniqueId(out: Out<'_, UniqueId>) -> c_int {
    let mut id = UniqueId([0; 128]);
    let number = UNIQUE_IDS.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: only uniqueness counts
    let text = format!("communicator {number}");
    id.0[..text.len()].copy_from_slice(text.as_bytes());
    status(put(out, id))
}

/// Writes the identifier with which a communicator grows.
#[no_mangle]
extern "C" fn ncclCommGetUniqueId(comm: Handle, out: Out<'_, UniqueId>) -> c_int {
    communicator(comm).map_or_else(|error| error, |_| ncclGetUniqueId(out))
}

/// Makes a communicator of `ranks` ranks in which this process is `rank`.
#[no_mangle]
extern "C" fn ncclCommInitRank(out: Out<'_, Handle>, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    status(make(out, &id.text(), ranks, rank))
}

/// Makes a communicator with a configuration: it can give a name, everything else in it is accepted.
#[no_mangle]
extern "C" fn ncclCommInitRankConfig(
    out: Out<'_, Handle>,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: Option<&ConfigSize>,
) -> c_int {
    let name = name_in(config).unwrap_or_else(|| id.text());
    status(make(out, &name, ranks, rank))
}

/// Makes a communicator from several identifiers, of which the first is the name.
#[no_mangle]
extern "C" fn ncclCommInitRankScalable(
    out: Out<'_, Handle>,
    ranks: c_int,
    rank: c_int,
    _ids: c_int,
    first: Option<&UniqueId>,
    config: Option<&ConfigSize>,
) -> c_int {
    let name = name_in(config).or_else(|| first.map(UniqueId::text));
    status(name.ok_or(INVALID_ARGUMENT).and_then(|name| make(out, &name, ranks, rank)))
}

/// Makes one communicator per device of this process.
#[no_mangle]
extern "C" fn ncclCommInitAll(out: Out<'_, Handle>, devices: c_int, _list: *const c_int) -> c_int {
    let Some(first) = out.filter(|_| devices > 0).map(std::ptr::from_mut) else {
        return INVALID_ARGUMENT;
    };
    let one = |rank: c_int| {
        // SAFETY: there is a place for each of `devices` handles, by NCCL's interface.
        let out = unsafe { &mut *first.add(rank as usize) };
        make(Some(out), "all devices", devices, rank)
    };
    status((0..devices).try_for_each(one))
}

/// Splits a communicator; ranks and rank come from the hint, or are those of the whole.
#[no_mangle]
extern "C" fn ncclCommSplit(
    comm: Handle,
    color: c_int,
    _key: c_int,
    out: Out<'_, Handle>,
    config: Option<&ConfigSize>,
) -> c_int {
    let whole = match communicator(comm) {
        Ok(whole) => whole,
        Err(error) => return error,
    };
    if color < 0 {
        return status(put(out, 0));
    }
    // Relaxed: see `nvcoll_vgpu_split_hint`.
    let (ranks, rank) = match SPLIT_RANKS.load(Ordering::Relaxed) {
        0 => (whole.ranks as c_int, whole.rank as c_int),
        ranks => (ranks, SPLIT_RANK.load(Ordering::Relaxed)),
    };
    let name = name_in(config).unwrap_or_else(|| format!("split of {} with color {color}", whole.id));
    status(make(out, &name, ranks, rank))
}

/// Makes a communicator without the ranks of a list.
#[no_mangle]
extern "C" fn ncclCommShrink(
    comm: Handle,
    excluded: Option<&c_int>,
    count: c_int,
    out: Out<'_, Handle>,
    config: Option<&ConfigSize>,
    _flags: c_int,
) -> c_int {
    let (Ok(whole), Some(first), 1..) = (communicator(comm), excluded, count) else {
        return INVALID_ARGUMENT;
    };
    // SAFETY: the list has `count` entries, by NCCL's interface.
    let excluded = unsafe { std::slice::from_raw_parts(first, count as usize) };
    let before = excluded.iter().filter(|rank| **rank < whole.rank as c_int).count();
    let name = name_in(config).unwrap_or_else(|| format!("rest of {}", whole.id));
    status(make(out, &name, (whole.ranks as c_int).saturating_sub(count), whole.rank as c_int - before as c_int))
}

/// Makes a communicator of more ranks out of one.
#[no_mangle]
extern "C" fn ncclCommGrow(
    comm: Handle,
    ranks: c_int,
    _id: *const UniqueId,
    rank: c_int,
    out: Out<'_, Handle>,
    config: Option<&ConfigSize>,
) -> c_int {
    let own = communicator(comm).map_or(rank, |whole| whole.rank as c_int);
    status(make(out, &name_in(config).unwrap_or_else(|| "grown".into()), ranks, own))
}

/// Entry points that end a communicator.
macro_rules! ends {
    ($($name:ident),*) => { $(
        /// Ends a communicator; a handle that names none is an error.
        #[no_mangle]
        extern "C" fn $name(comm: Handle) -> c_int {
            status(COMMUNICATORS.remove(comm).map(|_| ()).ok_or(INVALID_ARGUMENT))
        }
    )* };
}
ends!(ncclCommDestroy, ncclCommAbort);

/// Entry points that need a communicator and change nothing.
macro_rules! accepts {
    ($($name:ident),*) => { $(
        /// Succeeds for a communicator that exists.
        #[no_mangle]
        extern "C" fn $name(comm: Handle) -> c_int {
            status(communicator(comm).map(|_| ()))
        }
    )* };
}
accepts!(ncclCommFinalize, ncclCommRevoke, ncclCommSuspend, ncclCommResume, ncclCommDeregister);
accepts!(ncclCommWindowDeregister);

/// Entry points that write one number about a communicator.
macro_rules! tells {
    ($($name:ident: $value:expr;)*) => { $(
        /// Writes a number about a communicator.
        #[no_mangle]
        extern "C" fn $name(comm: Handle, out: Out<'_, c_int>) -> c_int {
            let value: fn(&Communicator) -> c_int = $value;
            status(communicator(comm).and_then(|comm| put(out, value(&comm))))
        }
    )* };
}
tells! {
    ncclCommCount: |comm| comm.ranks as c_int;
    ncclCommUserRank: |comm| comm.rank as c_int;
    ncclCommCuDevice: |comm| comm.device;
    ncclCommGetAsyncError: |_| SUCCESS;
}

/// Writes 0: a virtual communicator holds no device memory.
#[no_mangle]
extern "C" fn ncclCommMemStats(comm: Handle, _which: c_int, out: Out<'_, u64>) -> c_int {
    status(communicator(comm).and_then(|_| put(out, 0)))
}

/// The text of a result.
#[no_mangle]
extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        SUCCESS => c"no error",
        UNHANDLED_CUDA_ERROR => c"the virtual GPU has no memory left",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        _ => c"unknown result of NCCL",
    };
    text.as_ptr()
}

/// The last error in words: none.
#[no_mangle]
extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    c"".as_ptr()
}

/// Allocates device memory.
#[no_mangle]
extern "C" fn ncclMemAlloc(out: Out<'_, Handle>, bytes: usize) -> c_int {
    status(memory::allocate(bytes).map_err(|_| UNHANDLED_CUDA_ERROR).and_then(|at| put(out, at)))
}

/// Releases memory of `ncclMemAlloc`.
#[no_mangle]
extern "C" fn ncclMemFree(at: Handle) -> c_int {
    status(memory::release(at).map_err(|_| INVALID_ARGUMENT))
}

/// Registers a buffer; its handle is its address.
#[no_mangle]
extern "C" fn ncclCommRegister(comm: Handle, buffer: Handle, _bytes: usize, out: Out<'_, Handle>) -> c_int {
    status(communicator(comm).and_then(|_| put(out, buffer)))
}

/// Registers a window; its handle is the address of its buffer.
#[no_mangle]
extern "C" fn ncclCommWindowRegister(
    comm: Handle,
    buffer: Handle,
    _bytes: usize,
    out: Out<'_, Handle>,
    _flags: c_int,
) -> c_int {
    status(communicator(comm).and_then(|_| put(out, buffer)))
}

/// Writes the buffer of a window.
#[no_mangle]
extern "C" fn ncclWinGetUserPtr(comm: Handle, window: Handle, out: Out<'_, Handle>) -> c_int {
    status(communicator(comm).and_then(|_| put(out, window)))
}
