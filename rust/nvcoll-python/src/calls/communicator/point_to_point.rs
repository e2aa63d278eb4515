//! Sends and receives of one rank.

use std::sync::{Arc, PoisonError};

use pyo3::prelude::*;

use nvcoll_engine::messages::transfer::{Direction, Envelope};
use nvcoll_engine::messages::MOST_TAG;
use nvcoll_engine::ranks::member::Member;

use super::Communicator;
use crate::arrays::{deliver, BoundCall, IssuedMessage, MessageArray, ReceivedEnvelope};
use crate::calls::choices::Seconds;
use crate::calls::work::Work;
use crate::error::invalid;
use crate::integers::integer;

/// A received message. In a group or after `irecv`, its attributes are None until the receive has ended.
///
/// Example:
///     >>> import numpy as np, nvcoll
///     >>> def program(comm):
///     ...     peer = 1 - comm.rank
///     ...     return comm.sendrecv(np.ones(3), peer, np.empty(3), peer)
///     >>> message = nvcoll.Node(2).run(program)[0]
///     >>> message.source, message.count
///     (1, 3)
#[pyclass(name = "Message", module = "nvcoll", frozen)]
pub(crate) struct Message(ReceivedEnvelope, Arc<Member>);

#[pymethods]
impl Message {
    /// Takes what another message says. Not public.
    fn _take(&self, other: &Self) {
        let envelope = *other.0.lock().unwrap_or_else(PoisonError::into_inner);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = envelope;
    }

    /// The rank that sent the message.
    #[getter]
    fn source(&self) -> Option<u32> {
        self.envelope().map(|envelope| envelope.source)
    }

    /// The tag of the message.
    #[getter]
    fn tag(&self) -> Option<u32> {
        self.envelope().map(|envelope| envelope.tag)
    }

    /// The number of elements of the message.
    #[getter]
    fn count(&self) -> Option<usize> {
        self.envelope().map(|envelope| envelope.bytes / envelope.dtype.bytes())
    }

    fn __repr__(&self) -> String {
        match self.envelope() {
            Some(Envelope { source, tag, dtype, bytes }) => {
                let count = bytes / dtype.bytes();
                format!("<nvcoll.Message of {count} {dtype} from rank {source} with tag {tag}>")
            }
            None => "<nvcoll.Message that has not arrived>".into(),
        }
    }
}

impl Message {
    fn of(array: &MessageArray, comm: &Communicator) -> Self {
        Self(array.received.clone(), comm.member.clone())
    }

    fn envelope(&self) -> Option<Envelope> {
        let envelope = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |source: u32| self.1.names_of_ranks().map_or(source, |names| names[source as usize]);
        envelope.map(|envelope| Envelope { source: name(envelope.source), ..envelope })
    }
}

