//! Memory that processes share: a file without a name, which a rank makes, maps, seals, and passes to its peers by descriptor.
//!
//! ```text
//! make       memfd_create, fallocate (no page can be missing later), seal the length
//! own        map to read and write; for words that peers only read: seal against further writable mappings
//! pass       the descriptor, over a socket
//! receive    check length and seals, map
//! ```
//!
//! Nothing has a name, so nothing is left when the last process has ended. The length is sealed, so no peer can shorten the file under a
//! mapping (SIGBUS). The pages count for the control group of the process, which may kill a process that exceeds its limit instead of
//! refusing the memory; so the limit is read first.
//!
//! Source: memfd_create(2), fcntl(2); the manner is that of Wayland compositors.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::system::memory::available_bytes;

/// The least size for which huge pages are requested. Chosen: that of one.
const HUGE_FROM_BYTES: usize = 2 << 20;

/// The seals of the length. Nobody can add or remove pages, nor seals.
const SEALED_LENGTH: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Memory without a name, of a fixed length.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    descriptor: OwnedFd,
    bytes: usize,
    what: &'static str,
}

impl SharedMemory {
    /// Makes `bytes` zeroed bytes; `what` names them in messages and, behind `nvcoll`, in lists of open files.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there are no pages, [`Error::System`] if there is no descriptor.
    pub(crate) fn make(what: &'static str, bytes: usize) -> Result<Self> {
        let no_memory = || Error::NoMemory { what, bytes };
        if available_bytes().is_some_and(|available| available < bytes as u64) {
            return Err(no_memory());
        }
        let name = CString::new(format!("nvcoll {what}")).expect("no zero in what is written above");
        // SAFETY: the name is a string that ends with a zero.
        let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if raw < 0 {
            let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            let advice = "raise the limit of open files (`ulimit -n`) if it is reached";
            return Err(match number {
                libc::ENOMEM => no_memory(),
                _ => Error::System { what: format!("no descriptor for {bytes} bytes of {what}: {advice}"), number },
            });
        }
        // SAFETY: `memfd_create` returned the descriptor, which nobody else has.
        let memory = Self { descriptor: unsafe { OwnedFd::from_raw_fd(raw) }, bytes, what };
        let length = libc::off_t::try_from(bytes).map_err(|_| no_memory())?;
        // SAFETY: the calls read and write no memory of this process.
        let is_made = unsafe {
            libc::fallocate(raw, 0, 0, length.max(1)) == 0 && libc::fcntl(raw, libc::F_ADD_SEALS, SEALED_LENGTH) == 0
        };
        is_made.then_some(memory).ok_or_else(no_memory)
    }

    /// Takes memory that a peer made.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not such memory, or of another length.
    pub(crate) fn received(what: &'static str, bytes: usize, descriptor: OwnedFd) -> Result<Self> {
        // SAFETY: zeros are a `stat`.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `status` is a place for the answer; the other call writes no memory of this process.
        let (found, seals) = unsafe {
            let told = libc::fstat(descriptor.as_raw_fd(), &raw mut status) == 0;
            (told.then_some(status.st_size), libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS))
        };
        if seals < 0 || seals & SEALED_LENGTH != SEALED_LENGTH || found != Some(bytes.max(1) as libc::off_t) {
            return Err(Error::Invalid(format!(
                "a peer passed a descriptor that is not {bytes} bytes of {what} with a sealed length"
            )));
        }
        Ok(Self { descriptor, bytes, what })
    }

    /// Maps the memory to read and write it.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is no address space.
    pub(crate) fn map(&self) -> Result<MemoryBlock> {
        self.map_with(libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps the memory to read it.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is no address space.
    pub(crate) fn map_to_read(&self) -> Result<MemoryBlock> {
        self.map_with(libc::PROT_READ)
    }

    fn map_with(&self, protection: i32) -> Result<MemoryBlock> {
        let bytes = self.bytes.max(1);
        let raw = self.descriptor.as_raw_fd();
        // SAFETY: the system chooses the address, so no other mapping is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, raw, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::NoMemory { what: self.what, bytes });
        }
        if bytes >= HUGE_FROM_BYTES {
            // SAFETY: the pages are ours, and how large they are changes nothing that a program can read. Whether the advice
            // is followed does not matter.
            unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the mapping is new, and only the block knows it.
        Ok(unsafe { MemoryBlock::of_mapping(start.cast(), bytes) })
    }

    /// Refuses further writable mappings, here and in peers; those that exist stay. A kernel before 5.1 has no such seal, and peers
    /// map the memory read-only in any case.
    pub(crate) fn close_to_writers(&self) {
        // SAFETY: the call reads and writes no memory of this process.
        unsafe { libc::fcntl(self.descriptor.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
    }

    /// Returns the length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the descriptor, to pass it to peers.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Says whether such memory has huge pages, by making some: the setting `shmem_enabled` of the system decides. `None` if it cannot be made, or
/// the system does not tell.
pub fn has_huge_pages() -> Option<bool> {
    let block = SharedMemory::make("huge pages", 2 * HUGE_FROM_BYTES).ok()?.map().ok()?;
    let start = block.start();
    for at in (0..block.bytes()).step_by(HUGE_FROM_BYTES) {
        // SAFETY: the byte is in the block, which nobody else knows.
        unsafe { start.add(at).write_volatile(1) };
    }
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let own = maps.split_once(&format!("{:x}-", start.addr()))?.1;
    let kib: u64 = own.split_once("ShmemPmdMapped:")?.1.split_whitespace().next()?.parse().ok()?;
    Some(kib > 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_memory_and_a_closed_one_cannot_be_mapped_to_write() {
        let memory = SharedMemory::make("a test", 5000).unwrap();
        let (own, peer) = (memory.map().unwrap(), memory.map_to_read().unwrap());
        memory.close_to_writers();
        // SAFETY: both mappings have 5000 bytes, and nobody else knows them.
        unsafe {
            own.start().add(4999).write_volatile(7);
            assert_eq!(peer.start().add(4999).read_volatile(), 7);
        }
        assert!(matches!(memory.map(), Err(Error::NoMemory { .. })));
    }

    #[test]
    fn a_descriptor_of_another_length_or_without_seals_is_refused() {
        let memory = SharedMemory::make("a test", 5000).unwrap();
        let copy = || memory.descriptor().try_clone_to_owned().unwrap();
        assert!(SharedMemory::received("a test", 5000, copy()).is_ok());
        assert!(SharedMemory::received("a test", 5001, copy()).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(SharedMemory::received("a test", 5000, file.into()).is_err());
    }

    #[test]
    fn huge_pages_are_told_as_the_system_is_set() {
        let set = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
        let told = has_huge_pages();
        assert!(told.is_some());
        if ["[never]", "[deny]"].iter().any(|word| set.contains(word)) {
            assert_eq!(told, Some(false));
        }
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        assert!(matches!(SharedMemory::make("a test", 1 << 60), Err(Error::NoMemory { .. })));
    }
}
