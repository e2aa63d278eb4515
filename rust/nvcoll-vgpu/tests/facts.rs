//! Facts about GPUs: the records of CUDA 12 and 13, occupancy, the description of a GPU, ranges of addresses.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;

use nvcoll_vgpu::gpu::{VirtualGpu, LIMITS};
use nvcoll_vgpu::launches::resident_blocks;
use nvcoll_vgpu::memory::ranges::Ranges;
use nvcoll_vgpu::properties::{layout_12, layout_13, record};
use proptest::prelude::*;

fn word(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

/// Offsets as the compiler of C gives them for the records of CUDA 12.8 and 13.1.
#[test]
fn records_have_the_offsets_of_c() {
    let gpu = VirtualGpu::default();
    for (layout, size, sms, optin, cluster, l2, bus) in
        [(layout_12(), 1032, 388, 696, 772, 616, 584), (layout_13(), 1008, 384, 672, 748, 596, 568)]
    {
        let record = record(&gpu, &layout, 2);
        assert_eq!(record.len(), size);
        assert_eq!(word(&record, sms), 132);
        assert_eq!(word(&record, optin), 227 << 10);
        assert_eq!(word(&record, cluster), 1);
        assert_eq!(word(&record, l2), 50 << 20);
        assert_eq!(word(&record, bus), 22);
        assert_eq!(&record[..21], b"NVIDIA H100 80GB HBM3");
        assert_eq!(record[21], 0);
    }
}

/// Residency as NVIDIA's occupancy calculator says it for kernels of 32 registers.
#[test]
fn blocks_are_limited_by_threads_blocks_and_shared_memory() {
    let h100 = VirtualGpu::default();
    assert_eq!(resident_blocks(&h100, 1024, 0), 2);
    assert_eq!(resident_blocks(&h100, 128, 0), 16);
    assert_eq!(resident_blocks(&h100, 32, 0), 32);
    assert_eq!(resident_blocks(&h100, 33, 0), 32, "two warps");
    assert_eq!(resident_blocks(&h100, 128, 227 << 10), 1);
    assert_eq!(resident_blocks(&h100, 128, 113 << 10), 2);
    assert_eq!(resident_blocks(&h100, 128, 228 << 10), 0);
    assert_eq!((resident_blocks(&h100, 0, 0), resident_blocks(&h100, 1025, 0)), (0, 0));
    let l40s = VirtualGpu::parse("cc=89;sms=142").expect("it is right");
    assert_eq!(resident_blocks(&l40s, 1024, 0), 1);
    assert_eq!(resident_blocks(&l40s, 32, 0), 24);
}

#[test]
fn a_description_is_read_or_its_field_is_named() {
    let gpu = VirtualGpu::parse("name=A; cc = 100 ;sms=148;memory=2000000000;devices=4;cuda=12;").expect("it is right");
    assert_eq!((gpu.name.as_str(), gpu.capability, gpu.sms, gpu.devices), ("A", 100, 148, 4));
    assert_eq!((gpu.cuda, gpu.version(), gpu.limits.l2_bytes), (12, 12_090, 126 << 20));
    assert_eq!(VirtualGpu::parse("cc=92").expect("it is right").limits.capability, 90, "the nearest older one");
    for (text, named) in
        [("cc=9", "cc=9"), ("sms=x", "sms=x"), ("memory=5", "memory=5"), ("a=1", "`a`"), ("cc", "`cc`")]
    {
        let problem = VirtualGpu::parse(text).expect_err("it is wrong");
        assert!(problem.contains(named), "{problem}");
    }
    assert!(LIMITS.windows(2).all(|pair| pair[0].capability < pair[1].capability));
}

proptest! {
    /// Ranges that are taken never overlap, and giving all back leaves one range.
    #[test]
    fn ranges_are_taken_and_given_back(
        steps in prop::collection::vec((any::<bool>(), 1..5000usize, 0..13u32, any::<prop::sample::Index>()), 1..200)
    ) {
        const START: usize = 1 << 20;
        const ALL: usize = 1 << 18;
        let mut ranges = Ranges::new(START, ALL);
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        for (takes, bytes, alignment, index) in steps {
            if takes || taken.is_empty() {
                let alignment = 1 << alignment;
                if let Some(at) = ranges.take(bytes, alignment) {
                    prop_assert!(at % alignment == 0 && at >= START && at + bytes <= START + ALL);
                    let before = taken.range(..at + bytes).next_back();
                    prop_assert!(before.is_none_or(|(start, length)| start + length <= at));
                    taken.insert(at, bytes);
                }
            } else {
                let (&at, &bytes) = taken.iter().nth(index.index(taken.len())).expect("it is not empty");
                taken.remove(&at);
                ranges.give(at, bytes);
            }
            prop_assert_eq!(ranges.bytes() + taken.values().sum::<usize>(), ALL);
        }
        for (at, bytes) in taken {
            ranges.give(at, bytes);
        }
        prop_assert_eq!(ranges, Ranges::new(START, ALL));
    }
}
