//! Calls and buffers of tests that drive the engine from outside.
#![allow(dead_code, reason = "every test file takes what it needs")]

use nvcoll_core::collective::ALL_REDUCE;
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::{Aliasing, Path};
use nvcoll_engine::call::Call;
use nvcoll_engine::{Buffers, Deadline};

/// An all_reduce of 32-bit integers in place.
pub(crate) fn call(algorithm: &str, count: usize, path: Path) -> Call {
    let (algorithm, counts, aliasing) = (algorithm.into(), Counts::Even(count), Aliasing::InPlace);
    Call { algorithm, counts, path, aliasing, dtype: DType::I32, ..Call::without_data(&ALL_REDUCE) }
}

/// The buffers of a rank in place.
pub(crate) fn in_place<T>(data: &mut [T]) -> Buffers {
    let start: *mut u8 = data.as_mut_ptr().cast();
    Buffers::new(start, start, 1.0)
}

/// 60 seconds: a watchdog, not a bar.
pub(crate) fn watchdog() -> Deadline {
    Deadline::after(Some(60.0))
}
