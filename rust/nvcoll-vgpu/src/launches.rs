//! Kernels: their registration, their launches, and the questions about how many fit on a multiprocessor.
//!
//! A program's libraries carry their kernels in fat binaries and register each under the address of its host function; a
//! compiler at run time loads modules and asks for functions by name. Both are a name here, under a key that a launch gives.
//! The code of a kernel is never read, so what only the code knows is assumed: [`REGISTERS`], no static shared memory. Which image
//! of a fat binary the GPU runs is known ([`images`](crate::images)); without one a launch fails.
//!
//! A launch that a GPU would refuse is refused: too many threads, a grid beyond the limits, more shared memory than the
//! kernel asked for, a cooperative grid that does not fit.
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{LazyLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::gpu::{gpu, VirtualGpu};
use crate::images::{Binary, Version};
use crate::log::{self, RecordKind};
use crate::{lock, streams, Answer, Failure, Handle};

/// Registers of a thread, whose number is not known (chosen: a multiprocessor then holds the most threads).
pub const REGISTERS: u32 = 32;

/// Shared memory of a block that did not ask for more.
pub const SHARED_BYTES: u32 = 48 << 10;

/// The attribute of a function that lets its blocks have more shared memory.
pub const DYNAMIC_SHARED: i32 = 8;

/// Threads of a block.
pub const BLOCK_THREADS: u32 = 1024;

/// A kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisteredKernel {
    /// Its name in the log.
    pub name: u32,
    /// Dynamic shared memory that its blocks may have.
    pub shared_bytes: u32,
    /// The fat binary or module that holds it.
    pub owner: Handle,
}

/// Grid or block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Dim3 {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim3 {
    fn product(self) -> u64 {
        u64::from(self.x).saturating_mul(self.y.into()).saturating_mul(self.z.into())
    }
}

/// What a launch says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelLaunch {
    /// The key of the function.
    pub function: Handle,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Dynamic shared memory of a block.
    pub shared_bytes: usize,
    /// The stream.
    pub stream: Handle,
}

#[derive(Default)]
struct KernelTables {
    functions: HashMap<Handle, RegisteredKernel>,
    /// Fat binaries and modules.
    owners: HashMap<Handle, Binary>,
    /// The keys of a fat binary or module.
    owned: HashMap<Handle, Vec<Handle>>,
    /// Functions of modules, by module and name.
    by_name: HashMap<(Handle, u32), Handle>,
    made: usize,
}

static TABLES: LazyLock<RwLock<KernelTables>> = LazyLock::new(RwLock::default);

impl KernelTables {
    fn add(&mut self, owner: Handle, key: Handle, name: u32) {
        self.functions.insert(key, RegisteredKernel { name, shared_bytes: SHARED_BYTES, owner });
        self.owned.entry(owner).or_default().push(key);
    }
}

/// The first handle of modules and their functions: no address of a host function is so low.
const FIRST: Handle = 0x3000_0000;

fn read() -> RwLockReadGuard<'static, KernelTables> {
    lock::read(&TABLES)
}

fn write() -> RwLockWriteGuard<'static, KernelTables> {
    lock::write(&TABLES)
}

/// Makes the handle of a module that was compiled for this GPU.
pub fn create_module() -> Handle {
    create_owner(Binary::default())
}

/// Makes the handle of a fat binary.
pub(crate) fn create_owner(binary: Binary) -> Handle {
    let mut tables = write();
    tables.made += 1;
    let handle = FIRST + 64 * tables.made;
    tables.owners.insert(handle, binary);
    handle
}

/// Registers a kernel under the address of its host function.
pub fn register(owner: Handle, key: Handle, name: &CStr) {
    write().add(owner, key, log::name_of_text(name));
}

/// The function of a module with a name; it exists because it is asked for.
pub fn function_of(module: Handle, name: &CStr) -> Handle {
    let name = log::name_of_text(name);
    let mut tables = write();
    if let Some(handle) = tables.by_name.get(&(module, name)) {
        return *handle;
    }
    tables.made += 1;
    let handle = FIRST + 64 * tables.made;
    tables.by_name.insert((module, name), handle);
    tables.add(module, handle, name);
    handle
}

/// Forgets the functions of a fat binary or module.
pub fn unload(owner: Handle) {
    let mut tables = write();
    tables.owners.remove(&owner);
    for key in tables.owned.remove(&owner).unwrap_or_default() {
        if let Some(function) = tables.functions.remove(&key) {
            tables.by_name.remove(&(owner, function.name));
        }
    }
}

/// A function, which a program may ask for without code that this GPU runs.
///
/// # Errors
/// [`Failure::INVALID_FUNCTION`] for an unknown key.
pub fn registered(key: Handle) -> Result<RegisteredKernel, Failure> {
    read().functions.get(&key).copied().ok_or(Failure::INVALID_FUNCTION)
}

