//! Many threads call at once: nothing is lost, counts are exact, records are whole.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod interface;

use interface::*;
use nvcoll_vgpu::log::{self, RecordKind};
use nvcoll_vgpu::memory;

const THREADS: usize = 8;
const ROUNDS: usize = 300;

/// What a thread does: memory of its own size, its own stream and events, a kernel of its own number of threads.
fn work(number: usize, function: usize) {
    let bytes = (number + 1) << 12;
    let (mut stream, mut event) = (0, 0);
    // SAFETY: every place is valid, and copies stay in the buffers.
    unsafe {
        assert_eq!(cudaSetDevice(number as i32 % 2), OK);
        assert_eq!(cudaStreamCreateWithPriority(&mut stream, 1, 0), OK);
        assert_eq!(cudaEventCreateWithFlags(&mut event, 0), OK);
        for round in 0..ROUNDS {
            log::set_op((number * ROUNDS + round) as u32);
            let mut address = 0;
            assert_eq!(cudaMalloc(&mut address, bytes), OK);
            let source = vec![round as u8; bytes];
            let mut back = vec![0u8; bytes];
            assert_eq!(cudaMemcpyAsync(address, source.as_ptr() as usize, bytes, 1, stream), OK);
            assert_eq!(cudaLaunchKernel(function, line(1), line(number as u32 + 1), 0, 0, stream), OK);
            assert_eq!(cudaEventRecord(event, stream), OK);
            assert_eq!(cudaMemcpyAsync(back.as_mut_ptr() as usize, address, bytes, 2, stream), OK);
            assert_eq!(cudaEventSynchronize(event), OK);
            assert_eq!(cudaEventQuery(event), OK);
            assert!(source == back, "another thread's bytes");
            assert_eq!(cudaFree(address), OK);
        }
        assert_eq!((cudaEventDestroy(event), cudaStreamDestroy(stream)), (OK, OK));
    }
}

#[test]
fn threads_share_the_library() {
    static FUNCTION: u8 = 0;
    let function = &raw const FUNCTION as usize;
    // SAFETY: the name is a C string.
    unsafe { __cudaRegisterFunction(__cudaRegisterFatBinary(0), function, 0, c"kernel".as_ptr()) };
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || work(number, function));
        }
    });
    assert_eq!((memory::used(0), memory::used(1)), (0, 0));
    let records: Vec<_> = (0..log::count()).filter_map(log::record).collect();
    assert_eq!(records.len(), THREADS * (1 + 7 * ROUNDS), "nothing is lost");
    for record in records.iter().filter(|record| record.kind == RecordKind::Launch as u16) {
        let number = record.op as usize / ROUNDS;
        assert_eq!(record.args[1] as usize, number + 1, "operator and arguments are of one thread");
        assert_eq!(usize::from(record.device), number % 2);
    }
    let sum = |kind: RecordKind| -> u64 {
        records.iter().filter(|record| record.kind == kind as u16).map(|record| record.args[0]).sum()
    };
    assert_eq!(sum(RecordKind::Malloc), sum(RecordKind::Free));
}
