use proptest::prelude::*;

use super::collectives::*;
use super::configured::*;
use super::ops::*;
use super::*;
use crate::testing::{records_of, value_of};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;

fn comm(ranks: c_int, rank: c_int) -> Handle {
    value_of(0, |out| ncclCommInitRank(out, ranks, UniqueId([65; 128]), rank))
}

/// Device memory that holds `values`.
fn device<T: Copy>(values: &[T]) -> usize {
    let at = memory::allocate(size_of_val(values)).expect("memory");
    // SAFETY: the allocation has room for the values, and nobody else knows it.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), at as *mut T, values.len()) };
    at
}

fn read<T: Copy>(at: usize, count: usize) -> Vec<T> {
    // SAFETY: callers pass addresses that `device` gave, and counts that fit.
    unsafe { std::slice::from_raw_parts(at as *const T, count) }.to_vec()
}

#[test]
fn a_communicator_knows_its_ranks_and_has_no_errors() {
    let comm = comm(8, 3);
    assert_eq!(value_of(0, |out| ncclCommCount(comm, out)), 8);
    assert_eq!(value_of(0, |out| ncclCommUserRank(comm, out)), 3);
    assert_eq!(value_of(9, |out| ncclCommGetAsyncError(comm, out)), SUCCESS);
    assert_eq!(ncclCommDestroy(comm), SUCCESS);
    assert_eq!(ncclCommDestroy(comm), INVALID_ARGUMENT);
}

#[test]
fn teams_are_the_ranks_of_a_host_and_those_across_hosts() {
    let comm = comm(32, 19); // hosts of 8
    let (host, across) = (ncclTeamLsa(comm), ncclTeamRail(comm));
    assert_eq!((host.ranks, host.rank, across.ranks, across.rank), (8, 3, 4, 2));
    assert_eq!((ncclTeamRankToWorld(comm, host, 0), ncclTeamRankToWorld(comm, across, 0)), (16, 3));
    assert_eq!((ncclTeamLsa(0).ranks, ncclCommQueryProperties()), (0, INVALID_ARGUMENT));
}

#[test]
fn a_collective_is_logged_by_its_communicator() {
    let comm = comm(4, 1);
    let at = device(&[1f32; 6]);
    let records = records_of(|| {
        assert_eq!(ncclAllReduce(at, at, 6, 7, 0, comm, 0x10000 + 64 * 3), SUCCESS);
        ncclGroupStart();
        assert_eq!(ncclBroadcast(at, at, 6, 7, 2, comm, 0), SUCCESS);
        assert_eq!(ncclReduceScatter(at, at, 1, 7, 0, comm, 0), SUCCESS);
        ncclGroupEnd();
    });
    let id = COMMUNICATORS.find(comm).unwrap().id;
    let [reduce, broadcast, scatter] = records[..] else { panic!("{records:?}") };
    assert_eq!((reduce.stream, reduce.args), (3, [6, 7, id, 0, 0, 24]));
    assert_eq!(log::text(broadcast.name), Some(c"broadcast"));
    assert_eq!(broadcast.args[3], 2);
    assert!(broadcast.args[4] != 0 && broadcast.args[4] == scatter.args[4]);
}

#[test]
fn calls_of_a_group_start_when_it_ends() {
    let comm = comm(2, 0);
    let at = device(&[1f32; 6]);
    let records = records_of(|| {
        ncclGroupStart();
        assert_eq!(ncclSend(at, 6, 7, 1, comm, 0x10000), SUCCESS);
        ncclGroupStart();
        log::push(RecordKind::StreamWait, 0x10000, 0, [1]);
        assert_eq!(ncclRecv(at, 6, 7, 1, comm, 0x10000), SUCCESS);
        ncclGroupEnd();
        log::push(RecordKind::StreamWait, 0x10000, 0, [2]);
        ncclGroupEnd();
    });
    let found: Vec<u16> = records.iter().map(|record| record.kind).collect();
    let [wait, call] = [RecordKind::StreamWait as u16, RecordKind::Collective as u16];
    assert_eq!(found, [wait, wait, call, call]);
}