#[pymethods]
impl Communicator {
    /// Sends an array to a rank. That rank calls `recv`.
    ///
    /// If the array has at most 16 KiB, `send` normally does not wait for the receiver. If it is larger, `send` waits until the receiver
    /// takes it. So two ranks that both send large arrays first wait for each other: use `sendrecv` or a `group`.
    ///
    /// Messages with one tag from one rank to another arrive in the order of their sends. Sends and receives are not collectives: other
    /// ranks make no call. Messages in flight move while the program computes.
    ///
    /// Args:
    ///     x: this rank's array: numpy, or CPU memory with DLPack or the buffer protocol. Any supported dtype and strides. Read.
    ///     dst: the rank that receives.
    ///     tag: a whole number from 0. The receiver selects messages by it. Default: 0.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.
    ///
    /// Raises:
    ///     InvalidArgument: an argument cannot be used, or there is no such rank.
    ///     Mismatch: the program of the receiver has returned.
    ///     Aborted: the program of another rank failed, a rank called `abort`, or the receiver's array does not fit the message.
    ///     Timeout: the receiver did not take the message before the deadline.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     if comm.rank == 0:
    ///     ...         comm.send(np.arange(3.0), 1, tag=7)
    ///     ...     else:
    ///     ...         x = np.empty(3)
    ///     ...         message = comm.recv(x)
    ///     ...         return x, message.source, message.tag
    ///     >>> nvcoll.Node(2).run(program)[1]
    ///     (array([0., 1., 2.]), 0, 7)
    #[pyo3(signature = (x, dst: "int", *, tag: "int | None" = None, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<()> {
        self.exchange(py, [self.sent(x, dst, tag)?], timeout)
    }

    /// Begins to send an array to a rank, and returns immediately. Do not write to the array before the `Work` is done.
    ///
    /// The message moves while the program computes: a thread that waits for messages of the communicator moves it, else a thread of nvcoll.
    ///
    /// Args:
    ///     x, dst, tag: as in `send`.
    ///     timeout: seconds that the call may take, counted from now. Default: that of `Node.run` or `init`.
    ///
    /// Returns:
    ///     A `Work`. Its `wait` returns None.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted: as `send`.
    ///     Busy: another call in flight writes to the array.
    ///
    /// Example:
    ///     See `irecv`.
    #[pyo3(signature = (x, dst: "int", *, tag: "int | None" = None, timeout=None))]
    fn isend(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Work> {
        self.endpoint.group.refuse(py, "isend")?;
        let array = self.sent(x, dst, tag)?;
        self.endpoint.count_message(&array);
        self.issue(py, array, timeout, py.None())
    }

    /// Receives an array that a rank sends.
    ///
    /// Args:
    ///     x: this rank's array for the message, as in `send`. It must have the message's dtype and number of elements. Written.
    ///     src: the rank that sends. Default: any. If several messages match, `recv` takes the one that arrived first.
    ///     tag: the tag of the message. Default: any.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.
    ///
    /// Returns:
    ///     A `Message` with `source`, `tag` and `count`. In a group these are None before the end of the block.
    ///
    /// Raises:
    ///     InvalidArgument: an argument cannot be used, or there is no such rank.
    ///     Mismatch: the dtype or the number of elements of `x` and of the message differ, or the program of the sender has returned.
    ///     Aborted: the program of another rank failed, or a rank called `abort`.
    ///     Timeout: no such message came before the deadline; the error names the tags of the messages that came.
    ///
    /// Example:
    ///     See `send`.
    #[pyo3(signature = (x, src: "int | None" = None, *, tag: "int | None" = None, timeout=None))]
    fn recv(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        src: Option<&Bound<'_, PyAny>>,
        tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Message> {
        let array = self.received("x", x, src, ("`tag`", tag))?;
        let message = Message::of(&array, self);
        self.exchange(py, [array], timeout)?;
        Ok(message)
    }

    /// Begins to receive an array that a rank sends, and returns immediately. Do not read or write the array before the `Work` is done.
    ///
    /// Args:
    ///     x, src, tag: as in `recv`. Receives take messages in the order of their calls.
    ///     timeout: seconds that the call may take, counted from now. Default: that of `Node.run` or `init`.
    ///
    /// Returns:
    ///     A `Work`. Its `wait` returns the `Message`.
    ///
    /// Raises:
    ///     InvalidArgument, Aborted: as `recv`. The `wait` of the `Work` raises `Mismatch`.
    ///     Busy: another call in flight reads or writes the array.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     x, out = np.array([comm.rank]), np.array([0])
    ///     ...     works = [comm.irecv(out), comm.isend(x, 1 - comm.rank, tag=3)]
    ///     ...     return [work.wait() for work in works][0].tag, int(out[0])
    ///     >>> nvcoll.Node(2).run(program)
    ///     [(3, 1), (3, 0)]
    #[pyo3(signature = (x, src: "int | None" = None, *, tag: "int | None" = None, timeout=None))]
    fn irecv(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        src: Option<&Bound<'_, PyAny>>,
        tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Work> {
        self.endpoint.group.refuse(py, "irecv")?;
        let array = self.received("x", x, src, ("`tag`", tag))?;
        let message = Py::new(py, Message::of(&array, self))?;
        self.issue(py, array, timeout, message.into_any())
    }

    /// Sends an array to one rank and receives an array from the same or another rank. Both run at the same time.
    ///
    /// Args:
    ///     x: the array to send, as in `send`. Read.
    ///     dst: the rank that receives it.
    ///     out: the array for the received message, as `x` in `recv`. It must not share memory with `x`. Written.
    ///     src: the rank that sends to this rank. Default: any.
    ///     tag: the tag of the sent message. Default: 0.
    ///     recv_tag: the tag of the received message. Default: any.
    ///     timeout: seconds that the call may take. Default: that of `Node.run` or `init`. A timeout ends the communicator.
    ///
    /// Returns:
    ///     The received `Message`.
    ///
    /// Raises:
    ///     InvalidArgument, Mismatch, Aborted, Timeout: as `send` and `recv`.
    ///
    /// Example:
    ///     >>> def program(comm):
    ///     ...     x, out, n = np.array([comm.rank]), np.array([0]), comm.world_size
    ///     ...     comm.sendrecv(x, (comm.rank + 1) % n, out, (comm.rank - 1) % n)
    ///     ...     return int(out[0])
    ///     >>> nvcoll.Node(3).run(program)
    ///     [2, 0, 1]
    #[pyo3(
        signature = (
            x, dst: "int", out, src: "int | None" = None, *, tag: "int | None" = None, recv_tag: "int | None" = None,
            timeout=None
        )
    )]
    #[allow(clippy::too_many_arguments)]
    fn sendrecv(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        src: Option<&Bound<'_, PyAny>>,
        tag: Option<&Bound<'_, PyAny>>,
        recv_tag: Option<&Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Message> {
        let received = self.received("out", out, src, ("`recv_tag`", recv_tag))?;
        let sent = self.sent(x, dst, tag)?;
        let (message, both) = (Message::of(&received, self), [sent, received]);
        MessageArray::check_apart(py, &both)?;
        self.exchange(py, both, timeout)?;
        Ok(message)
    }

    /// Takes a message that a rank of another host has sent. Not public.
    ///
    /// Args:
    ///     source: the number of that rank in the larger communicator.
    ///     tag: its tag.
    ///     dtype: the name of the dtype of its elements.
    ///     data: its bytes; read.
    fn _deliver(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        tag: u32,
        dtype: &str,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        deliver(py, &self.member, self.rank_named("`source`", source)?, tag, dtype, data)
    }

    /// Says whether a receive waits for a message that a rank may send. Not public.
    fn _awaits(&self, source: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.member.awaits(self.rank_named("`source`", source)?))
    }

    /// Makes a message that has not arrived. Not public.
    fn _message(&self) -> Message {
        Message(ReceivedEnvelope::default(), self.member.clone())
    }

    /// Makes the work of a call that Python code makes, which ends by `_finish`. Not public: it is for hosts.
    fn _work(&self, py: Python<'_>, call: String) -> Work {
        Work::new(call, Arc::default(), py.None(), self.member.clone())
    }
}

