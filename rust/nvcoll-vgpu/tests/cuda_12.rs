//! Under CUDA 12 some names have fewer arguments: what stands in the registers of the others is not touched.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use nvcoll_vgpu::{gpu, Handle};

extern "C" {
    fn cudaRuntimeGetVersion(version: *mut i32) -> i32;
    fn cudaStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: i32) -> i32;
    fn cudaStreamBeginCapture(stream: Handle, mode: i32) -> i32;
    fn cudaStreamGetCaptureInfo(
        stream: Handle,
        status: *mut i32,
        id: *mut u64,
        other: usize,
        other: usize,
        other: usize,
        other: usize,
    ) -> i32;
    fn cudaStreamGetCaptureInfo_v2(
        stream: Handle,
        status: *mut i32,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut usize,
        count: *mut usize,
    ) -> i32;
    fn cudaGraphNodeGetDependencies(node: Handle, nodes: usize, count: *mut usize, other: usize) -> i32;
}

/// An address that nobody may write.
const OTHER: usize = 8;

#[test]
fn arguments_that_cuda_12_does_not_pass_are_not_used() {
    std::env::set_var("NVCOLL_VGPU", "cuda=12");
    assert_eq!(gpu::gpu().cuda, 12);
    let (mut version, mut stream, mut status, mut id, mut graph) = (0, 0, 9, 9, 9);
    let (mut dependencies, mut count) = (9, 9);
    // SAFETY: the places are valid, and OTHER stands where CUDA 12 passes nothing.
    unsafe {
        assert_eq!((cudaRuntimeGetVersion(&mut version), version), (0, 12_090));
        assert_eq!(cudaStreamCreateWithPriority(&mut stream, 1, 0), 0);
        assert_eq!(cudaStreamGetCaptureInfo(stream, &mut status, &mut id, OTHER, OTHER, OTHER, OTHER), 0);
        assert_eq!((status, id), (0, 0));
        assert_eq!(cudaStreamBeginCapture(stream, 0), 0);
        assert_eq!(cudaStreamGetCaptureInfo(stream, &mut status, &mut id, OTHER, OTHER, OTHER, OTHER), 0);
        assert_eq!((status, id), (1, 1));
        let asked =
            cudaStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut dependencies, &mut count);
        assert_eq!((asked, dependencies, count), (0, 0, 0));
        assert!(graph > 9);
        count = 9;
        assert_eq!((cudaGraphNodeGetDependencies(0, 0, &mut count, OTHER), count), (0, 0));
    }
}
