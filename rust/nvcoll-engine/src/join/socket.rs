//! Unix sockets that keep packets apart (`SOCK_SEQPACKET`): the system calls of the mesh as functions that are safe to call.
//!
//! Names are of the abstract namespace: no file has them, and the kernel forgets a name with its socket. Every descriptor is
//! closed on exec. No call blocks, except [`wait`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{retry_on_intr, Errno};
use rustix::net::{
    accept_with, bind, connect, getsockname, listen, recvmsg, sendmsg, shutdown, socket_with, AddressFamily,
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

/// The most descriptors of a packet. Chosen: a rank's regions are fewer.
pub(super) const MOST_DESCRIPTORS: usize = 8;

/// The bytes of a name without its leading zero. Cited: unix(7), 108 bytes with it.
pub(super) const LONGEST_NAME: usize = 107;

/// The most connections that wait to be accepted; the kernel takes the smaller of this and `net.core.somaxconn`. Chosen: more
/// than ranks of a job.
const BACKLOG: i32 = 4096;

/// The bytes of ancillary data with [`MOST_DESCRIPTORS`]. The kernel closes descriptors that find no room.
const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS));

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A Unix socket of packets.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// The process at the other end of a socket, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerProcess {
    /// Its number; 0 if it is in a namespace of processes that this process does not see.
    pub(super) process: u32,
    /// The user that it acts for.
    pub(super) user: u32,
}

/// The result of a receipt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// A packet of this many bytes.
    Packet(usize),
    /// A packet that is longer than the room for it, or had descriptors for which there was no room: the head of it was read.
    Cut(usize),
    /// No packet has come.
    Nothing,
    /// The other end is closed, and all that it sent was read. A packet without bytes reads the same; nvcoll sends none.
    Ended,
    /// As `Ended`, and the other end was closed before it had read all that it was sent.
    Reset,
}

/// The result of a sending.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The packet is on its way.
    Done,
    /// The other end has many packets to read first.
    NoRoom,
    /// The system has no memory, or this user has too many descriptors on their way. No event says when that ends.
    NotNow,
    /// The other end is closed.
    Ended,
}

