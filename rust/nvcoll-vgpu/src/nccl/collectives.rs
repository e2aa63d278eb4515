//! Collectives of NCCL, sends, receives and group calls: each call is a record, small ones leave their result.
//!
//! The calls of a group call start when it ends: what their streams are given to wait for meanwhile comes before all of them.
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use super::data::{self, CallBuffers, WaitingSend};
use super::numbers::NcclDtype;
use super::{answer, ops, NcclCommunicator, COMMUNICATORS};
use crate::entry_points::{functions, named};
use crate::log::{self, LogRecord, RecordKind};
use crate::{streams, Answer, Failure, Handle};

/// The number of the last group call; it counts from 1.
static GROUP_IDS: AtomicU64 = AtomicU64::new(0);

/// Group calls of this thread: how deep, which, and its calls, sends and receives so far.
#[derive(Default)]
struct NcclGroup {
    depth: u32,
    id: u64,
    calls: Vec<LogRecord>,
    messages: Vec<WaitingSend>,
    /// Events that its calls record, with their streams.
    events: Vec<(Handle, Handle)>,
}

thread_local! {
    static GROUP: RefCell<NcclGroup> = RefCell::default();
}

/// What `with` makes of the group calls of this thread; an error where a thread ends.
fn group<T>(with: impl FnOnce(&mut NcclGroup) -> T) -> Result<T, Failure> {
    GROUP.try_with(|group| with(&mut group.borrow_mut())).map_err(|_| Failure::ILLEGAL_STATE)
}

/// Opens a group call.
fn open(group: &mut NcclGroup) {
    if group.depth == 0 {
        group.id = GROUP_IDS.fetch_add(1, Ordering::Relaxed) + 1; // Relaxed: only uniqueness counts
    }
    group.depth += 1;
}

/// Closes a group call; the outermost logs its calls, and settles its sends and receives.
fn close(group: &mut NcclGroup) -> Answer {
    group.depth = group.depth.checked_sub(1).ok_or(Failure::ILLEGAL_STATE)?;
    if group.depth == 0 {
        for call in group.calls.drain(..) {
            log::submit(call);
        }
        data::settle(&std::mem::take(&mut group.messages));
        for (event, stream) in group.events.drain(..) {
            streams::record(event, stream)?;
        }
    }
    Ok(())
}

/// Records an event behind the calls so far, in a group call when that ends.
pub(super) fn record_behind(event: Handle, stream: Handle) -> Answer {
    let is_later = group(|group| {
        let is_open = group.depth > 0;
        group.events.extend(is_open.then_some((event, stream)));
        is_open
    })?;
    if is_later {
        return Ok(());
    }
    streams::record(event, stream)
}

/// One call of a collective, a send or a receive.
struct NcclCall {
    name: u32,
    send: Handle,
    receive: Handle,
    count: usize,
    dtype: c_int,
    /// Reduce op, root or peer.
    with: c_int,
    comm: Handle,
    stream: Handle,
}

impl NcclCall {
    /// Logs the call, if it is of a group call when that ends, and returns what its effect on memory needs.
    fn log(&self) -> Result<(NcclCommunicator, CallBuffers), Failure> {
        let comm = COMMUNICATORS.find(self.comm)?;
        let dtype = NcclDtype::of_nccl(self.dtype).ok_or(Failure::INVALID_VALUE)?;
        let bytes = self.count.checked_mul(dtype.size()).ok_or(Failure::INVALID_VALUE)?;
        group(|group| {
            let together = group.id * u64::from(group.depth > 0);
            let args = [self.count as u64, self.dtype as u64, comm.id, self.with as u32 as u64, together, bytes as u64];
            let record = log::made(RecordKind::Collective, self.stream, self.name, args);
            if together > 0 {
                group.calls.push(record);
            } else {
                log::submit(record);
            }
        })?;
        Ok((comm, CallBuffers { send: self.send, receive: self.receive, bytes, dtype }))
    }

