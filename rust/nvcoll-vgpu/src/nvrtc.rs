//! NVRTC: programs that torch compiles while it runs (jiterator, fused kernels).
//!
//! Nothing is compiled: the virtual GPU runs no code, and a module needs only the names of its functions. A program keeps
//! the names that were asked for; its code is a line that says so. A source with errors is accepted, which a GPU would not.
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::Mutex;

use crate::gpu::gpu;
use crate::handles::Handles;
use crate::log::lock;
use crate::{set, Handle, Out};

/// Success and the errors of `nvrtcResult` that are reported.
const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const NO_SUCH_NAME: c_int = 10;

/// What stands in the place of code.
const CODE: &CStr = c"// the virtual GPU compiles nothing";

/// The names of each program, and what they are in its code: the same.
type Program = Mutex<BTreeMap<CString, CString>>;

static PROGRAMS: Handles<Program> = Handles::new();

fn told<T>(out: Out<'_, T>, value: T) -> c_int {
    set(out, value).map_or(INVALID_INPUT, |()| SUCCESS)
}

/// Writes the version: that of CUDA.
#[no_mangle]
extern "C" fn nvrtcVersion(major: Out<'_, c_int>, minor: Out<'_, c_int>) -> c_int {
    let version = gpu().version();
    told(major, version / 1000) | told(minor, version % 1000 / 10)
}

/// The text of a result.
#[no_mangle]
extern "C" fn nvrtcGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        SUCCESS => c"NVRTC_SUCCESS",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        NO_SUCH_NAME => c"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

/// Makes a program; its source is not read.
#[no_mangle]
extern "C" fn nvrtcCreateProgram(out: Out<'_, Handle>) -> c_int {
    match out {
        Some(_) => told(out, PROGRAMS.insert(Program::default())),
        None => INVALID_INPUT,
    }
}

/// Forgets a program; the place of its handle becomes null.
#[no_mangle]
extern "C" fn nvrtcDestroyProgram(program: Option<&mut Handle>) -> c_int {
    let Some(program) = program else { return INVALID_INPUT };
    let forgotten = PROGRAMS.remove(*program).is_some();
    *program = 0;
    if forgotten {
        SUCCESS
    } else {
        INVALID_PROGRAM
    }
}

/// Accepts a program as compiled.
#[no_mangle]
extern "C" fn nvrtcCompileProgram(program: Handle) -> c_int {
    PROGRAMS.find(program).map_or(INVALID_PROGRAM, |_| SUCCESS)
}

/// The text that a caller passed.
fn text(name: Option<&c_char>) -> Option<CString> {
    // SAFETY: the name is a C string, by NVRTC's interface.
    name.map(|name| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// Adds a name that a program's code shall have.
#[no_mangle]
extern "C" fn nvrtcAddNameExpression(program: Handle, name: Option<&c_char>) -> c_int {
    let (Some(program), Some(name)) = (PROGRAMS.find(program), text(name)) else { return INVALID_INPUT };
    lock(&program).insert(name.clone(), name);
    SUCCESS
}

/// Writes what a name is in the code: the text lives as long as the program.
#[no_mangle]
extern "C" fn nvrtcGetLoweredName(program: Handle, name: Option<&c_char>, out: Out<'_, *const c_char>) -> c_int {
    let (Some(program), Some(name)) = (PROGRAMS.find(program), text(name)) else { return INVALID_INPUT };
    let names = lock(&program);
    names.get(&name).map_or(NO_SUCH_NAME, |lowered| told(out, lowered.as_ptr()))
}

/// Sizes and texts of a program.
macro_rules! texts {
    ($($size:ident $read:ident $text:expr;)*) => { $(
        /// Writes the bytes of a text, its zero byte included.
        #[no_mangle]
        extern "C" fn $size(program: Handle, out: Out<'_, usize>) -> c_int {
            let text: &CStr = $text;
            PROGRAMS.find(program).map_or(INVALID_PROGRAM, |_| told(out, text.count_bytes() + 1))
        }
        /// Writes a text.
        #[no_mangle]
        extern "C" fn $read(program: Handle, out: Out<'_, c_char>) -> c_int {
            let text: &CStr = $text;
            let (Some(_), Some(out)) = (PROGRAMS.find(program), out) else { return INVALID_PROGRAM };
            // SAFETY: the caller has room for as many bytes as it was told, by NVRTC's interface.
            unsafe { text.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), text.count_bytes() + 1) };
            SUCCESS
        }
    )* };
}
texts! {
    nvrtcGetPTXSize nvrtcGetPTX CODE;
    nvrtcGetCUBINSize nvrtcGetCUBIN CODE;
    nvrtcGetProgramLogSize nvrtcGetProgramLog c"";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn a_program_keeps_the_names_that_were_asked_for() {
        let mut out = MaybeUninit::new(0);
        assert_eq!(nvrtcCreateProgram(Some(&mut out)), SUCCESS);
        // SAFETY: it was initialized.
        let mut program = unsafe { out.assume_init() };
        // SAFETY: the text lives as long as the program runs.
        let name = unsafe { c"kernel<float>".as_ptr().as_ref() };
        assert_eq!(nvrtcAddNameExpression(program, name), SUCCESS);
        let mut lowered = MaybeUninit::new(std::ptr::null());
        assert_eq!(nvrtcGetLoweredName(program, name, Some(&mut lowered)), SUCCESS);
        // SAFETY: it was initialized; the call wrote a C string that the program holds.
        assert_eq!(unsafe { CStr::from_ptr(lowered.assume_init()) }, c"kernel<float>");
        assert_eq!(nvrtcDestroyProgram(Some(&mut program)), SUCCESS);
        assert_eq!(
            (program, nvrtcCompileProgram(program), nvrtcDestroyProgram(None)),
            (0, INVALID_PROGRAM, INVALID_INPUT)
        );
    }
}