/// A function, and the version of its code that this GPU runs.
///
/// # Errors
/// [`Failure::INVALID_FUNCTION`] for an unknown key, [`Failure::NO_KERNEL_IMAGE`] for code that this GPU does not run.
pub fn function(key: Handle) -> Result<(RegisteredKernel, Version), Failure> {
    let tables = read();
    let function = tables.functions.get(&key).copied().ok_or(Failure::INVALID_FUNCTION)?;
    let binary = tables.owners.get(&function.owner).ok_or(Failure::INVALID_FUNCTION)?;
    Ok((function, binary.version(gpu().capability).ok_or(Failure::NO_KERNEL_IMAGE)?))
}

/// Lets the blocks of a function have more shared memory.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] beyond what the GPU has, [`Failure::INVALID_FUNCTION`].
pub fn allow_shared(key: Handle, bytes: i32) -> Answer {
    let bytes = u32::try_from(bytes).map_err(|_| Failure::INVALID_VALUE)?;
    if bytes > gpu().limits.shared_per_block_bytes {
        return Err(Failure::INVALID_VALUE);
    }
    let mut tables = write();
    tables.functions.get_mut(&key).ok_or(Failure::INVALID_FUNCTION)?.shared_bytes = bytes;
    Ok(())
}

/// Attributes of a function that are hints: the carveout of shared memory, clusters of blocks.
const HINTS: std::ops::RangeInclusive<i32> = 9..=15;

/// Sets an attribute of a function.
///
/// # Errors
/// [`Failure::INVALID_VALUE`] for more shared memory than the GPU has and for attributes that CUDA 13.2 does not have or set (Triton
/// then takes another way), [`Failure::INVALID_FUNCTION`].
pub fn set_attribute(key: Handle, attribute: i32, value: i32) -> Answer {
    match attribute {
        DYNAMIC_SHARED => allow_shared(key, value),
        _ if HINTS.contains(&attribute) => function(key).map(drop),
        _ => Err(Failure::INVALID_VALUE),
    }
}

/// Blocks of a kernel that a multiprocessor holds at once.
///
/// The least of: threads (in whole warps), blocks, registers, shared memory with the part that the system takes.
pub fn resident_blocks(gpu: &VirtualGpu, threads: u32, shared_bytes: usize) -> u32 {
    let limits = &gpu.limits;
    if threads == 0 || threads > BLOCK_THREADS || shared_bytes > limits.shared_per_block_bytes as usize {
        return 0;
    }
    let threads = threads.next_multiple_of(32);
    let by_registers = 65536 / (threads * REGISTERS);
    let shared = shared_bytes as u32 + limits.reserved_per_block_bytes;
    let by_shared = limits.shared_per_sm_bytes.checked_div(shared).unwrap_or(u32::MAX);
    (limits.threads_per_sm / threads).min(limits.blocks_per_sm).min(by_registers).min(by_shared)
}

impl KernelLaunch {
    fn check(&self, function: &RegisteredKernel, at_once: bool) -> Answer {
        let (grid, block) = (self.grid, self.block);
        let has_none = [grid.x, grid.y, grid.z, block.x, block.y, block.z].contains(&0);
        let is_beyond = grid.x > i32::MAX as u32 || grid.y > 65535 || grid.z > 65535 || block.z > 64;
        if has_none || is_beyond || block.product() > BLOCK_THREADS.into() {
            return Err(Failure::INVALID_CONFIGURATION);
        }
        if self.shared_bytes > function.shared_bytes.max(SHARED_BYTES) as usize {
            return Err(Failure::INVALID_VALUE);
        }
        let resident = resident_blocks(gpu(), block.product() as u32, self.shared_bytes);
        if at_once && grid.product() > u64::from(resident) * u64::from(gpu().sms) {
            return Err(Failure::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        streams::check(self.stream)
    }

    /// Writes the launch down; `at_once` says whether all blocks must run at once.
    ///
    /// # Errors
    /// [`Failure::INVALID_FUNCTION`], [`Failure::NO_KERNEL_IMAGE`], [`Failure::INVALID_CONFIGURATION`] and others for what a GPU refuses.
    pub fn run(&self, at_once: bool) -> Answer {
        let (function, _) = function(self.function)?;
        self.check(&function, at_once)?;
        let args = [self.grid.product(), self.block.product(), self.shared_bytes as u64];
        log::push(RecordKind::Launch, self.stream, function.name, args);
        Ok(())
    }
}

/// Clusters of blocks that run at once: eight blocks, the portable size, to a cluster (chosen).
pub fn resident_clusters(gpu: &VirtualGpu) -> u32 {
    gpu.sms / 8
}
