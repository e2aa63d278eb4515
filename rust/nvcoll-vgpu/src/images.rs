//! Fat binaries: the image of its kernels that a GPU runs.
//!
//! A library carries its kernels once for each compute capability for which it was compiled. A driver takes the best image for its
//! GPU, and programs ask which one it took: CUB chooses the parameters of its kernels by the version of the image.
//!
//! ```text
//! wrapper ──▶ fat binary: header │ image │ image │ ...     image: header (form, capability, flags, sizes) │ code
//! ```
//!
//! | image | runs on | rank |
//! |---|---|---|
//! | code of capability X.y, for X.y alone (`sm_90a`) | X.y | first |
//! | code of X.y, for its family (`sm_103f`) | X.z with z >= y | the highest y |
//! | code of X.y | X.z with z >= y | the highest y |
//! | PTX of X.y, which the driver compiles | X.y and all later ones; `compute_90a` X.y alone | the highest X.y, if no code runs |
//!
//! No image runs: a launch fails, as on a V100 with a torch that has no kernels for it. Only headers are read, at the first launch
//! of a kernel of the binary: it is up to 500 MB of a library, and a program uses a part of it.
//!
//! Sources: *CUDA C++ Programming Guide*, "Binary Compatibility", "PTX Compatibility", "Feature Sets"; the layout of the headers as
//! ZLUDA (`fatbinary.rs`) has it, the flags as `cuobjdump --list-elf` names the images of torch 2.15.
//!
//! Limit: which kernels an image holds is in its code. Each image is taken to hold all.
use std::sync::OnceLock;

const WRAPPER_MAGIC: u32 = 0x466243b1;
const BINARY_MAGIC: u32 = 0xba55ed50;
const BINARY_HEADER_BYTES: usize = 16;
/// Bytes of an image's header that are read.
const IMAGE_HEADER_BYTES: usize = 48;
/// Bits of an image's flags.
const EXACT: u64 = 1 << 20;
const FAMILY: u64 = 1 << 21;

/// An image of a fat binary, as its header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// The compute capability times ten for which it was compiled.
    pub capability: u32,
    /// Whether it is PTX, which a driver compiles.
    pub is_ptx: bool,
    /// Whether other capabilities do not run it.
    pub is_exact: bool,
    /// Whether later major versions do not run it, although it may be PTX.
    pub is_of_family: bool,
}

/// What runs on a GPU: versions of code as `cudaFuncGetAttributes` answers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// The compute capability of the image, times ten.
    pub ptx: u32,
    /// The compute capability of the code: of the image, or of the GPU if a driver compiles for it.
    pub binary: u32,
}

impl Image {
    fn runs_on(&self, capability: u32) -> bool {
        let is_same_major = self.capability / 10 == capability / 10;
        match (self.is_exact, self.is_ptx && !self.is_of_family) {
            (true, _) => self.capability == capability,
            (false, true) => self.capability <= capability,
            (false, false) => is_same_major && self.capability <= capability,
        }
    }
}

/// The version that a GPU runs of some images; none if it runs none of them.
pub fn chosen(images: &[Image], capability: u32) -> Option<Version> {
    let running = images.iter().filter(|image| image.runs_on(capability));
    let best = running.max_by_key(|image| (!image.is_ptx, image.capability, image.is_exact))?;
    let binary = if best.is_ptx { capability } else { best.capability };
    Some(Version { ptx: best.capability, binary })
}

/// Reads the headers of the images of a fat binary, without the binary's own; none if they are not as expected.
pub fn images(mut text: &[u8]) -> Option<Vec<Image>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let header = text.get(..IMAGE_HEADER_BYTES)?;
        let [form, _] = halves(header, 0);
        let flags = long(header, 40);
        if matches!(form, 1 | 2) {
            found.push(Image {
                capability: word(header, 28),
                is_ptx: form == 1,
                is_exact: flags & EXACT != 0,
                is_of_family: flags & FAMILY != 0,
            });
        }
        let length = (word(header, 4) as usize).checked_add(usize::try_from(long(header, 8)).ok()?)?;
        text = text.get(length.max(IMAGE_HEADER_BYTES)..)?;
    }
    Some(found)
}

fn bytes<const N: usize>(text: &[u8], at: usize) -> [u8; N] {
    text[at..at + N].try_into().expect("N bytes")
}

fn halves(text: &[u8], at: usize) -> [u16; 2] {
    [at, at + 2].map(|at| u16::from_le_bytes(bytes(text, at)))
}

fn word(text: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(text, at))
}

fn long(text: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(text, at))
}

/// The wrapper that a program registers.
#[repr(C)]
pub(crate) struct Wrapper {
    magic: u32,
    version: u32,
    binary: *const u8,
}

/// The fat binary of kernels.
#[derive(Debug, Default)]
pub(crate) struct Binary {
    /// Its address; 0 for code that was made for this GPU while the program runs.
    address: usize,
    version: OnceLock<Option<Version>>,
}

impl Binary {
    /// The binary in a wrapper.
    ///
    /// # Safety
    /// `wrapper` is null, or points to a wrapper whose binary lives until the program unregisters it.
    pub(crate) unsafe fn of(wrapper: *const Wrapper) -> Binary {
        // SAFETY: the contract of this function.
        let wrapper = unsafe { wrapper.as_ref() }.filter(|wrapper| wrapper.magic == WRAPPER_MAGIC);
        Binary { address: wrapper.map_or(0, |wrapper| wrapper.binary.expose_provenance()), version: OnceLock::new() }
    }

