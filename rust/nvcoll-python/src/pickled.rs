//! Classes of plain fields for `pickle` and `copy`, and the refusal of classes that cannot be copied.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Takes a field of an unpickled object.
///
/// # Errors
/// The field is missing or of another type, as after a change of nvcoll.
pub(crate) fn field<'py, T>(fields: &Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    fields.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?.extract()
}

/// Has a class be pickled by its fields, which Python can read.
macro_rules! pickled {
    ($class:ident: $($field:ident),+) => {
        #[pymethods]
        impl $class {
            /// Returns what `pickle` and `copy` need: the fields.
            #[pyo3(signature = () -> "tuple[Any, ...]")]
            fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, pyo3::types::PyDict>,))> {
                let fields = pyo3::types::PyDict::new(slf.py());
                $(fields.set_item(stringify!($field), slf.getattr(stringify!($field))?)?;)+
                Ok((slf.get_type().getattr("_of_fields")?, (fields,)))
            }

            /// Makes an object of its fields, for `pickle`. Not public.
            #[staticmethod]
            fn _of_fields(fields: &Bound<'_, pyo3::types::PyDict>) -> PyResult<Self> {
                Ok(Self { $($field: $crate::pickled::field(fields, stringify!($field))?),+ })
            }
        }
    };
}

pub(crate) use pickled;
