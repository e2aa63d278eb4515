//! Collectives of NCCL, sends, receives and group calls: each call is a record, small ones leave their result.
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::data::{self, Message, Place};
use super::numbers::Dtype;
use super::{communicator, ops, status, Answer, Communicator, INVALID_ARGUMENT, INVALID_USAGE, SUCCESS};
use crate::handles::named;
use crate::log::{self, Kind};
use crate::Handle;

/// The number of the last group call; it counts from 1.
static GROUP_IDS: AtomicU64 = AtomicU64::new(0);

/// Group calls of this thread: how deep, which, and its sends and receives so far.
#[derive(Default)]
struct Group {
    depth: u32,
    id: u64,
    messages: Vec<Message>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Opens a group call of this thread.
#[no_mangle]
pub(super) extern "C" fn ncclGroupStart() -> c_int {
    let opened = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        if group.depth == 0 {
            // Relaxed: only uniqueness counts.
            group.id = GROUP_IDS.fetch_add(1, Ordering::Relaxed) + 1;
        }
        group.depth += 1;
    });
    status(opened.map_err(|_| INVALID_USAGE))
}

/// Closes a group call of this thread; the outermost settles its sends and receives.
#[no_mangle]
pub(super) extern "C" fn ncclGroupEnd() -> c_int {
    let closed = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        group.depth = group.depth.checked_sub(1)?;
        Some(if group.depth == 0 { std::mem::take(&mut group.messages) } else { Vec::new() })
    });
    match closed {
        Ok(Some(messages)) => {
            data::settle(&messages);
            SUCCESS
        }
        _ => INVALID_USAGE,
    }
}

/// Closes a group call, as `ncclGroupEnd`; its estimate of the time is not written.
#[no_mangle]
pub(super) extern "C" fn ncclGroupSimulateEnd(_info: Handle) -> c_int {
    ncclGroupEnd()
}

/// One call of a collective, a send or a receive.
struct Call {
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

impl Call {
    /// Logs the call, and returns what its effect on memory needs.
    fn log(&self) -> Result<(Arc<Communicator>, Place), c_int> {
        let comm = communicator(self.comm)?;
        let dtype = Dtype::of_nccl(self.dtype).ok_or(INVALID_ARGUMENT)?;
        let bytes = self.count.checked_mul(dtype.size()).ok_or(INVALID_ARGUMENT)?;
        let group = GROUP.try_with(|group| {
            let group = group.borrow();
            if group.depth > 0 {
                group.id
            } else {
                0
            }
        });
        let args =
            [self.count as u64, self.dtype as u64, comm.id, self.with as u32 as u64, group.unwrap_or(0), bytes as u64];
        log::push(Kind::Collective, self.stream, self.name, args);
        let place = Place { send: self.send, receive: self.receive, bytes, dtype };
        Ok((comm, place))
    }