#[test]
fn small_collectives_act_as_if_all_ranks_held_the_same() {
    let comm = comm(4, 1);
    let (send, receive) = (device(&[1i64, 2, 3, 4]), device(&[0i64; 16]));
    ncclAllReduce(send, receive, 4, 4, 0, comm, 0);
    assert_eq!(read::<i64>(receive, 4), [4, 8, 12, 16]);
    ncclAllReduce(send, receive, 4, 4, 2, comm, 0);
    assert_eq!(read::<i64>(receive, 4), [1, 2, 3, 4]);
    ncclAllGather(send, receive, 2, 4, comm, 0);
    assert_eq!(read::<i64>(receive, 8), [1, 2, 1, 2, 1, 2, 1, 2]);
    ncclReduceScatter(send, receive, 1, 4, 0, comm, 0);
    assert_eq!(read::<i64>(receive, 1), [8], "rank 1 keeps the second element, four times");
    ncclAlltoAll(send, receive, 1, 4, comm, 0);
    assert_eq!(read::<i64>(receive, 4), [2; 4], "each peer sends what it has for rank 1");
    ncclReduce(send, receive, 4, 4, 0, 0, comm, 0);
    assert_eq!(read::<i64>(receive, 4), [2; 4], "rank 1 is not the root");
}

#[test]
fn a_receive_gets_what_the_peer_would_send() {
    let comm = comm(2, 0);
    let (to_self, to_peer, from_peer) = (device(&[7u8; 3]), device(&[9u8; 3]), device(&[0u8; 3]));
    ncclGroupStart();
    ncclRecv(from_peer, 3, 1, 1, comm, 0);
    ncclSend(to_peer, 3, 1, 1, comm, 0);
    ncclGroupEnd();
    assert_eq!(read::<u8>(from_peer, 3), [9; 3]);
    ncclGroupStart();
    ncclSend(to_self, 3, 1, 0, comm, 0);
    ncclSend(to_peer, 3, 1, 1, comm, 0);
    ncclRecv(from_peer, 3, 1, 1, comm, 0);
    ncclGroupEnd();
    assert_eq!(read::<u8>(from_peer, 3), [7; 3], "the peer holds the same, so it sends what it has for rank 0");
    assert_eq!(ncclGroupEnd(), INVALID_ARGUMENT);
}

#[test]
fn an_op_that_scales_first_reads_its_scalar_from_host_or_device() {
    let comm = comm(4, 0);
    let at = device(&[2f32]);
    let scalar = 0.25f32.to_le_bytes();
    let now = value_of(0, |out| ncclRedOpCreatePreMulSum(out, List::from(&scalar[..]), 7, 1, comm));
    ncclAllReduce(at, at, 1, 7, now, comm, 0);
    assert_eq!(read::<f32>(at, 1), [2.0]);
    let later = device(&[0.5f32]);
    let later = value_of(0, |out| ncclRedOpCreatePreMulSum(out, List::at(later), 7, 0, comm));
    ncclAllReduce(at, at, 1, 7, later, comm, 0);
    assert_eq!(read::<f32>(at, 1), [4.0]);
    assert_eq!(ncclRedOpDestroy(now), SUCCESS);
    assert_eq!(ncclAllReduce(at, at, 1, 7, now, comm, 0), INVALID_ARGUMENT);
}