/// Returns the user that this process acts for.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl PacketSocket {
    fn new() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?))
    }

    /// Makes a socket that listens under a name; without one, under a name that the kernel chooses.
    pub(super) fn listen(name: Option<&[u8]>) -> io::Result<Self> {
        let unnamed = || Ok(SocketAddrUnix::new_unnamed());
        let (socket, address) = (Self::new()?, name.map_or_else(unnamed, SocketAddrUnix::new_abstract_name)?);
        bind(&socket.0, &address)?;
        listen(&socket.0, BACKLOG)?;
        Ok(socket)
    }

    /// Connects to the socket that listens under a name.
    ///
    /// # Errors
    /// `ConnectionRefused`: none listens. `WouldBlock`: it has many connections to accept first.
    pub(super) fn connect(name: &[u8]) -> io::Result<Self> {
        let (socket, address) = (Self::new()?, SocketAddrUnix::new_abstract_name(name)?);
        retry_on_intr(|| connect(&socket.0, &address))?;
        Ok(socket)
    }

    /// Accepts a connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<Self>> {
        match retry_on_intr(|| accept_with(&self.0, FLAGS)) {
            Err(Errno::AGAIN) => Ok(None),
            accepted => Ok(Some(Self(accepted?))),
        }
    }

    /// Returns the name under which this socket listens.
    pub(super) fn name(&self) -> io::Result<Vec<u8>> {
        let address = SocketAddrUnix::try_from(getsockname(&self.0)?)?;
        Ok(address.abstract_name().unwrap_or_default().to_vec())
    }

    /// Returns the process at the other end: the one that connected, or the one that began to listen.
    pub(super) fn peer(&self) -> io::Result<PeerProcess> {
        // `rustix` has this call for processes with a number, and one in another namespace has none here.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, level, name) = (self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
        // SAFETY: the credentials are writable for `bytes`, and both live through the call.
        if unsafe { libc::getsockopt(fd, level, name, (&raw mut found).cast(), &mut bytes) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PeerProcess { process: found.pid.try_into().unwrap_or(0), user: found.uid })
    }

    /// Sends a packet with at most [`MOST_DESCRIPTORS`] descriptors.
    pub(super) fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Sending> {
        assert!(descriptors.len() <= MOST_DESCRIPTORS, "the callers count descriptors");
        let (mut room, flags) = ([MaybeUninit::uninit(); ANCILLARY_BYTES], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        match retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(packet)], &mut ancillary, flags)) {
            Ok(_) => Ok(Sending::Done),
            Err(Errno::AGAIN) => Ok(Sending::NoRoom),
            Err(Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(Sending::NotNow),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(Sending::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives a packet without descriptors. The kernel closes those that come with one.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<Receipt> {
        self.receive_after_reset(room, None)
    }

    /// Receives a packet and its descriptors, which are appended to `descriptors`.
    pub(super) fn receive_with(&self, room: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<Receipt> {
        self.receive_after_reset(room, Some(descriptors))
    }

    /// Receives a packet. The kernel reports a reset before the packets that came before it, and reports it once.
    fn receive_after_reset(&self, room: &mut [u8], mut to: Option<&mut Vec<OwnedFd>>) -> io::Result<Receipt> {
        match self.receive_once(room, to.as_deref_mut()) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => match self.receive_once(room, to)? {
                Receipt::Ended => Ok(Receipt::Reset),
                other => Ok(other),
            },
            other => other,
        }
    }

    fn receive_once(&self, room: &mut [u8], mut to: Option<&mut Vec<OwnedFd>>) -> io::Result<Receipt> {
        let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
        let used = if to.is_some() { ANCILLARY_BYTES } else { 0 };
        let mut ancillary = RecvAncillaryBuffer::new(&mut space[..used]);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut receive = || recvmsg(&self.0, &mut [IoSliceMut::new(room)], &mut ancillary, flags);
        let received = match retry_on_intr(&mut receive) {
            Err(Errno::AGAIN) => return Ok(Receipt::Nothing),
            received => received?,
        };
        for message in ancillary.drain() {
            if let (RecvAncillaryMessage::ScmRights(descriptors), Some(to)) = (message, to.as_deref_mut()) {
                to.extend(descriptors);
            }
        }
        let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(match received.bytes {
            bytes if is_cut => Receipt::Cut(bytes),
            0 => Receipt::Ended,
            bytes => Receipt::Packet(bytes),
        })
    }

    /// Says whether the other end is closed, also while packets that it sent are unread.
    pub(super) fn has_ended(&self) -> bool {
        let mut entry = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let outcome = retry_on_intr(|| poll(&mut entry, Some(&Timespec::default())));
        outcome.is_ok() && !entry[0].revents().is_empty()
    }

    /// Closes both directions for every process that has a copy of the descriptor.
    pub(super) fn shut_down(&self) {
        // It fails if the other end is closed, which is as good.
        _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The event for which a socket is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A packet, a connection or the end of the peer.
    Incoming,
    /// As `Incoming`, or room for a packet.
    IncomingOrRoom,
}

/// Waits until the awaited event of a socket has come, at most `limit`. Returns for each socket whether its event has come; none
/// after a signal.
pub(super) fn wait(sockets: &[(BorrowedFd<'_>, Awaited)], limit: Duration) -> io::Result<Vec<bool>> {
    let entry = |(fd, awaited): &(_, Awaited)| {
        let room = if *awaited == Awaited::IncomingOrRoom { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::from_borrowed_fd(*fd, PollFlags::IN | room)
    };
    let mut entries: Vec<PollFd<'_>> = sockets.iter().map(entry).collect();
    match poll(&mut entries, Timespec::try_from(limit).ok().as_ref()) {
        Ok(_) => Ok(entries.iter().map(|entry| !entry.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; sockets.len()]),
        Err(error) => Err(error.into()),
    }
}