impl Communicator {
    /// Reads the arguments of a send.
    fn sent(
        &self,
        x: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        tag: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<MessageArray> {
        let tag = tag.map_or(Ok(0), |tag| integer("`tag`", tag, 0..=MOST_TAG))?;
        let to = self.rank_named("`dst`", dst)?;
        if to >= self.world_size() {
            return Err(invalid(x.py(), format!("`dst` is {dst}, which is on another host")));
        }
        MessageArray::read("x", x, Direction::To(to), Some(tag))
    }

    /// Reads the arguments of a receive.
    fn received(
        &self,
        argument: &'static str,
        x: &Bound<'_, PyAny>,
        src: Option<&Bound<'_, PyAny>>,
        (name_of_tag, tag): (&str, Option<&Bound<'_, PyAny>>),
    ) -> PyResult<MessageArray> {
        let from = src.map(|src| self.rank_named("`src`", src)).transpose()?;
        let tag = tag.map(|tag| integer(name_of_tag, tag, 0..=MOST_TAG)).transpose()?;
        MessageArray::read(argument, x, Direction::From(from), tag)
    }

    /// Makes a send, a receive, or both, or adds them to the open group.
    fn exchange<const N: usize>(
        &self,
        py: Python<'_>,
        arrays: [MessageArray; N],
        timeout: Option<Seconds>,
    ) -> PyResult<()> {
        if self.endpoint.group.is_open() {
            let add = |group: &mut BoundCall| arrays.into_iter().for_each(|array| group.add_message(py, array));
            return self.endpoint.group.add(py, timeout, add);
        }
        MessageArray::exchange(py, &self.member, &arrays, || self.endpoint.deadline(timeout))?;
        self.endpoint.count_message(&arrays[0]);
        Ok(())
    }

    /// Begins a send or a receive, whose `Work` returns `result`.
    fn issue(
        &self,
        py: Python<'_>,
        array: MessageArray,
        timeout: Option<Seconds>,
        result: Py<PyAny>,
    ) -> PyResult<Work> {
        let deadline = self.endpoint.deadline(timeout);
        let IssuedMessage { call, completion, transfer } = array.issue(py, &self.member, deadline)?;
        Ok(Work::new(call, completion, result, self.member.clone()).of_transfer(transfer, deadline))
    }

    /// Reads a rank. On several hosts it is one of the larger communicator.
    fn rank_named(&self, argument: &str, rank: &Bound<'_, PyAny>) -> PyResult<u32> {
        let Some(names) = self.member.names_of_ranks() else {
            return integer(argument, rank, 0..=self.world_size() - 1);
        };
        let named = integer(argument, rank, 0..=names.len() as u32 - 1)?;
        let place = names.iter().position(|name| *name == named);
        place
            .map(|place| place as u32)
            .ok_or_else(|| invalid(rank.py(), format!("{argument}: rank {named} is elsewhere")))
    }
}
