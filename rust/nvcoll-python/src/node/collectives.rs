//! The collectives, as one caller calls them for all ranks.

use pyo3::prelude::*;

use super::Node;
use crate::collectives::collectives;

collectives! { Node(arrays)

    /// Reduces the arrays of all ranks element by element and gives every rank the result.
    ///
    /// Args:
    ///     arrays: a list of one array per rank, or one array whose axis 0 is the rank: numpy arrays, or anything in CPU
    ///         memory with DLPack or the buffer protocol. Any supported dtype and any strides; dtype and count are the same
    ///         on every rank. Written on every rank, unless there is `out`.
    ///     op: a name, or `nvcoll.premul_sum(scalars)`. Default: sum.
    ///     algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
    ///     out: where the results go, like `arrays`. Either it is the memory of `arrays`, rank by rank, or it shares no byte
    ///         with it. No two written arrays share a byte.
    ///     path: how ranks reach each other, mapped, staged or pushed.
    ///     timeout: seconds that the call may take.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument: an array that cannot be used; the message names argument and rank. Nothing was written.
    ///     Timeout, KeyboardInterrupt: the call ended early. Strided arrays are as they were; packed arrays that the call
    ///         writes hold no particular values.
    all_reduce(op, *) => ALL_REDUCE;

    /// Reduces the arrays of all ranks and gives rank r part r of the result.
    ///
    /// Args:
    ///     arrays: one array per rank, of all parts, as in `all_reduce`. Read.
    ///     counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
    ///     out: one array per rank, of its part. In place if each is part r of `arrays[r]`. Default: new arrays with the trailing axes of the input, of
    ///         the kind of `arrays`.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    reduce_scatter(op, *, counts) => REDUCE_SCATTER;

    /// Gives every rank the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
    ///     counts: elements of each array, one number per rank. Default: what the arrays hold.
    ///     out: one array per rank, of all elements. In place if `arrays[r]` is part r of each. Default: new arrays with the trailing axes of the input, of
    ///         the kind of `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    all_gather(*, counts) => ALL_GATHER;

    /// Gives every rank the array of the root.
    ///
    /// Args:
    ///     arrays: one array per rank, of one length, as in `all_reduce`. Read on the root, written elsewhere; with `out` only the
    ///         root's is looked at.
    ///     root: the rank whose array it is.
    ///     out: one array per rank, written on every rank. Default: in place.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    broadcast(*, root)
        shown as "($self, arrays, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)" => BROADCAST;

    /// Reduces the arrays of all ranks element by element and gives the root the result.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written on the root, unless there is `out`; read elsewhere.
    ///     root: the rank that has the result.
    ///     out: the root's array. Default: in place.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else the root's array.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    reduce(op, *, root)
        shown as "($self, arrays, op=None, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)" => REDUCE;

    /// Gives the root the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`; they may differ in length. Read.
    ///     root: the rank that has the result.
    ///     counts: elements of each array, one number per rank. Default: what the arrays hold.
    ///     out: the root's array, of all elements. In place if `arrays[root]` is its part. Default: a new array with the trailing axes of the input, of the
    ///         kind of the root's.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    gather(*, root, counts)
        shown as "($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)" => GATHER;

    /// Gives rank r part r of the root's array.
    ///
    /// Args:
    ///     arrays: the root's array, of all parts. Read.
    ///     root: the rank whose array it is.
    ///     counts: elements of each part, one number per rank, 0 allowed. Default: the length cut as numpy's `array_split` does.
    ///     out: one array per rank, of its part. In place if the root's is its part of `arrays`. Default: new arrays with the trailing axes of the input,
    ///         of the kind of `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    scatter(*, root, counts)
        shown as "($self, arrays, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)" => SCATTER;

    /// Gives rank r part r of the array of every rank, in the order of ranks.
    ///
    /// Args:
    ///     arrays: one array per rank, of all that it sends, first what rank 0 receives. Read.
    ///     counts: a table of numbers, one row per rank: row q is how many elements rank q sends to each rank, 0 allowed. Default:
    ///         the length, the same on every rank, cut as numpy's `array_split` does.
    ///     out: one array per rank, of all that it receives; never in place. Default: new arrays with the trailing axes of the input, of the kind of
    ///         `arrays`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the list of new arrays.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    all_to_all(*, counts) => ALL_TO_ALL;

    /// Gives rank r the reduction of the arrays of ranks 0 to r.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`.
    ///     out: one array per rank, as in `all_reduce`. Default: in place.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    scan(op, *) => SCAN;

    /// Gives rank r the reduction of the arrays of ranks 0 to r - 1; rank 0 receives nothing.
    ///
    /// Args:
    ///     arrays: one array per rank, as in `all_reduce`. Written, unless there is `out`; that of rank 0 stays as it is.
    ///     out: one array per rank, as in `all_reduce`; that of rank 0 is not looked at. Default: in place.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `arrays`.
    ///
    /// Raises:
    ///     InvalidArgument, Timeout, KeyboardInterrupt: as in `all_reduce`.
    exscan(op, *) => EXSCAN;
}