    /// The rank in `with`, or an error.
    fn rank(&self) -> Result<u32, c_int> {
        let comm = communicator(self.comm)?;
        match u32::try_from(self.with) {
            Ok(rank) if rank < comm.ranks => Ok(rank),
            _ => Err(INVALID_ARGUMENT),
        }
    }
}

/// One entry point: its arguments in NCCL's order, its name in the log, its effect on memory.
macro_rules! collective {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $text:literal,
     $send:expr, $receive:expr, $count:expr, $dtype:expr, $with:expr, $effect:expr) => {
        $(#[$doc])*
        #[no_mangle]
        pub(super) extern "C" fn $name($($arg: $type,)* comm: Handle, stream: Handle) -> c_int {
            let call = Call {
                name: named!($text), send: $send, receive: $receive, count: $count, dtype: $dtype,
                with: $with, comm, stream,
            };
            let effect: fn(&Call) -> Answer = $effect;
            status(effect(&call))
        }
    };
}

collective! {
    /// Reduces over all ranks, on all ranks.
    ncclAllReduce(send: Handle, receive: Handle, count: usize, dtype: c_int, op: c_int)
        = "all_reduce", send, receive, count, dtype, op, |call| {
        let fold = ops::fold(call.with).ok_or(INVALID_ARGUMENT)?;
        let (comm, place) = call.log()?;
        data::reduce(&place, 0, fold, comm.ranks);
        Ok(())
    }
}
collective! {
    /// Reduces over all ranks; each rank keeps its part.
    ncclReduceScatter(send: Handle, receive: Handle, count: usize, dtype: c_int, op: c_int)
        = "reduce_scatter", send, receive, count, dtype, op, |call| {
        let fold = ops::fold(call.with).ok_or(INVALID_ARGUMENT)?;
        let (comm, place) = call.log()?;
        data::reduce(&place, comm.rank, fold, comm.ranks);
        Ok(())
    }
}
collective! {
    /// Gathers the parts of all ranks on all ranks.
    ncclAllGather(send: Handle, receive: Handle, count: usize, dtype: c_int)
        = "all_gather", send, receive, count, dtype, 0, |call| {
        let (comm, place) = call.log()?;
        data::repeat(&place, comm.ranks);
        Ok(())
    }
}
collective! {
    /// Sends each rank its part, and receives one from each.
    ncclAlltoAll(send: Handle, receive: Handle, count: usize, dtype: c_int)
        = "all_to_all", send, receive, count, dtype, 0, |call| {
        let (comm, place) = call.log()?;
        data::repeat(&place.part(comm.rank), comm.ranks);
        Ok(())
    }
}
collective! {
    /// Copies from the root to all ranks.
    ncclBroadcast(send: Handle, receive: Handle, count: usize, dtype: c_int, root: c_int)
        = "broadcast", send, receive, count, dtype, root, |call| {
        call.rank()?;
        data::repeat(&call.log()?.1, 1);
        Ok(())
    }
}
collective! {
    /// Copies from the root to all ranks, in place.
    ncclBcast(buffer: Handle, count: usize, dtype: c_int, root: c_int)
        = "broadcast", buffer, buffer, count, dtype, root, |call| {
        call.rank()?;
        call.log().map(|_| ())
    }
}
collective! {
    /// Gathers the parts of all ranks on the root.
    ncclGather(send: Handle, receive: Handle, count: usize, dtype: c_int, root: c_int)
        = "gather", send, receive, count, dtype, root, |call| {
        let root = call.rank()?;
        let (comm, place) = call.log()?;
        if root == comm.rank {
            data::repeat(&place, comm.ranks);
        }
        Ok(())
    }
}
collective! {
    /// Sends each rank its part from the root.
    ncclScatter(send: Handle, receive: Handle, count: usize, dtype: c_int, root: c_int)
        = "scatter", send, receive, count, dtype, root, |call| {
        let root = call.rank()?;
        let (comm, place) = call.log()?;
        if root == comm.rank {
            data::repeat(&place.part(comm.rank), 1);
        }
        Ok(())
    }
}
collective! {
    /// Sends to a peer.
    ncclSend(send: Handle, count: usize, dtype: c_int, peer: c_int)
        = "send", send, 0, count, dtype, peer, |call| message(call, true)
}
collective! {
    /// Receives from a peer.
    ncclRecv(receive: Handle, count: usize, dtype: c_int, peer: c_int)
        = "recv", 0, receive, count, dtype, peer, |call| message(call, false)
}

/// Reduces over all ranks, on the root.
#[no_mangle]
pub(super) extern "C" fn ncclReduce(
    send: Handle,
    receive: Handle,
    count: usize,
    dtype: c_int,
    op: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let name = named!("reduce");
    let call = Call { name, send, receive, count, dtype, with: root, comm, stream };
    let run = || {
        let (fold, root) = (ops::fold(op).ok_or(INVALID_ARGUMENT)?, call.rank()?);
        let (comm, place) = call.log()?;
        if root == comm.rank {
            data::reduce(&place, 0, fold, comm.ranks);
        }
        Ok(())
    };
    status(run())
}

/// Logs a send or receive, and keeps it until its group call ends.
fn message(call: &Call, sends: bool) -> Answer {
    let peer = call.rank()?;
    let (comm, place) = call.log()?;
    let kept = Message { comm: comm.id, rank: comm.rank, peer, sends, place };
    let _ = GROUP.try_with(|group| {
        let mut group = group.borrow_mut();
        if group.depth > 0 {
            group.messages.push(kept);
        }
    });
    Ok(())
}
