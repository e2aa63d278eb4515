//! Contexts: each GPU has one, its primary context, and a thread's current context is its GPU.
#![allow(non_snake_case)] // the names of a public interface

use std::cell::RefCell;

use crate::entry_points::{functions, refused};
use crate::errors::{self, Failure};
use crate::runtime::device_of;
use crate::{gpu, log, set, streams, Answer, Handle, Out};

/// The handle of the first GPU's context.
const FIRST: Handle = 0x7000;

thread_local! {
    /// GPUs that were current before `cuCtxPushCurrent`.
    static PUSHED: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn context_of(device: u16) -> Handle {
    FIRST + 64 * usize::from(device)
}

fn device_in(context: Handle) -> Result<u16, Failure> {
    let offset = context.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(64));
    let device = offset.and_then(|offset| i32::try_from(offset / 64).ok());
    device_of(device.ok_or(Failure::INVALID_CONTEXT)?).map_err(|_| Failure::INVALID_CONTEXT)
}

fn retain(context: Out<Handle>, device: i32) -> Answer {
    let device = device_of(device)?;
    gpu::use_device(device);
    set(context, context_of(device))
}

functions! { errors::driver:
    cuStreamGetCtx(stream: Handle, context: Out<Handle>) => set(context, context_of(streams::stream(stream)?.device));
    cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) => retain(context, device);
    cuCtxCreate_v2(context: Out<Handle>, _flags: u32, device: i32) => retain(context, device);
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, is_active: Out<i32>) => {
        let device = device_of(device)?;
        let _ = set(flags, 0); // optional
        set(is_active, gpu::is_used(device).into())
    };
    cuCtxGetCurrent(context: Out<Handle>) => set(context, context_of(log::device()));
    // Null, no context, leaves the GPU as it is.
    cuCtxSetCurrent(context: Handle) => if context == 0 { Ok(()) } else { device_in(context).map(log::set_device) };
    cuCtxPushCurrent_v2(context: Handle) => {
        let device = device_in(context)?;
        PUSHED.with_borrow_mut(|pushed| pushed.push(log::device()));
        log::set_device(device);
        Ok(())
    };
    cuCtxPopCurrent_v2(context: Out<Handle>) => {
        let before = PUSHED.with_borrow_mut(Vec::pop).ok_or(Failure::INVALID_CONTEXT)?;
        let _ = set(context, context_of(log::device())); // optional
        log::set_device(before);
        Ok(())
    };
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxReset_v2 cuCtxDestroy_v2() => Ok(());
}

refused! { errors::driver:
    cuLogsRegisterCallback cuLogsUnregisterCallback cuDeviceGetDevResource cuDevSmResourceSplitByCount cuDevResourceGenerateDesc
    cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuGreenCtxGetDevResource cuCtxGetDevResource cuCtxFromGreenCtx
}
