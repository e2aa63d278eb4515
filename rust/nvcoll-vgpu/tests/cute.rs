//! A kernel of CuTe's DSL: its host code loads the kernel's code once, and launches it by functions behind an underscore.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::cell::RefCell;
use std::ffi::{c_char, CStr};

use nvcoll_vgpu::log::{self, RecordKind};
use nvcoll_vgpu::Handle;

type Load = extern "C" fn(&mut Handle) -> i32;
type Prepare = extern "C" fn(&mut Handle, i32) -> i32;
type Report = extern "C" fn(*const c_char, *const c_char);

extern "C" {
    fn cuda_dialect_init_library_once(
        library: &mut Handle,
        load: Load,
        prepare: Option<Prepare>,
        report: Report,
    ) -> i32;
    fn cuda_dialect_unload_library_once(library: &mut Handle);
    fn _cudaLibraryLoadData(library: &mut Handle) -> i32;
    fn _cudaLibraryGetKernel(kernel: &mut Handle, library: Handle, name: *const c_char) -> i32;
    fn _cudaLaunchKernelEx(configuration: *const Configuration, kernel: Handle) -> i32;
}

#[repr(C)]
struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: usize,
    stream: Handle,
}

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn say(words: &str) {
    SAID.with_borrow_mut(|said| said.push(words.into()));
}

fn said() -> Vec<String> {
    SAID.take()
}

extern "C" fn load(library: &mut Handle) -> i32 {
    say("load");
    // SAFETY: the place is valid.
    unsafe { _cudaLibraryLoadData(library) }
}

extern "C" fn fail(_library: &mut Handle) -> i32 {
    209
}

extern "C" fn prepare(_library: &mut Handle, device: i32) -> i32 {
    say(&format!("prepare {device}"));
    0
}

extern "C" fn refuse(_library: &mut Handle, _device: i32) -> i32 {
    1
}

extern "C" fn report(kind: *const c_char, words: *const c_char) {
    for text in [kind, words] {
        // SAFETY: both are C strings, for the length of the call.
        say(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

#[test]
fn code_is_loaded_once_prepared_for_each_gpu_and_launched_by_its_name() {
    let (mut library, mut kernel) = (0, 0);
    let configuration = Configuration { grid: [3, 1, 1], block: [64, 1, 1], shared_bytes: 0, stream: 0 };
    // SAFETY: all places are valid.
    unsafe {
        for _ in 0..2 {
            assert_eq!(cuda_dialect_init_library_once(&mut library, load, Some(prepare), report), 0);
        }
        let prepared = (0..8).map(|device| format!("prepare {device}"));
        assert_eq!(said(), std::iter::once("load".into()).chain(prepared).collect::<Vec<_>>());
        assert_eq!(_cudaLibraryGetKernel(&mut kernel, library, c"rmsnorm".as_ptr()), 0);
        assert_eq!(_cudaLaunchKernelEx(&configuration, kernel), 0);
        let launched = log::record(log::count() - 1).expect("the launch");
        assert_eq!(launched.kind, RecordKind::Launch as u16);
        assert_eq!(log::text(launched.name), Some(c"rmsnorm"));
        assert_eq!(launched.args[..3], [3, 64, 0]);
        cuda_dialect_unload_library_once(&mut library);
        assert_eq!((library, _cudaLaunchKernelEx(&configuration, kernel)), (0, 98));
    }
}

#[test]
fn code_that_is_not_loaded_or_prepared_is_reported() {
    let mut library = 0;
    // SAFETY: all places are valid.
    unsafe {
        assert_eq!(cuda_dialect_init_library_once(&mut library, fail, None, report), -1);
        assert_eq!(cuda_dialect_init_library_once(&mut library, load, Some(refuse), report), -1);
    }
    let image = "cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device";
    let value = "cudaErrorInvalidValue: invalid argument";
    assert_eq!(
        (library, said()),
        (0, ["RuntimeError", image, "load", "RuntimeError", value].map(String::from).to_vec())
    );
}
