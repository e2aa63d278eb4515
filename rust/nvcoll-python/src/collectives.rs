//! The methods that are collectives. `Node` and `Communicator` have the same, but for how their arrays are called and what
//! there is to say of them.
//!
//! A row is what Python sees of a method, and its contract:
//!
//! ```text
//! /// docstring
//! name(op, *, root, counts)        the arguments beside those that all have, without defaults: every one may be left out
//!     shown as "($self, …)"        what `help` shows, where that is not what the arguments say
//!     => CONTRACT;
//! ```

/// Gives a class, which calls its arrays so, one method for each row; the class has `fn call(py, request, timeout)`.
macro_rules! collectives {
    ($class:ident($arrays:ident) $(
        $(#[doc = $doc:literal])+
        $name:ident($($op:ident,)? * $(, $keyword:ident)*) $(shown as $shown:literal)? => $contract:ident;
    )+) => {
        #[pymethods]
        impl $class {$(
            $(#[doc = $doc])+
            #[pyo3(
                signature = ($arrays, $($op=None,)? *, $($keyword=None,)* algorithm=None, out=None, path="mapped", timeout=None)
                $(, text_signature = $shown)?
            )]
            #[allow(clippy::too_many_arguments)]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                $arrays: &Bound<'py, PyAny>,
                $($op: Option<&Bound<'py, PyAny>>,)?
                $($keyword: Option<&Bound<'py, PyAny>>,)*
                algorithm: Option<&Bound<'py, PyAny>>,
                out: Option<&Bound<'py, PyAny>>,
                path: &str,
                timeout: Option<$crate::calls::Seconds>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let new = $crate::request::Request::new(&nvcoll_core::collective::$contract, $arrays, path);
                self.call(py, $crate::request::Request { $($op,)? $($keyword,)* algorithm, out, ..new }, timeout)
            }
        )+}
    };
}

pub(crate) use collectives;
