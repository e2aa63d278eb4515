//! Every kernel gives the bits of the reference: each dtype, arm and instruction set, at any count and alignment, in place
//! or not, with either kind of stores, and never touches what lies around its destinations.
//!
//! Rows come from the registries: ops give the arms, dtypes the elements. Buffers lie in one allocation with guard bytes
//! between them; special values are drawn by bit pattern, so that every dtype gets its own infinities, NaNs, zeros,
//! subnormals and extremes.

mod reference;

use nvcoll_core::dtype::{DType, Kind};
use nvcoll_core::op::Op;
use nvcoll_engine::kernel::{select, Args, Arm, Isa};
use proptest::prelude::*;

const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 64;

/// Which buffers a case has, and where they lie.
#[derive(Debug, Clone)]
struct Case {
    n_src: usize,
    /// For each destination, the source that it is, if any.
    dst: Vec<Option<usize>>,
    count: usize,
    plain: usize,
    /// Bytes by which each buffer misses a line; sources, then destinations of their own.
    skew: Vec<usize>,
    seed: u64,
}

/// The arms that a dtype has, from the table of ops.
fn arms(dtype: DType) -> Vec<Arm> {
    let mut arms = vec![Arm::Copy];
    for op in Op::ALL.iter().filter(|op| op.is_defined_on(dtype)) {
        for (is_final, has_contribution) in [(false, false), (true, false), (false, true)] {
            arms.push(Arm::of(*op, 2, is_final, has_contribution));
        }
    }
    arms.sort_by_key(|arm| *arm as u8);
    arms.dedup();
    arms
}

fn rows() -> Vec<(DType, Arm)> {
    DType::ALL.iter().flat_map(|&dtype| arms(dtype).into_iter().map(move |arm| (dtype, arm))).collect()
}

/// A generator of numbers: splitmix64 (Steele, Lea and Flood 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One element; a complex one has two parts.
    fn element(&mut self, dtype: DType) -> Vec<u8> {
        match dtype.kind() {
            Kind::Complex => [self.number(dtype), self.number(dtype)].concat(),
            _ => self.number(dtype),
        }
    }

    /// Any bits, or near the border of a kind of number, or a small integer.
    fn number(&mut self, dtype: DType) -> Vec<u8> {
        let width = if dtype.kind() == Kind::Complex { dtype.bytes() / 2 } else { dtype.bytes() };
        let bits = width as u32 * 8;
        let draw = self.next();
        let (sign, near) = ((draw >> 8 & 1) << (bits - 1), (draw >> 16) % 3);
        // One, the largest number before infinity, infinity, the least normal number, and zero.
        let borders: [u64; 5] = match (dtype, bits) {
            (DType::F16, _) => [0x3c00, 0x7bff, 0x7c00, 0x0400, 0],
            (DType::F8E4M3, _) => [0x38, 0x7e, 0x7f, 0x08, 0],
            (_, 8) => [0x3c, 0x7b, 0x7c, 0x04, 0],
            (_, 16) => [0x3f80, 0x7f7f, 0x7f80, 0x0080, 0],
            (_, 32) => [0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x0080_0000, 0],
            _ => [1023 << 52, (2047 << 52) - 1, 2047 << 52, 1 << 52, 0],
        };
        let value = match draw % 8 {
            0..=2 => self.next(),
            3..=5 => sign | borders[(draw >> 32) as usize % 5].wrapping_add(near).wrapping_sub(1),
            6 => sign | (1 << (bits - 2)) | draw >> 40,
            _ => sign | (borders[0] + (draw >> 44)),
        };
        value.to_le_bytes()[..width].to_vec()
    }
}

fn elements(numbers: &mut Numbers, dtype: DType, count: usize) -> Vec<u8> {
    (0..count).flat_map(|_| numbers.element(dtype)).collect()
}

