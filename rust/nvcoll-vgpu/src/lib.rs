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
//! | `lock`, [`errors`], `arguments`, `real_time`, `unanswered` | what every entry point needs: locks, errors of CUDA, addresses that C passes, the time, symbols without an answer |
//! | [`gpu`], [`images`] | the GPU that is imitated, its limits; which code of a fat binary it runs |
//! | `handles` | tables of objects that a program names by numbers |
//! | [`records`], [`captures`], [`log`] | the records, the records of CUDA graphs, and all records in order with the names of kernels |
//! | `entry_points` | tables of entry points |
//! | [`memory`] | device memory and page-locked memory |
//! | `times` | predicted times of records in a second run |
//! | [`streams`], [`graphs`], [`launches`] | streams and events, CUDA graphs, kernels |
//! | `clock`, `cupti` | predicted times in the clock and the profiler of a second run |
//! | [`attributes`], [`properties`] | the runtime's description of the GPU |
//! | `runtime`, `driver` | the entry points of both |
//! | `sparse` | cuSPARSE, cuSOLVER and cuFFT: sizes of workspaces, launches |
//! | `blas`, `dnn` | matrix products of cuBLAS and cuBLASLt; convolutions, recurrent layers and graphs of cuDNN |
//! | `nccl` | communicators and collectives |
//! | `nvml`, `nvrtc` | the GPUs as a monitor sees them: idle; programs that are compiled while torch runs |
//! | [`exports`], `generated` | functions for Python; every other function that torch needs: returns success, and its name is noted |
//!
//! Rules:
//!
//! 1. An event is complete when the host waited for something that was issued later, or when the host only polls.
//! 2. An allocation beyond the capacity of the GPU, less its context, fails.
//! 3. Small data is real: copies of up to 4 MiB are done. Larger data reads as zero, never as old contents.
//! 4. Handles are numbers in tables, never addresses: an unknown or destroyed handle is an error, not a crash.
//!
//! A context and NCCL take the memory that predictions assume for them ([`memory_constants`], a file of `nvcoll-step`).
//!
//! The entry points are public interfaces, in declarations of this crate; it contains and loads nothing of
//! NVIDIA's. An entry point declares an out-parameter as [`Out`]: null, or a valid place for one value; the address of several values is a type of `arguments`. That is the contract
//! of the C function, and the witness of each access through it.
//!
//! Limits: Linux on x86-64. A process that forks while another thread is inside this library must not use it in the child.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod arguments;
pub mod attributes;
pub mod blas;
pub mod captures;
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
mod lock;
pub mod log;
pub mod memory;
#[path = "../../nvcoll-step/src/memory_constants.rs"]
pub mod memory_constants;
pub mod nccl;
mod nvml;
mod nvrtc;
pub mod properties;
mod real_time;
pub mod records;
mod runtime;
mod sparse;
pub mod streams;
#[cfg(test)]
mod testing;
mod times;
mod unanswered;

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
