//! NVML: the same GPUs as the runtime sees, idle, in one node with a switch.
//!
//! torch asks it for NVLinks, peer access and the processes of an error message; scripts ask for use, memory, power and
//! temperature. A virtual GPU is idle and cool: measured quantities have plausible constants here, marked below.
//!
//! Names, argument orders, layouts and numbers of enums are from NVIDIA's documentation, *NVML API reference guide*.
use std::ffi::{c_int, c_uint};

use crate::arguments::{Room, Text};
use crate::attributes::{BUS_BITS, CLOCK_KHZ};
use crate::entry_points::functions;
use crate::gpu::{gpu, pci_address, pci_bus, uuid};
use crate::{memory, set, Answer, Failure, Handle, Out, Status};

/// The handle of the first GPU, and the distance to the next (chosen: numbers that look like pointers).
const FIRST: Handle = 0x2_0000;
const APART: Handle = 64;

/// `nvmlReturn_t`: invalid argument, not supported, not found, insufficient size.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    body().map_or_else(
        |failure| match failure {
            Failure::NOT_SUPPORTED => 3,
            Failure::NOT_FOUND => 6,
            Failure::OUT_OF_MEMORY => 7,
            _ => 2,
        },
        |()| 0,
    )
}

/// `nvmlMemory_t`: bytes.
#[repr(C)]
pub(crate) struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`: bytes.
#[repr(C)]
pub(crate) struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub(crate) struct Pci {
    legacy_address: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    address: [u8; 32],
}

/// `nvmlGpuFabricInfoV_t`, as far as it is written: its version, the cluster, a status, the clique and the state.
#[repr(C)]
pub(crate) struct NvmlFabric {
    version: c_uint,
    rest: [u8; 25],
}

/// The GPU of a handle.
fn device_of(handle: Handle) -> Result<u16, Failure> {
    let offset = handle.checked_sub(FIRST).filter(|offset| offset % APART == 0);
    let index = offset.map(|offset| offset / APART).filter(|index| *index < gpu().devices as usize);
    index.map(|index| index as u16).ok_or(Failure::INVALID_HANDLE)
}

fn handle_of(device: u16) -> Handle {
    FIRST + APART * Handle::from(device)
}

/// Writes the handle of the GPU that a text names.
fn find(text: Text<'_>, out: Out<'_, Handle>, is_named: impl Fn(u16, &str) -> bool) -> Answer {
    let text = text.read()?.to_string_lossy().to_lowercase();
    let found = (0..gpu().devices as u16).find(|device| is_named(*device, &text)).ok_or(Failure::NOT_FOUND)?;
    set(out, handle_of(found))
}

/// Writes a text and its zero byte to a place of `size` bytes, which must have room for both.
fn write(text: &str, out: Room<u8>, size: c_uint) -> Answer {
    if text.len() >= size as usize {
        return Err(Failure::OUT_OF_MEMORY);
    }
    out.write_text(size as i32, text)
}

fn uuid_text(device: u16) -> String {
    let hex: String = uuid(device).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Refuses an NVLink that a GPU does not have: V100 6, A100 12, H100 and B200 18; boards with a lower class of memory have none.
fn link(handle: Handle, number: c_uint) -> Answer {
    let links = match gpu().capability {
        70 => 6,
        80 => 12,
        90 | 100 | 103 => 18,
        _ => 0,
    };
    device_of(handle)?;
    (number < links).then_some(()).ok_or(Failure::NOT_SUPPORTED)
}

fn memory_of(handle: Handle) -> Result<NvmlMemory, Failure> {
    let (total, free) = (gpu().memory_bytes, memory::free(device_of(handle)?));
    Ok(NvmlMemory { total, free, used: total - free })
}

/// The PCI record of a GPU or of its switch.
fn pci(device: Option<u16>) -> Pci {
    let address = device.map_or_else(|| "0000:0f:00.0".into(), pci_address);
    let bus = device.map_or(15, pci_bus);
    let (mut legacy_address, mut long) = ([0; 16], [0; 32]);
    legacy_address[..address.len()].copy_from_slice(address.as_bytes());
    long[..4].copy_from_slice(b"0000");
    long[4..4 + address.len()].copy_from_slice(address.as_bytes());
    Pci { legacy_address, domain: 0, bus, device: 0, device_id: 0x10de, subsystem_id: 0x10de, address: long }
}

functions! { answer:
    nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlShutdown() => Ok(());
    nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2(out: Out<c_int>) => set(out, gpu().version());
    // The first of the branch that has this CUDA.
    nvmlSystemGetDriverVersion(out: Room<u8>, size: c_uint) =>
        write(if gpu().cuda == 12 { "575.51.03" } else { "595.45.04" }, out, size);
    nvmlDeviceGetCount_v2(out: Out<c_uint>) => set(out, gpu().devices);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: Out<Handle>) => {
        let device = u16::try_from(index).ok().filter(|_| index < gpu().devices);
        set(out, handle_of(device.ok_or(Failure::INVALID_VALUE)?))
    };
    // The domain may have four or eight digits.
    nvmlDeviceGetHandleByPciBusId_v2(address: Text, out: Out<Handle>) =>
        find(address, out, |device, text| text.ends_with(&pci_address(device)[5..]));
    nvmlDeviceGetHandleByUUID(text: Text, out: Out<Handle>) =>
        find(text, out, |device, text| text == uuid_text(device).to_lowercase());
    nvmlDeviceGetName(handle: Handle, out: Room<u8>, size: c_uint) =>
        device_of(handle).and_then(|_| write(&gpu().name, out, size));
    nvmlDeviceGetUUID(handle: Handle, out: Room<u8>, size: c_uint) => write(&uuid_text(device_of(handle)?), out, size);
    // A GPU is near all processors that the program may use.
    nvmlDeviceGetCpuAffinity(handle: Handle, words: c_uint, out: Room<u64>) => {
        device_of(handle)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let word = |number| (0..64).filter(|bit| number * 64 + bit < processors).fold(0, |word, bit| word | 1 << bit);
        out.write(&(0..words as usize).map(word).collect::<Vec<u64>>())
    };
    nvmlDeviceGetIndex nvmlDeviceGetMinorNumber(handle: Handle, out: Out<c_uint>) => set(out, device_of(handle)?.into());
    // Chosen: an idle board, in degrees, mW and mJ, and the limit of an H100 SXM.
    nvmlDeviceGetTemperature(handle: Handle, _sensor: c_int, out: Out<c_uint>) => device_of(handle).and_then(|_| set(out, 35));
    nvmlDeviceGetPowerUsage(handle: Handle, out: Out<c_uint>) => device_of(handle).and_then(|_| set(out, 75_000));
    nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetPowerManagementLimit(handle: Handle, out: Out<c_uint>) =>
        device_of(handle).and_then(|_| set(out, 700_000));
    nvmlDeviceGetTotalEnergyConsumption(handle: Handle, out: Out<u64>) => device_of(handle).and_then(|_| set(out, 0));
    // Of the GPU and of its memory, in percent of time.
    nvmlDeviceGetUtilizationRates(handle: Handle, out: Out<[c_uint; 2]>) => device_of(handle).and_then(|_| set(out, [0; 2]));
    // MHz: the clocks that the runtime says.
    nvmlDeviceGetClockInfo nvmlDeviceGetMaxClockInfo(handle: Handle, _kind: c_int, out: Out<c_uint>) =>
        device_of(handle).and_then(|_| set(out, CLOCK_KHZ as c_uint / 1000));
    nvmlDeviceGetMemoryBusWidth(handle: Handle, out: Out<c_uint>) => device_of(handle).and_then(|_| set(out, BUS_BITS as c_uint));
    nvmlDeviceGetPersistenceMode(handle: Handle, out: Out<c_uint>) => device_of(handle).and_then(|_| set(out, 1));
    nvmlDeviceGetCudaComputeCapability(handle: Handle, major: Out<c_int>, minor: Out<c_int>) => {
        device_of(handle)?;
        set(major, gpu().capability as c_int / 10)?;
        set(minor, gpu().capability as c_int % 10)
    };
    nvmlDeviceGetMemoryInfo(handle: Handle, out: Out<NvmlMemory>) => set(out, memory_of(handle)?);
    // The driver keeps nothing of it.
    nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: Option<&mut Memory2>) => {
        let (out, NvmlMemory { total, free, used }) = (out.ok_or(Failure::INVALID_VALUE)?, memory_of(handle)?);
        *out = Memory2 { version: out.version, total, reserved: 0, free, used };
        Ok(())
    };
    nvmlDeviceGetPciInfo_v3(handle: Handle, out: Out<Pci>) => set(out, pci(Some(device_of(handle)?)));
    // At the other end of each NVLink is a switch, and every NVLink is active.
    nvmlDeviceGetNvLinkRemoteDeviceType(handle: Handle, number: c_uint, out: Out<c_int>) =>
        link(handle, number).and_then(|()| set(out, 2));
    nvmlDeviceGetNvLinkRemotePciInfo_v2(handle: Handle, number: c_uint, out: Out<Pci>) =>
        link(handle, number).and_then(|()| set(out, pci(None)));
    nvmlDeviceGetNvLinkState(handle: Handle, number: c_uint, out: Out<c_int>) =>
        link(handle, number).and_then(|()| set(out, 1));
    // All GPUs reach each other.
    nvmlDeviceGetP2PStatus(one: Handle, other: Handle, _kind: c_int, out: Out<c_int>) =>
        device_of(one).and(device_of(other)).and_then(|_| set(out, 0));
    // None that NVML would know.
    nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v3(handle: Handle, count: Out<c_uint>) =>
        device_of(handle).and_then(|_| set(count, 0));
    // There is no fabric of several nodes.
    nvmlDeviceGetGpuFabricInfoV(handle: Handle, out: Option<&mut NvmlFabric>) => {
        device_of(handle)?;
        out.ok_or(Failure::INVALID_VALUE)?.rest = [0; 25];
        Ok(())
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    const SUCCESS: c_int = 0;
    const INVALID_ARGUMENT: c_int = 2;
    const INSUFFICIENT_SIZE: c_int = 7;

    #[test]
    fn a_gpu_is_found_by_number_address_and_identifier() {
        let mut found = MaybeUninit::new(0);
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(3, Some(&mut found)), SUCCESS);
        // SAFETY: it was initialized.
        let handle = unsafe { found.assume_init() };
        for text in [format!("00000000{}", &pci_address(3)[4..]), uuid_text(3).to_uppercase()] {
            let text = std::ffi::CString::new(text).unwrap();
            let call =
                if text.to_bytes()[0] == b'0' { nvmlDeviceGetHandleByPciBusId_v2 } else { nvmlDeviceGetHandleByUUID };
            let mut again = MaybeUninit::new(0);
            assert_eq!(call(text.as_c_str().into(), Some(&mut again)), SUCCESS);
            // SAFETY: it was initialized.
            assert_eq!(unsafe { again.assume_init() }, handle);
        }
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(64, None), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetPowerUsage(handle + 1, None), INVALID_ARGUMENT);
    }

    #[test]
    fn a_text_never_passes_the_place_for_it() {
        let mut place = [7u8; 64];
        let handle = handle_of(0);
        assert_eq!(nvmlDeviceGetName(handle, Room::from(&mut place[..]), 4), INSUFFICIENT_SIZE);
        assert_eq!(place, [7; 64]);
        assert_eq!(nvmlDeviceGetName(handle, Room::from(&mut place[..]), 64), SUCCESS);
        let text: Vec<u8> = place.into_iter().take_while(|byte| *byte != 0).collect();
        assert_eq!(text, gpu().name.as_bytes());
    }
}