    /// The version that a GPU runs; none if it runs no image. What cannot be read is taken to be made for the GPU.
    pub(crate) fn version(&self, capability: u32) -> Option<Version> {
        *self.version.get_or_init(|| match self.images() {
            Some(images) if !images.is_empty() => chosen(&images, capability),
            _ => Some(Version { ptx: capability, binary: capability }),
        })
    }

    fn images(&self) -> Option<Vec<Image>> {
        if self.address == 0 {
            return None;
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: the contract of `of`: a fat binary begins there, which has a header.
        let header = unsafe { std::slice::from_raw_parts(start, BINARY_HEADER_BYTES) };
        let [_, header_bytes] = halves(header, 4);
        if word(header, 0) != BINARY_MAGIC || (header_bytes as usize) < BINARY_HEADER_BYTES {
            return None;
        }
        let length = usize::try_from(long(header, 8)).ok()?;
        // SAFETY: the contract of `of`: the header says how many bytes of the binary follow it.
        images(unsafe { std::slice::from_raw_parts(start.add(header_bytes.into()), length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(capability: u32) -> Image {
        Image { capability, is_ptx: false, is_exact: false, is_of_family: false }
    }

    fn header(form: u16, capability: u32, flags: u64, code_bytes: u64) -> Vec<u8> {
        let mut text = vec![0; 64 + code_bytes as usize];
        text[0..2].copy_from_slice(&form.to_le_bytes());
        text[4..8].copy_from_slice(&64u32.to_le_bytes());
        text[8..16].copy_from_slice(&code_bytes.to_le_bytes());
        text[28..32].copy_from_slice(&capability.to_le_bytes());
        text[40..48].copy_from_slice(&flags.to_le_bytes());
        text
    }

    fn binary(images: &[Vec<u8>]) -> Vec<u8> {
        let images = images.concat();
        let mut text = BINARY_MAGIC.to_le_bytes().to_vec();
        text.extend([1, 0, 16, 0]);
        text.extend((images.len() as u64).to_le_bytes());
        text.extend(images);
        text
    }

    /// The architectures of torch 2.15 for CUDA 13.
    #[test]
    fn a_gpu_runs_code_of_an_older_minor_capability_of_its_major_one() {
        let images = [75, 80, 86, 90, 100, 120].map(code);
        for (gpu, expected) in
            [(75, 75), (80, 80), (86, 86), (87, 86), (89, 86), (90, 90), (100, 100), (103, 100), (120, 120), (121, 120)]
        {
            let version = Version { ptx: expected, binary: expected };
            assert_eq!(chosen(&images, gpu), Some(version), "{gpu}");
        }
        for gpu in [60, 70, 72, 110] {
            assert_eq!(chosen(&images, gpu), None, "{gpu}");
        }
    }

    #[test]
    fn ptx_runs_on_later_gpus_where_no_code_does() {
        let ptx = |capability| Image { is_ptx: true, ..code(capability) };
        let images = [code(80), ptx(80), ptx(90)];
        assert_eq!(chosen(&images, 86), Some(Version { ptx: 80, binary: 80 }));
        assert_eq!(chosen(&images, 103), Some(Version { ptx: 90, binary: 103 }));
        assert_eq!(chosen(&images, 75), None);
        let images = [Image { is_exact: true, ..ptx(90) }, Image { is_of_family: true, ..ptx(100) }];
        assert_eq!(chosen(&images, 90), Some(Version { ptx: 90, binary: 90 }));
        assert_eq!(chosen(&images, 103), Some(Version { ptx: 100, binary: 103 }));
        assert_eq!(chosen(&images, 120), None);
    }

    #[test]
    fn code_for_one_capability_runs_on_it_alone_and_goes_first() {
        let exact = |capability| Image { is_exact: true, ..code(capability) };
        assert_eq!(chosen(&[exact(100), exact(90)], 103), None);
        assert_eq!(chosen(&[exact(100)], 100), Some(Version { ptx: 100, binary: 100 }));
        let family = Image { is_of_family: true, ..code(103) };
        assert_eq!(chosen(&[code(100), exact(100), family], 103), Some(Version { ptx: 103, binary: 103 }));
    }

    #[test]
    fn headers_are_read_once_and_what_is_no_binary_is_of_the_gpu() {
        let text = binary(&[
            header(2, 80, 0x8011, 40),
            header(2, 90, 0x8011 | EXACT, 8),
            header(1, 90, 0, 0),
            header(64, 0, 0, 0),
        ]);
        let wrapper = Wrapper { magic: WRAPPER_MAGIC, version: 1, binary: text.as_ptr() };
        // SAFETY: the wrapper and its binary live until the end of the test.
        let found = unsafe { Binary::of(&raw const wrapper) };
        assert_eq!(found.images().expect("it is right").len(), 3);
        assert_eq!(found.version(89), Some(Version { ptx: 80, binary: 80 }));
        let damaged = Wrapper { magic: 1, version: 1, binary: text.as_ptr() };
        for wrapper in [std::ptr::null(), &raw const damaged] {
            // SAFETY: null, or a wrapper that lives until the end of the test.
            let found = unsafe { Binary::of(wrapper) };
            assert_eq!(found.version(89), Some(Version { ptx: 89, binary: 89 }));
        }
        assert_eq!(images(&header(2, 80, 0, 40)[..100]), None, "it ends early");
        assert_eq!(images(&text[..40]), None);
    }
}
