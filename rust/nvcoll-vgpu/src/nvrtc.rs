//! NVRTC: programs that torch compiles while it runs (jiterator, fused kernels).
//!
//! Nothing is compiled: the virtual GPU runs no code, and a module needs only the names of its functions. A program keeps
//! the names that were asked for; its code is a line that states this. A source with errors is accepted, which a GPU would not.
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::Arc;

use crate::arguments::{Room, Text};
use crate::entry_points::{functions, number};
use crate::gpu::{gpu, LIMITS};
use crate::handles::Handles;
use crate::{set, Answer, Failure, Handle, Out, Status};

/// The text that replaces code.
const CODE: &CStr = c"// the virtual GPU compiles nothing";

/// The names of each program, which are the same in its code.
static PROGRAMS: Handles<BTreeSet<Arc<CString>>> = Handles::new();

/// `nvrtcResult`: invalid program, invalid input.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    number(body(), 4, 3)
}

/// Writes a text of a program.
fn write(program: Handle, out: Room<c_char>, text: &CStr) -> Answer {
    PROGRAMS.find(program)?;
    out.cast().write(text.to_bytes_with_nul())
}

/// Compute capabilities for which the compiler of CUDA 13 has code.
fn architectures() -> Vec<c_int> {
    LIMITS.iter().map(|limits| limits.capability as c_int).filter(|capability| *capability >= 75).collect()
}

functions! { answer:
    // That of CUDA.
    nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) => {
        set(major, gpu().version() / 1000)?;
        set(minor, gpu().version() % 1000 / 10)
    };
    nvrtcGetNumSupportedArchs(count: Out<c_int>) => set(count, architectures().len() as c_int);
    nvrtcGetSupportedArchs(out: Room<c_int>) => out.write(&architectures());
    nvrtcCreateProgram(out: Out<Handle>) => PROGRAMS.make(out, BTreeSet::new());
    // The place of the handle becomes null.
    nvrtcDestroyProgram(program: Option<&mut Handle>) =>
        PROGRAMS.remove(std::mem::take(program.ok_or(Failure::INVALID_VALUE)?));
    nvrtcCompileProgram(program: Handle) => PROGRAMS.find(program).map(drop);
    nvrtcAddNameExpression(program: Handle, name: Text) => {
        let name = Arc::new(name.read()?.to_owned());
        PROGRAMS.change(program, |names| names.extend([name]))
    };
    // The text lives as long as the program.
    nvrtcGetLoweredName(program: Handle, name: Text, out: Out<*const c_char>) => {
        let name = name.read()?.to_owned();
        set(out, PROGRAMS.find(program)?.get(&name).ok_or(Failure::NOT_FOUND)?.as_ptr())
    };
    nvrtcGetPTXSize nvrtcGetCUBINSize(program: Handle, out: Out<usize>) =>
        PROGRAMS.find(program).and_then(|_| set(out, CODE.count_bytes() + 1));
    nvrtcGetPTX nvrtcGetCUBIN(program: Handle, out: Room<c_char>) => write(program, out, CODE);
    nvrtcGetProgramLogSize(program: Handle, out: Out<usize>) => PROGRAMS.find(program).and_then(|_| set(out, 1));
    nvrtcGetProgramLog(program: Handle, out: Room<c_char>) => write(program, out, c"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    const SUCCESS: c_int = 0;
    const INVALID_PROGRAM: c_int = 4;
    const INVALID_INPUT: c_int = 3;

    #[test]
    fn architectures_are_listed() {
        let mut all = vec![0; crate::testing::value_of(0, |out| nvrtcGetNumSupportedArchs(out)) as usize];
        assert_eq!(nvrtcGetSupportedArchs(Room::from(&mut all[..])), SUCCESS);
        assert!(all[0] == 75 && all.contains(&90) && all.is_sorted(), "{all:?}");
    }

    #[test]
    fn a_program_keeps_the_names_that_were_asked_for() {
        let mut out = MaybeUninit::new(0);
        assert_eq!(nvrtcCreateProgram(Some(&mut out)), SUCCESS);
        // SAFETY: it was initialized.
        let mut program = unsafe { out.assume_init() };
        let name = Text::from(c"kernel<float>");
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
