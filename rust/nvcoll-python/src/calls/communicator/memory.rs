//! Arrays that every rank can reach.

use pyo3::intern;
use pyo3::prelude::*;

use super::Communicator;
use crate::arrays::empty_symmetric;

#[pymethods]
impl Communicator {
    /// Makes an uninitialized array that every rank can reach. Between processes, collectives on such arrays move each byte once,
    /// if all ranks pass them; other arrays are copied on the way. Between threads it is an ordinary array.
    ///
    /// The memory belongs to this rank. It is free again when the array, its slices and its DLPack consumers are gone.
    ///
    /// Args:
    ///     shape: the lengths of the axes, or one length.
    ///     dtype: the dtype, as numpy takes it. Default: float64.
    ///
    /// Returns:
    ///     A numpy array.
    ///
    /// Raises:
    ///     InvalidArgument: a length is negative or too large, or the dtype is of Python objects.
    ///     MemoryError: there is no memory that ranks can share.
    ///     OSError: this process may have no more descriptors.
    ///
    /// Example:
    ///     >>> comm = nvcoll.init()
    ///     >>> comm.all_reduce(comm.full(3, 2.0))
    ///     array([2., 2., 2.])
    ///     >>> nvcoll.finalize()
    #[pyo3(signature = (shape: "int | Sequence[int]", dtype=None) -> "NDArray[Any]")]
    fn empty<'py>(&self, shape: &Bound<'py, PyAny>, dtype: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let none = shape.py().None().into_bound(shape.py());
        empty_symmetric(&self.member, shape, dtype.unwrap_or(&none))
    }

    /// Makes an array of zeros that every rank can reach: see `empty`.
    ///
    /// Args:
    ///     shape, dtype: as in `empty`.
    #[pyo3(signature = (shape: "int | Sequence[int]", dtype=None) -> "NDArray[Any]")]
    fn zeros<'py>(&self, shape: &Bound<'py, PyAny>, dtype: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let array = self.empty(shape, dtype)?;
        array.call_method1(intern!(shape.py(), "fill"), (0,))?;
        Ok(array)
    }

    /// Makes an array of one value that every rank can reach: see `empty`.
    ///
    /// Args:
    ///     shape: as in `empty`.
    ///     fill_value: the value of each element, or an array that numpy broadcasts.
    ///     dtype: the dtype. Default: that of `fill_value`.
    #[pyo3(signature = (shape: "int | Sequence[int]", fill_value, dtype=None) -> "NDArray[Any]")]
    fn full<'py>(
        &self,
        shape: &Bound<'py, PyAny>,
        fill_value: &Bound<'py, PyAny>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = shape.py();
        let of_value = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (fill_value,))?;
        let dtype = dtype.cloned().map_or_else(|| of_value.getattr(intern!(py, "dtype")), Ok)?;
        let array = self.empty(shape, Some(&dtype))?;
        array.set_item(py.Ellipsis(), of_value)?;
        Ok(array)
    }

    /// Copies an array into one that every rank can reach: see `empty`.
    ///
    /// Args:
    ///     x: an array, or anything that numpy converts to an array.
    ///     dtype: the dtype. Default: that of `x`.
    #[pyo3(signature = (x, dtype=None) -> "NDArray[Any]")]
    fn array<'py>(&self, x: &Bound<'py, PyAny>, dtype: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let x = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (x, dtype))?;
        let array = self.empty(&x.getattr(intern!(py, "shape"))?, Some(&x.getattr(intern!(py, "dtype"))?))?;
        array.set_item(py.Ellipsis(), x)?;
        Ok(array)
    }
}