/// Runs one case and says what is wrong with it.
fn check(isa: Isa, dtype: DType, arm: Arm, case: &Case) -> Result<(), String> {
    let mut numbers = Numbers(case.seed);
    let n_src = if arm == Arm::Copy { 1 } else { case.n_src };
    let sources: Vec<Vec<u8>> = (0..n_src).map(|_| elements(&mut numbers, dtype, case.count)).collect();
    let full_nan = f64::from_bits(u64::MAX >> 1);
    let drawn = [0.1, -3.0, 1.0, 0.0, full_nan, 1e-40];
    let scalars: Vec<f64> = (0..n_src).map(|s| drawn[(s + case.count) % drawn.len()]).collect();
    let divisor = n_src as u32 + 1;

    let alias = |d: &Option<usize>| d.filter(|&s| s < n_src);
    let own: usize = case.dst.iter().filter(|d| alias(d).is_none()).count();
    let bytes = case.count * dtype.bytes();
    let room = (bytes + 3 * GUARD_BYTES).next_multiple_of(64);
    let mut memory = vec![GUARD; room * (n_src + own) + 64];
    let base = memory.as_ptr().align_offset(64);
    let place = |buffer: usize| base + room * buffer + GUARD_BYTES + case.skew[buffer % case.skew.len()];
    for (s, source) in sources.iter().enumerate() {
        memory[place(s)..][..bytes].copy_from_slice(source);
    }
    let mut next_own = n_src;
    let mut own_place = || {
        next_own += 1;
        place(next_own - 1)
    };
    let dst: Vec<usize> = case.dst.iter().map(|d| alias(d).map_or_else(&mut own_place, place)).collect();

    let start = memory.as_mut_ptr();
    let src_pointers: Vec<*const u8> = (0..n_src).map(|s| start.wrapping_add(place(s)).cast_const()).collect();
    let dst_pointers: Vec<*mut u8> = dst.iter().map(|&at| start.wrapping_add(at)).collect();
    let args = Args {
        src: src_pointers.as_ptr(),
        n_src,
        dst: dst_pointers.as_ptr(),
        n_dst: dst.len(),
        count: case.count,
        scalars: scalars.as_ptr(),
        divisor,
        plain: case.plain.min(dst.len()),
        is_far: case.seed.is_multiple_of(2),
    };
    // SAFETY: every pointer has `count` elements in `memory`; buffers are a room apart; a destination is a source exactly or
    // has a room of its own; the instruction set is from `available`.
    unsafe { select(isa, dtype, arm).run(&args) };

    let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let expected = reference::fold(dtype, arm, &slices, &scalars, divisor);
    let mut untouched: Vec<(usize, &[u8])> = slices.iter().enumerate().map(|(s, bytes)| (place(s), *bytes)).collect();
    untouched.retain(|(at, _)| !dst.contains(at));
    for (d, &at) in dst.iter().enumerate() {
        let found = &memory[at..][..bytes];
        if !reference::is_same(dtype, found, &expected) {
            let first = (0..case.count).find(|i| {
                let element = |bytes: &[u8]| bytes[i * dtype.bytes()..][..dtype.bytes()].to_vec();
                !reference::is_same(dtype, &element(found), &element(&expected))
            });
            return Err(format!("destination {d} differs from the reference at element {first:?}"));
        }
    }
    if let Some((at, _)) = untouched.iter().find(|(at, bytes)| memory[*at..][..bytes.len()] != **bytes) {
        return Err(format!("the source at {at} was written"));
    }
    (0..n_src + own).for_each(|buffer| memory[place(buffer)..][..bytes].fill(GUARD));
    match (0..memory.len()).find(|&i| memory[i] != GUARD) {
        Some(i) => Err(format!("the guard byte at {i} was written")),
        None => Ok(()),
    }
}

fn check_everywhere(case: &Case) {
    check_rows(&rows(), &Isa::available(), case);
}

fn check_rows(rows: &[(DType, Arm)], isas: &[Isa], case: &Case) {
    for &(dtype, arm) in rows {
        for isa in isas {
            if let Err(wrong) = check(*isa, dtype, arm, case) {
                panic!("{dtype} {arm:?} {}: {wrong} in {case:?}", isa.name());
            }
        }
    }
}

#[test]
fn every_arm_is_reached_from_the_table_of_ops() {
    for arm in Arm::ALL {
        assert!(rows().iter().any(|(_, row)| row == arm), "{arm:?}");
    }
}

/// The instruction sets take turns: each meets every remainder of a block.
#[test]
fn kernels_match_the_reference_at_every_count_up_to_300() {
    let isas = Isa::available();
    for count in 0..=300 {
        let case = Case { n_src: 3, dst: vec![Some(0), None], count, plain: 2, skew: vec![0], seed: count as u64 };
        check_rows(&rows(), &[isas[count % isas.len()]], &case);
    }
}

#[test]
fn kernels_match_the_reference_at_larger_counts_in_place_on_all_sources() {
    for (count, n_src) in [(509, 1), (1021, 2), (4099, 3), (10_007, 2), (521, 8), (1031, 17)] {
        for plain in [n_src, n_src / 2, 0] {
            for skew in [vec![0], vec![16], vec![1, 0, 48]] {
                let case = Case { n_src, dst: (0..n_src).map(Some).collect(), count, plain, skew, seed: count as u64 };
                check_everywhere(&case);
            }
        }
    }
}

#[test]
fn kernels_match_the_reference_with_1024_sources_and_destinations() {
    let dst = (0..1024).map(|d| (d % 2 == 0).then_some(d)).collect();
    check_everywhere(&Case { n_src: 1024, dst, count: 70, plain: 512, skew: vec![0], seed: 1 });
}

fn cases() -> impl Strategy<Value = Case> {
    (1usize..=9, 1usize..=9, prop_oneof![0usize..=300, 300usize..=3000], 0usize..=9, any::<u64>()).prop_flat_map(
        |(n_src, n_dst, count, plain, seed)| {
            // Exact aliases take each source at most once; skews of one value are buffers that lie alike.
            let aliases = proptest::collection::vec(any::<bool>(), n_dst);
            let skew = prop_oneof![
                proptest::collection::vec(0usize..64, 1),
                proptest::collection::vec(0usize..64, n_src + n_dst),
                proptest::collection::vec((0usize..4).prop_map(|s| s * 16), n_src + n_dst),
            ];
            (aliases, skew).prop_map(move |(aliases, skew)| Case {
                n_src,
                dst: aliases.iter().enumerate().map(|(d, is_alias)| (*is_alias && d < n_src).then_some(d)).collect(),
                count,
                plain,
                skew,
                seed,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn kernels_match_the_reference_wherever_buffers_lie(case in cases(), rows in proptest::sample::subsequence(rows(), 12)) {
        check_rows(&rows, &Isa::available(), &case);
    }
}
