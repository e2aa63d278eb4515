//! The GIL during a call: it is released, and the call checks for Ctrl-C.

mod signals;

use pyo3::prelude::*;

use crate::error::of_fabric;

pub(crate) use signals::{interrupt, interruptible};

/// Does work without the GIL, with checks for Ctrl-C: see [`interruptible`].
#[inline]
pub(crate) fn interruptibly<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> T + Send,
) -> PyResult<T> {
    py.detach(|| interruptible(|is_interrupted| work(is_interrupted)))
}

/// Does the fabric's work without the GIL, with checks for Ctrl-C.
pub(crate) fn watched_in_fabric<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut (dyn FnMut() -> bool + Send)) -> nvcoll_fabric::Result<T> + Send,
) -> PyResult<T> {
    interruptibly(py, work)?.map_err(|error| of_fabric(py, &error))
}
