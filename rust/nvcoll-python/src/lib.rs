//! The Python binding. It reads arguments, releases the GIL, lets Ctrl-C in and turns errors into exceptions. The docstrings of its
//! classes and functions are here. `python/nvcoll` adds types and the command line.
//!
//! | room, from the bottom | what it holds |
//! |---|---|
//! | `error`, `gil`, `integers`, `interpreter`, `sizes`, `units`, `counts`, `rows` | what every class needs: exceptions, the GIL during a call, numbers, rows of tables |
//! | `arrays` | objects as operands of calls: all unsafe code but one call in `interpreter` |
//! | `schedules` | the builder, schedules and their proofs, registries |
//! | `machines` | machines, predictions, NCCL's choice, simulation |
//! | `calls` | who calls, with what arguments, and works in flight |

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arrays;
mod calls;
mod counts;
mod error;
mod gil;
mod integers;
#[allow(unsafe_code)]
mod interpreter;
mod machines;
mod rows;
mod schedules;
mod sizes;
mod units;

use pyo3::prelude::*;

#[pymodule]
fn _nvcoll(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::require_main(module.py())?;
    error::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    rows::register(module)?;
    module.add_function(wrap_pyfunction!(sizes::parse_size, module)?)?;
    schedules::register(module)?;
    machines::register(module)?;
    calls::register(module)?;
    gil::register(module)?;
    // The package, not the extension, says which names are public.
    module.delattr("__all__")
}
