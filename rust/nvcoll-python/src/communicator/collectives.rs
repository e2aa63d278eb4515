//! The collectives, as one rank calls them for itself; `all_to_all` is beside.

use pyo3::prelude::*;

use super::Communicator;
use crate::collectives::collectives;

collectives! { Communicator(x)

    /// Reduces `x` with the arrays that the other ranks pass, element by element; every rank must make the same call.
    ///
    /// Args:
    ///     x: this rank's array, as in `Node.all_reduce`. Written, unless there is `out`.
    ///     op: a name, or `nvcoll.premul_sum(scalar)` with the scalar of this rank. Default: sum.
    ///     algorithm: a name, an algorithm or a schedule. Default: one that folds in the order of ranks.
    ///     out: where the result goes: the memory of `x`, or no byte of it.
    ///     path: how ranks reach each other, mapped, staged or pushed.
    ///     timeout: seconds that the call may take. Default: that of `Node.run`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     Mismatch: another rank made a different call; the message names both.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: the message says which ranks have not entered the call.
    all_reduce(op, *) => ALL_REDUCE;

    /// Reduces `x` with the arrays of the other ranks; this rank, r, receives part r of the result.
    ///
    /// Args:
    ///     x: this rank's array, of all parts. Read.
    ///     counts: elements of each part, one number per rank, the same on every rank. Default: the length cut as numpy's
    ///         `array_split` does.
    ///     out: this rank's part. In place if it is part r of `x`. Default: a new array with the trailing axes of the input, of the kind of `x`.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    reduce_scatter(op, *, counts) => REDUCE_SCATTER;

    /// Gives every rank the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     x: this rank's array. Read.
    ///     counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
    ///     out: an array of all elements. In place if `x` is this rank's part of it. Default: a new array with the trailing axes of the input, of the kind
    ///         of `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    all_gather(*, counts) => ALL_GATHER;

    /// Gives every rank the array of the root.
    ///
    /// Args:
    ///     x: this rank's array. Read on the root, written elsewhere; with `out` only the root's is looked at.
    ///     root: the rank whose array it is.
    ///     out: where the result goes, on every rank. Default: in place.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    broadcast(*, root)
        shown as "($self, x, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)" => BROADCAST;

    /// Reduces `x` with the arrays of the other ranks, element by element, and gives the root the result.
    ///
    /// Args:
    ///     x: this rank's array. Written on the root, unless there is `out`; read elsewhere.
    ///     root: the rank that has the result.
    ///     out: on the root, where the result goes; elsewhere not looked at. Default: in place.
    ///     op, algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     On the root `out` if it is given, else `x`; elsewhere None.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    reduce(op, *, root)
        shown as "($self, x, op=None, *, root=0, algorithm=None, out=None, path='mapped', timeout=None)" => REDUCE;

    /// Gives the root the arrays of all ranks, one after the other.
    ///
    /// Args:
    ///     x: this rank's array. Read.
    ///     root: the rank that has the result.
    ///     counts: elements of each rank's array, one number per rank, the same on every rank. Default: as many as `x` on every rank.
    ///     out: on the root, an array of all elements; in place if `x` is the root's part of it. Elsewhere not looked at. Default: a
    ///         new array of one axis, of the kind of the root's `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     On the root `out`, or the new array; elsewhere None.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    gather(*, root, counts)
        shown as "($self, x, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)" => GATHER;

    /// Gives this rank, r, part r of the root's array.
    ///
    /// Args:
    ///     x: on the root, the array of all parts. Read. Elsewhere None; without `out`, an array like the root's, which says dtype,
    ///         kind and length, and is not read.
    ///     root: the rank whose array it is.
    ///     counts: elements of each part, one number per rank, the same on every rank. Default: the length of `x` cut as numpy's
    ///         `array_split` does; a rank that passes only `out` takes all parts to be as long as that.
    ///     out: this rank's part. On the root, in place if it is its part of `x`. Default: a new array with the trailing axes of the input, of the kind of
    ///         `x`.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out`, or the new array.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    scatter(*, root, counts)
        shown as "($self, x, *, root=0, counts=None, algorithm=None, out=None, path='mapped', timeout=None)" => SCATTER;

    /// Reduces `x` with the arrays of the ranks before this one.
    ///
    /// Args:
    ///     x: this rank's array. Written, unless there is `out`.
    ///     out: where the result goes: the memory of `x`, or no byte of it.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    scan(op, *) => SCAN;

    /// Reduces the arrays of the ranks before this one; rank 0 receives nothing.
    ///
    /// Args:
    ///     x: this rank's array. Written, unless there is `out`; on rank 0 it stays as it is.
    ///     out: where the result goes: the memory of `x`, or no byte of it. On rank 0 it stays as it is, and is given if it is on
    ///         other ranks.
    ///     op: a name: all but avg and premul_sum. Default: sum.
    ///     algorithm, path, timeout: as in `all_reduce`.
    ///
    /// Returns:
    ///     `out` if it is given, else `x`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as in `all_reduce`.
    exscan(op, *) => EXSCAN;
}