    /// The rank in `with`.
    fn rank(&self) -> Result<u32, Failure> {
        let ranks = COMMUNICATORS.find(self.comm)?.ranks;
        u32::try_from(self.with).ok().filter(|rank| *rank < ranks).ok_or(Failure::INVALID_VALUE)
    }

    /// Logs a reduction, and writes a part of the result; `part` is none where this rank gets nothing.
    fn reduce(&self, op: c_int, part: impl FnOnce(&NcclCommunicator) -> Option<u32>) -> Answer {
        let fold = ops::fold(op).ok_or(Failure::INVALID_VALUE)?;
        let (comm, place) = self.log()?;
        if let Some(part) = part(&comm) {
            data::reduce(&place, part, fold, comm.ranks);
        }
        Ok(())
    }

    /// Logs a call whose root is `with`; the root's place and communicator are for `effect`.
    fn on_root(&self, effect: impl FnOnce(CallBuffers, &NcclCommunicator)) -> Answer {
        let root = self.rank()?;
        let (comm, place) = self.log()?;
        if root == comm.rank {
            effect(place, &comm);
        }
        Ok(())
    }

    /// Logs a send or receive, and keeps it until its group call ends.
    fn message(&self, sends: bool) -> Answer {
        let peer = self.rank()?;
        let (comm, place) = self.log()?;
        let _ = group(|group| {
            if group.depth > 0 {
                group.messages.push(WaitingSend { comm: comm.id, rank: comm.rank, peer, sends, place });
            }
        });
        Ok(())
    }
}

/// Entry points: their addresses and numbers, their name in the log, where they send from and receive at, op or root or peer,
/// and what they do with the call.
macro_rules! collectives {
    ($($name:ident($($at:ident)*; $($number:ident)*) $text:literal $send:expr, $receive:expr, $with:expr => $effect:expr;)*) => {
        functions! { answer: $(
            $name($($at: Handle,)* count: usize, dtype: c_int, $($number: c_int,)* comm: Handle, stream: Handle) => {
                let name = named!($text);
                let call = NcclCall { name, send: $send, receive: $receive, count, dtype, with: $with, comm, stream };
                run(&call, $effect)
            };
        )* }
    };
}

fn run(call: &NcclCall, effect: impl FnOnce(&NcclCall) -> Answer) -> Answer {
    effect(call)
}

collectives! {
    ncclAllReduce(send receive; op) "all_reduce" send, receive, op => |call| call.reduce(op, |_| Some(0));
    ncclReduceScatter(send receive; op) "reduce_scatter" send, receive, op => |call| call.reduce(op, |comm| Some(comm.rank));
    ncclReduce(send receive; op root) "reduce" send, receive, root => |call| {
        let root = call.rank()?;
        call.reduce(op, |comm| (root == comm.rank).then_some(0))
    };
    ncclAllGather(send receive;) "all_gather" send, receive, 0 =>
        |call| call.log().map(|(comm, place)| data::repeat(&place, comm.ranks));
    // Each rank sends every other its part.
    ncclAlltoAll(send receive;) "all_to_all" send, receive, 0 =>
        |call| call.log().map(|(comm, place)| data::repeat(&place.part(comm.rank), comm.ranks));
    ncclBroadcast(send receive; root) "broadcast" send, receive, root =>
        |call| call.rank().and_then(|_| call.log()).map(|(_, place)| data::repeat(&place, 1));
    ncclBcast(buffer; root) "broadcast" buffer, buffer, root => |call| call.on_root(|_, _| ());
    ncclGather(send receive; root) "gather" send, receive, root =>
        |call| call.on_root(|place, comm| data::repeat(&place, comm.ranks));
    ncclScatter(send receive; root) "scatter" send, receive, root =>
        |call| call.on_root(|place, comm| data::repeat(&place.part(comm.rank), 1));
    ncclSend(send; peer) "send" send, 0, peer => |call| call.message(true);
    ncclRecv(receive; peer) "recv" 0, receive, peer => |call| call.message(false);
}
functions! { answer:
    ncclGroupStart() => group(open);
    // An estimate of the time is not written.
    ncclGroupEnd ncclGroupSimulateEnd() => group(close)?;
}
