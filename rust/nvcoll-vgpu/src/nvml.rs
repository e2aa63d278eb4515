//! NVML: the same GPUs as the runtime sees, idle, in one node with a switch.
//!
//! torch asks it for NVLinks, peer access and the processes of an error message; scripts ask for use, memory, power and
//! temperature. A virtual GPU is idle and cool: what is measured on a real one has a plausible constant here, marked below.
//!
//! Names, argument orders, layouts and numbers of enums are those of NVIDIA's documentation, *NVML API reference guide*.
use std::ffi::{c_char, c_int, c_uint, CStr};
use std::mem::MaybeUninit;

use crate::gpu::{gpu, pci_address, pci_bus, uuid};
use crate::{memory, set, Handle, Out};

/// Success and the errors of `nvmlReturn_t` that are reported.
const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;

/// The handle of the first GPU, and the distance to the next (chosen: numbers that look like pointers).
const FIRST: Handle = 0x2_0000;
const APART: Handle = 64;

/// What a call answers before it becomes a status.
type Answer = Result<(), c_int>;

/// `nvmlMemory_t`: bytes.
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`: bytes.
#[repr(C)]
struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`: percent of time.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct Pci {
    legacy_address: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    address: [u8; 32],
}

fn status(answer: Answer) -> c_int {
    answer.err().unwrap_or(SUCCESS)
}

fn put<T>(out: Out<'_, T>, value: T) -> Answer {
    set(out, value).map_err(|_| INVALID_ARGUMENT)
}

/// The GPU of a handle.
fn device_of(handle: Handle) -> Result<u16, c_int> {
    let offset = handle.checked_sub(FIRST).ok_or(INVALID_ARGUMENT)?;
    let index = offset / APART;
    if offset % APART == 0 && index < gpu().devices as usize {
        Ok(index as u16)
    } else {
        Err(INVALID_ARGUMENT)
    }
}

fn handle_of(device: u16) -> Handle {
    FIRST + APART * Handle::from(device)
}

/// Writes the handle of the GPU that a text names.
fn find(text: Option<&c_char>, out: Out<'_, Handle>, is_named: impl Fn(u16, &str) -> bool) -> Answer {
    let text = text.ok_or(INVALID_ARGUMENT)?;
    // SAFETY: the text is a C string, by NVML's interface.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().to_lowercase();
    let found = (0..gpu().devices as u16).find(|device| is_named(*device, &text)).ok_or(NOT_FOUND)?;
    put(out, handle_of(found))
}

/// Writes a text and its zero byte to a place of `size` bytes.
fn write_text(text: &str, out: Option<&mut MaybeUninit<u8>>, size: c_uint) -> Answer {
    let out = out.ok_or(INVALID_ARGUMENT)?;
    if text.len() >= size as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the place has `size` bytes, by NVML's interface, and the text with its zero byte has no more.
    unsafe {
        text.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), text.len());
        out.as_mut_ptr().add(text.len()).write(0);
    }
    Ok(())
}

fn uuid_text(device: u16) -> String {
    let hex: String = uuid(device).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// NVLinks of a GPU: V100 6, A100 12, H100 and B200 18; boards with a lower class of memory have none.
fn links() -> c_uint {
    match gpu().capability {
        70 => 6,
        80 => 12,
        90 | 100 | 103 => 18,
        _ => 0,
    }
}

/// Calls without arguments that succeed.
macro_rules! succeeds {
    ($($name:ident)*) => { $(
        /// Succeeds.
        #[no_mangle]
        extern "C" fn $name() -> c_int {
            SUCCESS
        }
    )* };
}
succeeds! { nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlShutdown }

/// The text of a status.
#[no_mangle]
extern "C" fn nvmlErrorString(status: c_int) -> *const c_char {
    let text = match status {
        SUCCESS => c"Success",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

/// Writes the version of CUDA that the driver has.
#[no_mangle]
extern "C" fn nvmlSystemGetCudaDriverVersion(out: Out<'_, c_int>) -> c_int {
    status(put(out, gpu().version()))
}

/// Writes the version of CUDA that the driver has.
#[no_mangle]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: Out<'_, c_int>) -> c_int {
    status(put(out, gpu().version()))
}

/// Writes the version of the driver: the first of the branch that has this CUDA.
#[no_mangle]
extern "C" fn nvmlSystemGetDriverVersion(out: Option<&mut MaybeUninit<u8>>, size: c_uint) -> c_int {
    status(write_text(if gpu().cuda == 12 { "575.51.03" } else { "595.45.04" }, out, size))
}

/// Writes the number of GPUs.
#[no_mangle]
extern "C" fn nvmlDeviceGetCount_v2(out: Out<'_, c_uint>) -> c_int {
    status(put(out, gpu().devices))
}

/// Writes the handle of a GPU by its number.
#[no_mangle]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: Out<'_, Handle>) -> c_int {
    let device = u16::try_from(index).ok().filter(|_| index < gpu().devices);
    status(device.ok_or(INVALID_ARGUMENT).and_then(|device| put(out, handle_of(device))))
}

/// Writes the handle of a GPU by its PCI address; the domain may have four or eight digits.
#[no_mangle]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: Option<&c_char>, out: Out<'_, Handle>) -> c_int {
    status(find(address, out, |device, text| text.ends_with(&pci_address(device)[5..])))
}

