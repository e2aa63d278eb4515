//! Memory that processes share: a file without a name, which a rank makes, maps, seals, and passes to its peers by descriptor.
//!
//! ```text
//! make       memfd_create, set and seal the length, fallocate (no page can be missing later)
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

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{madvise, mmap, Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::memory::block::MemoryBlock;
use crate::memory::heap::HeapPages;
use crate::system::memory::available_bytes;

/// The least size for which huge pages are requested. Chosen: that of one.
const HUGE_FROM_BYTES: usize = 2 << 20;

/// The seals of the length. Nobody can add or remove pages at the end, nor seals.
const SEALED_LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

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
    /// [`Error::NoMemory`] if there are no pages, [`Error::System`] if the system refuses a call.
    pub(crate) fn make(what: &'static str, bytes: usize) -> Result<Self> {
        let memory = Self::reserve(what, bytes)?;
        memory.fill(0..bytes.max(1))?;
        Ok(memory)
    }

    /// Makes memory of a length without pages, for which there could be pages now.
    ///
    /// # Errors
    /// As [`SharedMemory::make`].
    pub(crate) fn reserve(what: &'static str, bytes: usize) -> Result<Self> {
        if available_bytes().is_some_and(|available| available < bytes as u64) {
            return Err(Error::NoMemory { what, bytes });
        }
        let advice = |number| match number {
            Errno::MFILE | Errno::NFILE => ": raise the limit of open files (`ulimit -n`) if it is reached",
            _ => ": the system refuses memfd_create: see whether a sandbox forbids it",
        };
        let failed = |number: Errno| match number {
            Errno::NOMEM => Error::NoMemory { what, bytes },
            _ => refused(format!("no descriptor for {bytes} bytes of {what}{}", advice(number)), number),
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create(format!("nvcoll {what}"), flags).map_err(failed)?;
        let memory = Self { descriptor, bytes, what };
        ftruncate(&memory.descriptor, bytes.max(1) as u64).map_err(|number| memory.no_pages(number))?;
        fcntl_add_seals(&memory.descriptor, SEALED_LENGTH).map_err(|number| memory.no_pages(number))?;
        Ok(memory)
    }

    /// Returns the error of pages or a length that the system refuses.
    fn no_pages(&self, number: Errno) -> Error {
        let Self { bytes, what, .. } = *self;
        let why = match number {
            Errno::FBIG => "raise the limit of the size of files (`ulimit -f`), or pass smaller arrays",
            _ => "see whether a sandbox forbids fallocate",
        };
        match number {
            Errno::NOMEM | Errno::NOSPC | Errno::INVAL | Errno::OVERFLOW => Error::NoMemory { what, bytes },
            _ => refused(format!("the system refuses {bytes} bytes of {what}: {why}"), number),
        }
    }

    /// Takes memory that a peer made.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not such memory, or of another length.
    pub(crate) fn received(what: &'static str, bytes: usize, descriptor: OwnedFd) -> Result<Self> {
        let has_length = fstat(&descriptor).is_ok_and(|status| status.st_size as u64 == bytes.max(1) as u64);
        if !has_length || !fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(SEALED_LENGTH)) {
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
        self.map_with(ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps the memory to read it.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is no address space.
    pub(crate) fn map_to_read(&self) -> Result<MemoryBlock> {
        self.map_with(ProtFlags::READ)
    }

    fn map_with(&self, protection: ProtFlags) -> Result<MemoryBlock> {
        let bytes = self.bytes.max(1);
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: the system chooses the address, so no other mapping is replaced.
        let mapped = unsafe { mmap(anywhere, bytes, protection, flags, &self.descriptor, 0) };
        let start = mapped.map_err(|_| Error::NoMemory { what: self.what, bytes })?;
        if bytes >= HUGE_FROM_BYTES {
            // SAFETY: the pages are ours, and how large they are changes nothing that a program can read. Whether the advice
            // is followed does not matter.
            _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        // SAFETY: the mapping is new, and only the block knows it.
        Ok(unsafe { MemoryBlock::of_mapping(start.cast(), bytes) })
    }

    /// Refuses further writable mappings, here and in peers; those that exist stay. A kernel before 5.1 has no such seal, and peers
    /// map the memory read-only in any case.
    pub(crate) fn close_to_writers(&self) {
        _ = fcntl_add_seals(&self.descriptor, SealFlags::FUTURE_WRITE);
    }

    /// Returns the bytes of the pages that it has.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        fstat(&self.descriptor).map_or(0, |status| status.st_blocks as usize * 512)
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

impl HeapPages for SharedMemory {
    fn fill(&self, range: Range<usize>) -> Result<()> {
        // The question costs more than a few pages.
        let is_long = range.len() >= HUGE_FROM_BYTES;
        if is_long && available_bytes().is_some_and(|available| available < range.len() as u64) {
            return Err(Error::NoMemory { what: self.what, bytes: range.len() });
        }
        let filled = fallocate(&self.descriptor, FallocateFlags::empty(), range.start as u64, range.len() as u64);
        filled.map_err(|number| self.no_pages(number))
    }

    fn empty(&self, range: Range<usize>) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Whether the system takes them does not matter.
        _ = fallocate(&self.descriptor, flags, range.start as u64, range.len() as u64);
    }
}

fn refused(what: String, number: Errno) -> Error {
    Error::System { what, number: number.raw_os_error() }
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
        let found = has_huge_pages();
        assert!(found.is_some());
        if ["[never]", "[deny]"].iter().any(|word| set.contains(word)) {
            assert_eq!(found, Some(false));
        }
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        assert!(matches!(SharedMemory::make("a test", 1 << 60), Err(Error::NoMemory { .. })));
    }

    #[test]
    fn a_range_without_pages_reads_zeros_and_can_have_pages_again() {
        let memory = SharedMemory::reserve("a test", 1 << 20).unwrap();
        let pages = || memory.held_bytes() / 4096;
        let block = memory.map().unwrap();
        assert_eq!(pages(), 0);
        memory.fill(4096..12288).unwrap();
        assert_eq!(pages(), 2);
        // SAFETY: the byte is in the block, which nobody else knows.
        unsafe { block.start().add(4096).write_volatile(7) };
        memory.empty(4096..8192);
        assert_eq!(pages(), 1);
        // SAFETY: as above.
        assert_eq!(unsafe { block.start().add(4096).read_volatile() }, 0);
    }
}
