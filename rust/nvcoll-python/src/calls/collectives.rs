//! The collectives of `Node` and `Communicator`: one row gives a method to both classes, with its docstring.
//!
//! ```text
//! name(op: text, *, root: text, counts: text)    arguments that not all collectives have; each may be left out
//!     => CONTRACT, input -> output result,       `each` rank or the `root` has an array; without `out` it is `kept` or `new`
//!     "summary", "input", "output"               docstring: shapes and access of the arrays
//!     shown as ["(…)", "(…)"];                   the signatures in `help`, if defaults are not None
//! ```
//!
//! The macro `text` has the other words of docstrings. `Communicator.all_to_all` has one more argument: `communicator/all_to_all.rs`.

use pyo3::prelude::*;

use crate::calls::choices::Seconds;
use crate::calls::communicator::Communicator;
use crate::calls::node::Node;
use crate::calls::request::Request;

macro_rules! text {
    (input Node each) => {
        "one array per rank, as a list, or as one array whose axis 0 is the rank: numpy, or CPU memory with DLPack or the
        buffer protocol. Any supported dtype, equal on all ranks, and any strides.
        Each has "
    };
    (input Node root) => {
        "the root's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype and any strides.
        It has "
    };
    (input Communicator each) => {
        "this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype, equal on all ranks,
        and any strides.
        It has "
    };
    (input Communicator root) => {
        "on the root, its array: numpy, or CPU memory with DLPack or the buffer protocol; any supported dtype and any
        strides. Elsewhere None, or, without `out`, an array like the root's, which gives dtype, kind and length and is not
        read. The root's has "
    };
    (output Node each) => {
        "one array per rank for the results, as `arrays`.
        Each has "
    };
    (output Node root) => {
        "the root's array for the result.
        It has "
    };
    (output Communicator each) => {
        "this rank's array for the result.
        It has "
    };
    (output Communicator root) => {
        "on the root, the array for the result; ignored elsewhere.
        It has "
    };
    (kept) => {
        "
        Either it is the memory of the input, or it shares no byte with it. Default: in place."
    };
    (new) => {
        "
        Default: new arrays of the kind of the input, with the input's axes after the first if all parts have whole rows."
    };
    (returns Node each kept) => {
        "`out` if it is given, else `arrays`."
    };
    (returns Node root kept) => {
        "`out` if it is given, else the root's array."
    };
    (returns Node each new) => {
        "`out` if it is given, else the list of new arrays."
    };
    (returns Node root new) => {
        "`out` if it is given, else the new array."
    };
    (returns Communicator each kept) => {
        "`out` if it is given, else `x`."
    };
    (returns Communicator root kept) => {
        "On the root `out` if it is given, else `x`; elsewhere None."
    };
    (returns Communicator each new) => {
        "`out` if it is given, else the new array."
    };
    (returns Communicator root new) => {
        "On the root `out` if it is given, else the new array; elsewhere None."
    };
    (op any Node) => {
        "a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalars)`. Default: sum."
    };
    (op any Communicator) => {
        "a name, a ufunc such as `np.add`, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum."
    };
    (op unscaled $class:ident) => {
        "a name or a ufunc: any op but avg and premul_sum. Default: sum."
    };
    (root source $class:ident) => {
        "the rank whose array is read."
    };
    (root target $class:ident) => {
        "the rank that receives the result."
    };
    (counts parts $class:ident) => {
        "elements per part, one number per rank, 0 allowed, equal on all ranks. Default: the input cut as numpy's
        `array_split` does; without an input, parts as long as `out`."
    };
    (counts arrays Node) => {
        "elements per input, one number per rank. Default: the lengths of the inputs."
    };
    (counts arrays Communicator) => {
        "elements per input, one number per rank, equal on all ranks. Default: the length of `x` for all ranks."
    };
    (counts rows Node) => {
        "a table with one row per rank: row q has the elements from rank q to each rank, 0 allowed. Default: all inputs
        have one length, and are cut as numpy's `array_split` does."
    };
    (path Node) => {
        "mapped."
    };
    (path Communicator) => {
        "mapped between threads, staged
        between processes."
    };
    (timeout Node) => {
        "no limit."
    };
    (timeout Communicator) => {
        "that of `Node.run` or `init`."
    };
    (async_op) => {
        "whether to return at once, with a `Work` whose `wait` returns the result. The arrays must not be touched until
        the call is over, and its `timeout` counts from its turn. Default: false."
    };
    (raises Node) => {
        "
    InvalidArgument: an argument cannot be used; the message names argument and rank. Nothing was written.
    Busy: another thread uses the node.
    Timeout, KeyboardInterrupt: the call ended early. Strided arrays are unchanged; contiguous outputs are undefined."
    };
    (raises Communicator) => {
        "
    InvalidArgument: an argument cannot be used; the message names argument and rank.
    Busy: an array is in flight in another call, and one of the two writes it. Calls of one communicator
        with `async_op` may share arrays: they run in the order of issue.
    Mismatch: another rank made a different call; the message names both.
    Aborted: the program of another rank failed, or a rank called `abort`.
    Timeout: the deadline passed; the message names the ranks that have not entered the call."
    };
}