/// Writes the handle of a GPU by its unique identifier.
#[no_mangle]
extern "C" fn nvmlDeviceGetHandleByUUID(text: Option<&c_char>, out: Out<'_, Handle>) -> c_int {
    status(find(text, out, |device, text| text == uuid_text(device).to_lowercase()))
}

/// Texts about a GPU.
macro_rules! texts {
    ($($name:ident: $text:expr;)*) => { $(
        /// Writes a text about a GPU.
        #[no_mangle]
        extern "C" fn $name(handle: Handle, out: Option<&mut MaybeUninit<u8>>, size: c_uint) -> c_int {
            let text: fn(u16) -> String = $text;
            status(device_of(handle).and_then(|device| write_text(&text(device), out, size)))
        }
    )* };
}
texts! {
    nvmlDeviceGetName: |_| gpu().name.clone();
    nvmlDeviceGetUUID: uuid_text;
}

/// Numbers about a GPU, after arguments that do not matter.
macro_rules! numbers {
    ($($name:ident($($skipped:ident)*): $value:expr;)*) => { $(
        /// Writes a number about a GPU.
        #[no_mangle]
        extern "C" fn $name(handle: Handle, $($skipped: c_uint,)* out: Out<'_, c_uint>) -> c_int {
            $(let _ = $skipped;)*
            let value: fn(u16) -> c_uint = $value;
            status(device_of(handle).and_then(|device| put(out, value(device))))
        }
    )* };
}
numbers! {
    nvmlDeviceGetIndex(): |device| device.into();
    nvmlDeviceGetMinorNumber(): |device| device.into();
    // Chosen: an idle board.
    nvmlDeviceGetTemperature(sensor): |_| 35;
    // Chosen, mW: an idle board, and the limit of an H100 SXM.
    nvmlDeviceGetPowerUsage(): |_| 75_000;
    nvmlDeviceGetEnforcedPowerLimit(): |_| 700_000;
    nvmlDeviceGetPowerManagementLimit(): |_| 700_000;
    // MHz: the clocks that the runtime says.
    nvmlDeviceGetClockInfo(kind): |_| crate::attributes::CLOCK_KHZ as c_uint / 1000;
    nvmlDeviceGetMaxClockInfo(kind): |_| crate::attributes::CLOCK_KHZ as c_uint / 1000;
    nvmlDeviceGetMemoryBusWidth(): |_| crate::attributes::BUS_BITS as c_uint;
    nvmlDeviceGetMultiGpuBoard(): |_| 0;
    nvmlDeviceGetPersistenceMode(): |_| 1;
}

/// Writes the compute capability.
#[no_mangle]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    handle: Handle,
    major: Out<'_, c_int>,
    minor: Out<'_, c_int>,
) -> c_int {
    let capability = gpu().capability as c_int;
    let write = |_| put(major, capability / 10).and_then(|()| put(minor, capability % 10));
    status(device_of(handle).and_then(write))
}

/// Writes the energy since the driver was loaded: none, in mJ.
#[no_mangle]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(handle: Handle, out: Out<'_, u64>) -> c_int {
    status(device_of(handle).and_then(|_| put(out, 0)))
}

/// Writes the memory of a GPU.
#[no_mangle]
extern "C" fn nvmlDeviceGetMemoryInfo(handle: Handle, out: Out<'_, Memory>) -> c_int {
    let write = |device| {
        let (total, free) = (gpu().memory_bytes, memory::free(device));
        put(out, Memory { total, free, used: total - free })
    };
    status(device_of(handle).and_then(write))
}

/// Writes the memory of a GPU, with what the driver keeps of it: nothing.
#[no_mangle]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: Option<&mut Memory2>) -> c_int {
    let write = |device| {
        let out = out.ok_or(INVALID_ARGUMENT)?;
        let (total, free) = (gpu().memory_bytes, memory::free(device));
        *out = Memory2 { version: out.version, total, reserved: 0, free, used: total - free };
        Ok(())
    };
    status(device_of(handle).and_then(write))
}

/// Writes the use of a GPU: it is idle.
#[no_mangle]
extern "C" fn nvmlDeviceGetUtilizationRates(handle: Handle, out: Out<'_, Utilization>) -> c_int {
    status(device_of(handle).and_then(|_| put(out, Utilization { gpu: 0, memory: 0 })))
}

/// The PCI record of a GPU or of its switch.
fn pci(domain_digits: &str, device: Option<u16>) -> Pci {
    let address = device.map_or_else(|| "0000:0f:00.0".into(), pci_address);
    let long = format!("{domain_digits}{address}");
    let mut info = Pci {
        legacy_address: [0; 16],
        domain: 0,
        bus: device.map_or(15, pci_bus),
        device: 0,
        device_id: 0x10de,
        subsystem_id: 0x10de,
        address: [0; 32],
    };
    info.legacy_address[..address.len()].copy_from_slice(address.as_bytes());
    info.address[..long.len()].copy_from_slice(long.as_bytes());
    info
}

