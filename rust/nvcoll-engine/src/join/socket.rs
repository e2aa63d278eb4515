//! Unix sockets that keep packets apart (`SOCK_SEQPACKET`): the system calls of the mesh as functions that are safe to call.
//!
//! Names are of the abstract namespace: no file has them, and the kernel forgets a name with its socket. Every descriptor is
//! closed on exec. No call blocks, except [`wait`].

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// The most descriptors of a packet. Chosen: a rank's regions are fewer.
pub(super) const MOST_DESCRIPTORS: usize = 8;

/// The bytes of a name without its leading zero. Cited: unix(7), 108 bytes with it.
pub(super) const LONGEST_NAME: usize = 107;

/// The most connections that wait to be accepted; the kernel takes the smaller of this and `net.core.somaxconn`. Chosen: more
/// than ranks of a job.
const BACKLOG: c_int = 4096;

/// The bytes before the name in an address.
const NAME_OFFSET: usize = offset_of!(libc::sockaddr_un, sun_path);

/// The bytes of ancillary data with [`MOST_DESCRIPTORS`]. More descriptors than that find no room, and the kernel closes them.
// SAFETY: the function computes with its argument only.
const ANCILLARY_BYTES: usize = unsafe { libc::CMSG_SPACE((MOST_DESCRIPTORS * size_of::<c_int>()) as u32) } as usize;

/// Ancillary data, aligned as its header must be.
#[repr(C)]
union Ancillary {
    bytes: [u8; ANCILLARY_BYTES],
    _header: libc::cmsghdr,
}

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
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() }
}

/// Calls the system again while signals interrupt it. Negative results are errors.
fn call(mut system: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(system()) {
            Ok(result) => return Ok(result),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => (),
                error => return Err(error),
            },
        }
    }
}

/// Calls the system for a new descriptor.
fn call_for_descriptor(mut system: impl FnMut() -> c_int) -> io::Result<OwnedFd> {
    let descriptor = call(|| system() as isize)? as c_int;
    // SAFETY: the kernel has just made it for this call, so that nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the address of a name; without one, the address by which the kernel is asked for a name.
fn address(name: Option<&[u8]>) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let name_bytes = name.map_or(0, |name| name.len() + 1);
    if name_bytes > LONGEST_NAME + 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: zeros are an address of no family.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.unwrap_or_default()) {
        *to = *from as _;
    }
    Ok((address, (NAME_OFFSET + name_bytes) as libc::socklen_t))
}

