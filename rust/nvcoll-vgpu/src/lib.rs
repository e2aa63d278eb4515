//! A virtual GPU: one shared library that a dry run preloads in its child process.
//!
//! A build of torch for CUDA reaches the GPU through shared libraries: the CUDA runtime and driver, cuBLAS, cuDNN, NCCL,
//! CUPTI, NVML. This library has their names and functions, so torch runs unmodified on GPUs that do not exist.
//! It runs no kernel: each call of a program to the GPU is a record in a log, which the dry run reads.
//!
//! ```text
//! torch ──cudaMalloc──────▶ memory     an address without pages, counted against the capacity of the GPU
//!       ──cudaLaunchKernel▶ launches ┐
//!       ──cublasGemmEx────▶ blas     ├▶ log   one record of 64 bytes: kind, stream, name, operator, arguments
//!       ──ncclAllReduce───▶ nccl     ┘
//!       ──cudaEventQuery──▶ streams    complete only after the host waited for something that was issued later
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`mod@blas`] | matrix products of cuBLAS and cuBLASLt |
//! | `cupti`, `times`, `clock` | predicted times in the profiler, events and the clock of a second run |
//! | [`mod@dnn`] | convolutions, recurrent layers and graphs of cuDNN |
//! | `generated` | every other function that torch needs: returns success, and its name is noted |
//! | [`log`] | the records, and the names of kernels |
//! | [`gpu`] | the GPU that is imitated, its limits by compute capability |
//! | [`images`] | which code of a fat binary a GPU runs |
//! | [`memory`] | device memory and page-locked memory |
//! | [`streams`], [`graphs`], [`launches`] | streams and events, CUDA graphs, kernels |
//! | [`attributes`], [`properties`] | the runtime's description of the GPU |
//! | `runtime`, `driver` | the entry points of both, in tables (`entry_points`) |
//! | [`mod@nccl`] | communicators and collectives |
//! | `nvml` | the GPUs as a monitor sees them: idle |
//! | `nvrtc` | programs that are compiled while torch runs |
//! | `sparse` | cuSPARSE, cuSOLVER and cuFFT: sizes of workspaces, launches |
//!
//! Rules:
//!
//! 1. An event is complete when the host waited for something that was issued later, or when the host only polls.
//! 2. An allocation beyond the capacity of the GPU, less its context, fails.
//! 3. Small data is real: copies of up to 4 MiB are done. Larger data reads as zero, never as old contents.
//! 4. Handles are numbers in tables, never addresses: an unknown or destroyed handle is an error, not a crash.
//!
//! The entry points are those of public interfaces, in declarations of this crate; it contains and loads nothing of
//! NVIDIA's. An entry point declares an out-parameter as [`Out`]: null, or a valid place for one value. That is the contract
//! of the C function, and the witness of each access through it.
//!
//! Limits: Linux on x86-64. A process that forks while another thread is inside this library must not use it in the child.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod attributes;
pub mod blas;
mod clock;
mod cupti;
pub mod dnn;
mod driver;
mod entry_points;
pub mod errors;
pub mod exports;
mod generated;
pub mod gpu;
pub mod graphs;
mod handles;
pub mod images;
pub mod launches;
pub mod log;
pub mod memory;
pub mod nccl;
mod nvml;
mod nvrtc;
pub mod properties;
mod runtime;
mod sparse;
pub mod streams;
#[cfg(test)]
mod testing;
mod times;

use std::mem::MaybeUninit;

pub use errors::{Failure, Status};

/// An out-parameter of a C function: null, or a place for one value.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// What an entry point does: nothing to say, or an error, for which each interface has its number.
pub type Answer = Result<(), Failure>;

/// A handle (stream, event, graph, function): a number that the caller sees as a pointer and never follows.
pub type Handle = usize;

/// Makes a value and writes it to an out-parameter; for null nothing is made.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null, and why the value cannot be made.
pub fn make<T>(out: Out<'_, T>, value: impl FnOnce() -> Result<T, Failure>) -> Answer {
    out.ok_or(Failure::INVALID_VALUE)?.write(value()?);
    Ok(())
}

/// Writes `value` to an out-parameter.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for null.
pub fn set<T>(out: Out<'_, T>, value: T) -> Answer {
    out.ok_or(Failure::INVALID_VALUE)?.write(value);
    Ok(())
}