/// Writes the PCI record of a GPU.
#[no_mangle]
extern "C" fn nvmlDeviceGetPciInfo_v3(handle: Handle, out: Out<'_, Pci>) -> c_int {
    status(device_of(handle).and_then(|device| put(out, pci("0000", Some(device)))))
}

/// Answers about an NVLink that exists, or says that it does not.
fn link(handle: Handle, link: c_uint) -> Answer {
    device_of(handle)?;
    if link < links() {
        Ok(())
    } else {
        Err(NOT_SUPPORTED)
    }
}

/// Writes the kind of device at the other end of an NVLink: a switch.
#[no_mangle]
extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(handle: Handle, number: c_uint, out: Out<'_, c_int>) -> c_int {
    const SWITCH: c_int = 2;
    status(link(handle, number).and_then(|()| put(out, SWITCH)))
}

/// Writes the PCI record of the switch at the other end of an NVLink.
#[no_mangle]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(handle: Handle, number: c_uint, out: Out<'_, Pci>) -> c_int {
    status(link(handle, number).and_then(|()| put(out, pci("0000", None))))
}

/// Writes whether an NVLink is active: it is.
#[no_mangle]
extern "C" fn nvmlDeviceGetNvLinkState(handle: Handle, number: c_uint, out: Out<'_, c_int>) -> c_int {
    status(link(handle, number).and_then(|()| put(out, 1)))
}

/// Writes whether two GPUs reach each other: they do.
#[no_mangle]
extern "C" fn nvmlDeviceGetP2PStatus(one: Handle, other: Handle, _kind: c_int, out: Out<'_, c_int>) -> c_int {
    status(device_of(one).and_then(|_| device_of(other)).and_then(|_| put(out, SUCCESS)))
}

/// Writes the number of processes on a GPU: none that NVML would know.
#[no_mangle]
extern "C" fn nvmlDeviceGetComputeRunningProcesses(handle: Handle, count: Out<'_, c_uint>) -> c_int {
    status(device_of(handle).and_then(|_| put(count, 0)))
}

/// Writes the number of processes on a GPU: none that NVML would know.
#[no_mangle]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(handle: Handle, count: Out<'_, c_uint>) -> c_int {
    nvmlDeviceGetComputeRunningProcesses(handle, count)
}

/// `nvmlGpuFabricInfoV_t`, as far as it is written: its version, the cluster, a status, the clique and the state.
#[repr(C)]
struct Fabric {
    version: c_uint,
    cluster: [u8; 16],
    status: c_int,
    clique: c_uint,
    state: u8,
}

/// Writes that there is no fabric of several nodes.
#[no_mangle]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(handle: Handle, out: Option<&mut Fabric>) -> c_int {
    let write = |_| {
        let out = out.ok_or(INVALID_ARGUMENT)?;
        *out = Fabric { version: out.version, cluster: [0; 16], status: SUCCESS, clique: 0, state: 0 };
        Ok(())
    };
    status(device_of(handle).and_then(write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_found_by_number_address_and_identifier() {
        let mut found = MaybeUninit::new(0);
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(3, Some(&mut found)), SUCCESS);
        // SAFETY: it was initialized.
        let handle = unsafe { found.assume_init() };
        for text in [format!("00000000{}", &pci_address(3)[4..]), uuid_text(3).to_uppercase()] {
            let text = std::ffi::CString::new(text).unwrap();
            // SAFETY: the text is a C string, so its first byte exists.
            let first = unsafe { text.as_ptr().as_ref() };
            let call =
                if text.to_bytes()[0] == b'0' { nvmlDeviceGetHandleByPciBusId_v2 } else { nvmlDeviceGetHandleByUUID };
            let mut again = MaybeUninit::new(0);
            assert_eq!(call(first, Some(&mut again)), SUCCESS);
            // SAFETY: it was initialized.
            assert_eq!(unsafe { again.assume_init() }, handle);
        }
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(64, None), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetPowerUsage(handle + 1, None), INVALID_ARGUMENT);
    }

    #[test]
    fn a_text_never_passes_the_place_for_it() {
        let mut place = [MaybeUninit::new(7u8); 64];
        let handle = handle_of(0);
        assert_eq!(nvmlDeviceGetName(handle, place.first_mut(), 4), INSUFFICIENT_SIZE);
        // SAFETY: all bytes were initialized.
        assert_eq!(unsafe { place[0].assume_init() }, 7);
        assert_eq!(nvmlDeviceGetName(handle, place.first_mut(), 64), SUCCESS);
        // SAFETY: as above.
        let text: Vec<u8> =
            place.iter().map(|byte| unsafe { byte.assume_init() }).take_while(|byte| *byte != 0).collect();
        assert_eq!(text, gpu().name.as_bytes());
    }
}