#[test]
fn a_configured_collective_is_the_plain_one_and_records_the_event_of_its_launch() {
    let comm = comm(4, 1);
    let at = device(&[1f32; 6]);
    let event = crate::streams::create_event(0);
    let config = |size: usize| CollectiveConfig {
        size,
        magic: 0xcafe_beef,
        version: 23_206,
        extensions: 0,
        channels: [c_int::MIN; 4],
        algorithms: std::ptr::null(),
        is_forced: 1,
        policy: c_int::MIN,
        tag: 0,
        launched: event,
    };
    let of = |size: usize| {
        records_of(|| {
            let config = config(size);
            assert_eq!(
                ncclAllReduceConfig(at, at, 6, 7, 0, comm, 0, List::from(std::slice::from_ref(&config))),
                SUCCESS
            );
        })
    };
    let whole = size_of::<CollectiveConfig>();
    assert_eq!(of(whole).len(), 2, "the call and its event");
    assert_eq!(of(whole - 8).len(), 1, "the structure of 2.31 has no event");
    assert_eq!(ncclAllReduceConfig(at, at, 6, 7, 0, comm, 0, List::from(&[config(8)][..])), INVALID_ARGUMENT);
}

#[test]
fn communicators_of_several_ranks_take_memory_from_the_first_to_the_last() {
    log::set_device(7);
    let free = memory::free(7);
    let alone = comm(1, 0);
    assert_eq!(memory::free(7), free, "one rank needs no buffers");
    let (first, second) = (comm(8, 0), comm(2, 1));
    assert_eq!(memory::free(7), free - BYTES as u64);
    assert_eq!([ncclCommDestroy(first), ncclCommAbort(alone)], [SUCCESS; 2]);
    assert_eq!(memory::free(7), free - BYTES as u64);
    assert_eq!(ncclCommAbort(second), SUCCESS);
    assert_eq!(memory::free(7), free);
    let rest = memory::allocate(free as usize - BYTES / 2).expect("memory");
    let mut none = std::mem::MaybeUninit::new(0);
    assert_eq!(ncclCommInitRank(Some(&mut none), 2, UniqueId([65; 128]), 0), 1, "no room: an error of CUDA");
    memory::release(rest).expect("it is in use");
}

#[test]
fn a_split_has_the_ranks_of_the_hint() {
    let whole = comm(8, 5);
    set_split_hint(2, 1);
    let part = value_of(0, |out| ncclCommSplit(whole, 3, 5, out, List::at(0)));
    set_split_hint(0, 0);
    assert_eq!(value_of(0, |out| ncclCommCount(part, out)), 2);
    assert_eq!(value_of(0, |out| ncclCommUserRank(part, out)), 1);
    assert_eq!(value_of(1, |out| ncclCommSplit(whole, -1, 5, out, List::at(0))), 0, "no color, no communicator");
}

proptest! {
    #[test]
    fn any_arguments_give_a_result_and_touch_only_memory_that_is_held(
        send in any::<usize>(), receive in any::<usize>(), count in prop_oneof![0..99usize, any::<usize>()],
        dtype in -1..14, with in -2..9, known in any::<bool>(), other in any::<usize>(),
    ) {
        let comm = if known { comm(4, 1) } else { other };
        let held = device(&[0u64; 4]);
        for (send, receive) in [(send, receive), (held, receive), (send, held), (held + 16, held)] {
            let results = [
                ncclAllReduce(send, receive, count, dtype, with, comm, 0),
                ncclReduceScatter(send, receive, count, dtype, with, comm, 0),
                ncclAllGather(send, receive, count, dtype, comm, 0),
                ncclAlltoAll(send, receive, count, dtype, comm, 0),
                ncclBroadcast(send, receive, count, dtype, with, comm, 0),
                ncclReduce(send, receive, count, dtype, 0, with, comm, 0),
                ncclGather(send, receive, count, dtype, with, comm, 0),
                ncclSend(send, count, dtype, with, comm, 0),
                ncclRecv(receive, count, dtype, with, comm, 0),
            ];
            prop_assert!(results.iter().all(|result| [SUCCESS, INVALID_ARGUMENT].contains(result)));
            prop_assert!(known || results.iter().all(|result| *result == INVALID_ARGUMENT));
        }
        memory::release(held).unwrap();
    }
}