impl PacketSocket {
    fn new() -> io::Result<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the call reads no memory.
        call_for_descriptor(|| unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).map(Self)
    }

    /// Makes a socket that listens under a name; without one, under a name that the kernel chooses.
    pub(super) fn listen(name: Option<&[u8]>) -> io::Result<Self> {
        let (socket, (address, bytes)) = (Self::new()?, address(name)?);
        let fd = socket.0.as_raw_fd();
        // SAFETY: the address lives through the call, and `bytes` of it are initialised.
        call(|| unsafe { libc::bind(fd, (&raw const address).cast(), bytes) } as isize)?;
        // SAFETY: the call reads no memory.
        call(|| unsafe { libc::listen(fd, BACKLOG) } as isize)?;
        Ok(socket)
    }

    /// Connects to the socket that listens under a name.
    ///
    /// # Errors
    /// `ConnectionRefused`: none listens. `WouldBlock`: it has many connections to accept first.
    pub(super) fn connect(name: &[u8]) -> io::Result<Self> {
        let (socket, (address, bytes)) = (Self::new()?, address(Some(name))?);
        let fd = socket.0.as_raw_fd();
        // SAFETY: the address lives through the call, and `bytes` of it are initialised.
        call(|| unsafe { libc::connect(fd, (&raw const address).cast(), bytes) } as isize)?;
        Ok(socket)
    }

    /// Accepts a connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<Self>> {
        let (fd, flags) = (self.0.as_raw_fd(), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        // SAFETY: null asks for no address.
        match call_for_descriptor(|| unsafe { libc::accept4(fd, null_mut(), null_mut(), flags) }) {
            Ok(descriptor) => Ok(Some(Self(descriptor))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the name under which this socket listens.
    pub(super) fn name(&self) -> io::Result<Vec<u8>> {
        let (mut address, _) = address(None)?;
        let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the address is writable for `bytes`, and both live through the call.
        call(|| unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &mut bytes) } as isize)?;
        let name = address.sun_path.iter().take((bytes as usize).saturating_sub(NAME_OFFSET)).skip(1);
        Ok(name.map(|byte| *byte as u8).collect())
    }

    /// Returns the process at the other end: the one that connected, or the one that began to listen.
    pub(super) fn peer(&self) -> io::Result<PeerProcess> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        let (fd, level, name) = (self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
        // SAFETY: the credentials are writable for `bytes`, and both live through the call.
        call(|| unsafe { libc::getsockopt(fd, level, name, (&raw mut found).cast(), &mut bytes) } as isize)?;
        Ok(PeerProcess { process: found.pid.try_into().unwrap_or(0), user: found.uid })
    }

    /// Sends a packet with at most [`MOST_DESCRIPTORS`] descriptors.
    pub(super) fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Sending> {
        assert!(descriptors.len() <= MOST_DESCRIPTORS, "the callers count descriptors");
        let mut data = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        let mut ancillary = Ancillary { bytes: [0; ANCILLARY_BYTES] };
        // SAFETY: zeros are a header of nothing.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut data, 1);
        if !descriptors.is_empty() {
            let bytes = size_of_val(descriptors) as u32;
            header.msg_control = (&raw mut ancillary).cast();
            // SAFETY: the function computes with its argument only.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
            // SAFETY: `msg_control` has room and alignment for a header and for `MOST_DESCRIPTORS`, of which there are not more.
            // A `BorrowedFd` is a number (`repr(transparent)`).
            unsafe {
                let first = &mut *libc::CMSG_FIRSTHDR(&header);
                (first.cmsg_level, first.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
                first.cmsg_len = libc::CMSG_LEN(bytes) as _;
                libc::CMSG_DATA(first).copy_from_nonoverlapping(descriptors.as_ptr().cast(), bytes as usize);
            }
        }
        // SAFETY: the header points to data and ancillary data that live through the call.
        match call(|| unsafe { libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }) {
            Ok(_) => Ok(Sending::Done),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(Sending::NoRoom),
                Some(libc::ENOBUFS | libc::ETOOMANYREFS) => Ok(Sending::NotNow),
                Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => Ok(Sending::Ended),
                _ => Err(error),
            },
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

    fn receive_once(&self, room: &mut [u8], to: Option<&mut Vec<OwnedFd>>) -> io::Result<Receipt> {
        let mut data = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let mut ancillary = Ancillary { bytes: [0; ANCILLARY_BYTES] };
        // SAFETY: zeros are a header of nothing.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut data, 1);
        if to.is_some() {
            header.msg_control = (&raw mut ancillary).cast();
            header.msg_controllen = ANCILLARY_BYTES as _;
        }
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header points to writable memory that lives through the call; nobody else refers to it.
        let bytes = match call(|| unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, flags) }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Receipt::Nothing),
            result => result?,
        };
        if let Some(to) = to {
            // SAFETY: the kernel has just filled the header, and `ancillary`, to which it points, lives.
            unsafe { take_descriptors(&header, to) };
        }
        let is_cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        Ok(match bytes {
            _ if is_cut => Receipt::Cut(bytes),
            0 => Receipt::Ended,
            _ => Receipt::Packet(bytes),
        })
    }

    /// Says whether the other end is closed, also while packets that it sent are unread.
    pub(super) fn has_ended(&self) -> bool {
        let mut entry = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: the call gets one entry, which lives through it.
        let outcome = call(|| unsafe { libc::poll(&mut entry, 1, 0) } as isize);
        outcome.is_ok() && entry.revents != 0
    }

    /// Closes both directions for every process that has a copy of the descriptor.
    pub(super) fn shut_down(&self) {
        // SAFETY: the call reads no memory. It fails if the other end is closed, which is as good.
        _ = unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the descriptors out of ancillary data.
///
/// # Safety
/// The kernel filled the header, and the ancillary data to which it points lives. Nobody else takes descriptors out of it.
unsafe fn take_descriptors(header: &libc::msghdr, to: &mut Vec<OwnedFd>) {
    // SAFETY: the caller vouches for the header.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: the kernel's headers are aligned, and `next` is one of them. Each descriptor is new and is taken once.
        unsafe {
            if ((*next).cmsg_level, (*next).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*next).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let first: *const c_int = libc::CMSG_DATA(next).cast();
                let one = |index| OwnedFd::from_raw_fd(first.add(index).read_unaligned());
                to.extend((0..bytes / size_of::<c_int>()).map(one));
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
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
    let entry = |&(fd, awaited): &(BorrowedFd<'_>, Awaited)| {
        let room = if awaited == Awaited::IncomingOrRoom { libc::POLLOUT } else { 0 };
        libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN | room, revents: 0 }
    };
    let mut entries: Vec<libc::pollfd> = sockets.iter().map(entry).collect();
    let milliseconds = limit.as_micros().div_ceil(1000).try_into().unwrap_or(c_int::MAX);
    // SAFETY: the entries live through the call, and their number is passed with them.
    if unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, milliseconds) } < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(vec![false; sockets.len()]) } else { Err(error) };
    }
    Ok(entries.iter().map(|entry| entry.revents != 0).collect())
}