/// Gives a class one method; `$arrays` is the name of the input. Calls of a `Communicator` may return at once.
macro_rules! method {
    ($class:ident($arrays:ident)[$($async_op:ident)?]
        $name:ident($($op:ident: $op_text:ident,)? * $(, $keyword:ident: $text:ident)*)
            => $contract:ident, $in:ident -> $out:ident $result:ident,
            $summary:literal, $input:literal, $output:literal $(shown as $shown:literal)?
    ) => {
        #[pymethods]
        impl $class {
            #[doc = concat!(
                $summary, "\n\nArgs:\n    ", stringify!($arrays), ": ", text!(input $class $in), $input,
                $("\n    ", stringify!($op), ": ", text!($op $op_text $class),)?
                $("\n    ", stringify!($keyword), ": ", text!($keyword $text $class),)*
                "\n    algorithm: a name, an algorithm or a schedule. Default: one that reduces in the order of ranks.",
                "\n    out: ", text!(output $class $out), $output, text!($result),
                "\n    path: how data move between ranks: mapped, staged or pushed. Default: ", text!(path $class),
                "\n    timeout: seconds that the call may take. Default: ", text!(timeout $class),
                $("\n    ", stringify!($async_op), ": ", text!($async_op),)?
                "\n\nReturns:\n    ", text!(returns $class $out $result),
                "\n\nRaises:", text!(raises $class),
            )]
            #[pyo3(
                signature = ($arrays, $($op=None,)? *, $($keyword=None,)* algorithm=None, out=None, path=None, timeout=None
                             $(, $async_op=false)?)
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
                path: Option<&str>,
                timeout: Option<Seconds>,
                $($async_op: bool,)?
            ) -> PyResult<Bound<'py, PyAny>> {
                let new = Request::new(&nvcoll_core::collective::$contract, $arrays, path);
                let is_async = false $(|| $async_op)?;
                self.endpoint.call(py, Request { $($op,)? $($keyword,)* algorithm, out, ..new }, timeout, is_async)
            }
        }
    };
}

/// Gives both classes the methods of a table.
macro_rules! collectives {
    ($(
        $name:ident $arguments:tt => $contract:ident, $in:ident -> $out:ident $result:ident,
            $summary:literal, $input:literal, $output:literal
            $(shown as [$of_node:literal, $of_rank:literal])?;
    )+) => {$(
        method! { Node(arrays)[]
            $name $arguments => $contract, $in -> $out $result, $summary, $input, $output $(shown as $of_node)? }
        method! { Communicator(x)[async_op]
            $name $arguments => $contract, $in -> $out $result, $summary, $input, $output $(shown as $of_rank)? }
    )+};
}

method! { Node(arrays)[]
    all_to_all(*, counts: rows) => ALL_TO_ALL, each -> each new,
        "Gives rank r part r of the array of every rank, in the order of ranks.",
        "the elements to rank 0, to rank 1, …. Read.",
        "the elements from rank 0, from rank 1, …; it is never in place."
}

collectives! {
    all_reduce(op: any, *) => ALL_REDUCE, each -> each kept,
        "Reduces the arrays of all ranks element by element and gives every rank the result.",
        "(count,) elements, count equal on all ranks. Written, unless `out` is given.",
        "(count,) elements.";

    reduce_scatter(op: any, *, counts: parts) => REDUCE_SCATTER, each -> each new,
        "Reduces the arrays of all ranks element by element and gives rank r part r of the result.",
        "(sum of `counts`,) elements. Read.",
        "(counts[r],) elements on rank r. In place if it is part r of the input.";

    all_gather(*, counts: arrays) => ALL_GATHER, each -> each new,
        "Gives every rank the arrays of all ranks, one after the other.",
        "(counts[r],) elements on rank r. Read.",
        "(sum of `counts`,) elements. In place if the input is part r of it.";

    broadcast(*, root: source) => BROADCAST, each -> each kept,
        "Gives every rank the array of the root.",
        "(count,) elements, count equal on all ranks. Read on the root, written elsewhere. With `out`, only the root's is used.",
        "(count,) elements. Written on every rank."
        shown as ["($self, arrays, *, root=0, algorithm=None, out=None, path=None, timeout=None)",
                  "($self, x, *, root=0, algorithm=None, out=None, path=None, timeout=None, async_op=False)"];

    reduce(op: any, *, root: target) => REDUCE, each -> root kept,
        "Reduces the arrays of all ranks element by element and gives the root the result.",
        "(count,) elements, count equal on all ranks. Written on the root, unless `out` is given; read elsewhere.",
        "(count,) elements."
        shown as ["($self, arrays, op=None, *, root=0, algorithm=None, out=None, path=None, timeout=None)",
                  "($self, x, op=None, *, root=0, algorithm=None, out=None, path=None, timeout=None, async_op=False)"];

    gather(*, root: target, counts: arrays) => GATHER, each -> root new,
        "Gives the root the arrays of all ranks, one after the other.",
        "(counts[r],) elements on rank r. Read.",
        "(sum of `counts`,) elements. In place if the root's input is its part of it."
        shown as ["($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path=None, timeout=None)",
                  "($self, x, *, root=0, counts=None, algorithm=None, out=None, path=None, timeout=None, async_op=False)"];

    scatter(*, root: source, counts: parts) => SCATTER, root -> each new,
        "Gives rank r part r of the root's array.",
        "(sum of `counts`,) elements. Read.",
        "(counts[r],) elements on rank r. In place if the root's is its part of the input."
        shown as ["($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path=None, timeout=None)",
                  "($self, x, *, root=0, counts=None, algorithm=None, out=None, path=None, timeout=None, async_op=False)"];

    scan(op: unscaled, *) => SCAN, each -> each kept,
        "Gives rank r the reduction of the arrays of ranks 0 to r.",
        "(count,) elements, count equal on all ranks. Written, unless `out` is given.",
        "(count,) elements.";

    exscan(op: unscaled, *) => EXSCAN, each -> each kept,
        "Gives rank r the reduction of the arrays of ranks 0 to r - 1. Rank 0 receives nothing.",
        "(count,) elements, count equal on all ranks. Written, unless `out` is given; unchanged on rank 0.",
        "(count,) elements; rank 0 passes one too, which stays unchanged.";
}
