//! Seconds of operations on a GPU, against the formulas written out for one case each, and their order for others.

use nvcoll_fabric::hardware::gpus;
use nvcoll_step::attention::Attention;
use nvcoll_step::compute::{Compute, Device};
use nvcoll_step::constants::Constants;
use nvcoll_step::layout::Dtype;
use nvcoll_step::software::AttentionKernel;
use nvcoll_step::step::work::StepWork;
use nvcoll_step::Error;
use proptest::prelude::*;

fn seconds(gpu: &str, work: &StepWork) -> Result<f64, Error> {
    let device = Device::of(gpus::named(gpu).unwrap()).unwrap();
    Compute { device: &device, constants: Constants::shipped() }.seconds(work)
}

fn gemm(m: f64, n: f64, k: f64, dtype: Dtype, experts: Option<f64>) -> StepWork {
    StepWork::Gemm { m, n, k, batch: 1.0, dtype, experts, bytes: None }
}

fn attention(keys: f64, window: Option<f64>, kernel: AttentionKernel, backward: bool) -> StepWork {
    let (queries, sequences, heads, qk_dim, v_dim) = (keys, 1.0, 32.0, 128.0, 128.0);
    StepWork::Attention(Attention {
        queries,
        keys,
        window,
        sequences,
        heads,
        qk_dim,
        v_dim,
        kernel,
        backward,
        causal: true,
        bytes: None,
    })
}

fn assert_equal(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} and {expected}");
}

#[test]
fn a_large_product_is_bound_by_the_tensor_cores() {
    // 8192 x 8448: 64 x 33 tiles of 128 x 256 are 16 whole waves over 132 SMs of H100.
    let constants = Constants::shipped();
    let lost = constants.gemm_loss * (989.4_f64 / 132.0 / (312.0 / 108.0)).sqrt();
    let flops = 2.0 * 8192.0 * 8448.0 * 8192.0;
    let expected = flops / (989.4e12 * constants.gemm.hopper * 8192.0 / (8192.0 + lost));
    let found = seconds("h100-sxm", &gemm(8192.0, 8448.0, 8192.0, Dtype::Bf16, None)).unwrap() * 3.0;
    assert!((found / (3.0 * expected) - 1.0).abs() < 1e-3, "{found} and {expected}");
}

#[test]
fn sms_share_the_columns_of_a_product_with_few_tiles() {
    // Gradients of a layer of 768: 18 tiles of 128 x 256, for 108 SMs.
    let of = |m, n, k| seconds("a100-sxm", &gemm(m, n, k, Dtype::Bf16, None)).unwrap();
    let ratio = of(768.0, 768.0, 65536.0) / of(65536.0, 768.0, 768.0);
    assert!((0.7..1.3).contains(&ratio), "{ratio}");
}

#[test]
fn half_rate_tensor_cores_reach_nearly_their_peak() {
    let of = |gpu, peak| {
        2.0 * 8192_f64.powi(3) / seconds(gpu, &gemm(8192.0, 8192.0, 8192.0, Dtype::Fp16, None)).unwrap() / peak
    };
    assert!((0.88..1.0).contains(&of("rtx3090", 71e12)) && (0.88..1.0).contains(&of("rtx4090", 165.2e12)));
    assert!(of("a6000", 154.8e12) < 0.8 && of("l40s", 362.05e12) < 0.8, "whose cores have the full rate");
}

#[test]
fn products_on_amd_take_about_the_times_that_are_published() {
    let tflops =
        |gpu, [m, n, k]: [f64; 3], dtype| 2e-12 * m * n * k / seconds(gpu, &gemm(m, n, k, dtype, None)).unwrap();
    let (square, of_amd) = ([8192.0; 3], [4096.0, 4864.0, 32896.0]);
    for (gpu, shape, dtype, published) in [
        ("mi300x", of_amd, Dtype::Bf16, 708.0),  // AMD's maximum achievable FLOPs
        ("mi300x", of_amd, Dtype::Fp8, 1273.0),  // likewise
        ("mi300x", square, Dtype::Fp8, 1159.0),  // Azure's AI benchmarking guide
        ("mi325x", of_amd, Dtype::Bf16, 831.0),  // AMD's maximum achievable FLOPs
        ("mi325x", square, Dtype::Bf16, 785.0),  // HazyResearch/HipKittens
        ("mi350x", square, Dtype::Fp8, 2660.0),  // likewise
        ("mi355x", square, Dtype::Bf16, 1521.0), // likewise
        ("mi355x", square, Dtype::Fp8, 3233.0),  // likewise
    ] {
        let ratio = tflops(gpu, shape, dtype) / published;
        assert!((0.82..1.12).contains(&ratio), "{gpu} {shape:?} {dtype:?}: {ratio} of {published}");
    }
}

#[test]
fn amd_without_a_value_has_the_one_of_hopper() {
    let thin = |gpu| seconds(gpu, &gemm(1.0, 8192.0, 8192.0, Dtype::Bf16, None)).unwrap();
    assert_equal(thin("mi300x") / thin("h100-sxm"), 3350.0 / 5300.0);
}

#[test]
fn a_product_that_moves_other_bytes_than_its_matrices_says_so() {
    let convolution = |bytes| {
        let (m, n, k) = (401_408.0, 64.0, 576.0);
        seconds("h100-sxm", &StepWork::Gemm { m, n, k, batch: 1.0, dtype: Dtype::Fp16, experts: None, bytes }).unwrap()
    };
    assert!(convolution(Some(2.0 * 401_408.0 * 128.0)) < convolution(None), "a pixel is read once, not nine times");
    let constants = Constants::shipped();
    assert_equal(convolution(Some(1e10)), 1e10 * constants.weights.hopper / (3.35e12 * constants.memory_rate));
}

#[test]
fn a_thin_product_is_bound_by_the_memory() {
    let found = seconds("h100-sxm", &gemm(1.0, 8192.0, 8192.0, Dtype::Bf16, None)).unwrap();
    let bytes = 2.0 * (8192.0 + 8192.0 * 8192.0 + 8192.0);
    let constants = Constants::shipped();
    assert_equal(found, bytes * constants.weights.hopper / (3.35e12 * constants.memory_rate));
}

#[test]
fn experts_lose_more_of_k_and_share_waves() {
    let of = |experts, batch| {
        let (m, n, k) = (1024.0, 2048.0, 2048.0);
        seconds("h100-sxm", &StepWork::Gemm { m, n, k, batch, dtype: Dtype::Bf16, experts, bytes: None }).unwrap()
    };
    assert!(of(Some(1.0), 1.0) > of(None, 1.0));
    assert!(of(Some(1.0), 8.0) < 8.0 * of(Some(1.0), 1.0));
    assert!(of(Some(0.5), 1.0) < of(Some(1.0), 1.0));
}

#[test]
fn attention_counts_the_scores_that_causal_kernels_compute() {
    use AttentionKernel::{Cudnn, Fa1, Fa2, Unfused};
    let of = |keys, window, kernel, backward| seconds("a100-sxm", &attention(keys, window, kernel, backward)).unwrap();
    let full = of(8192.0, None, Fa2, false);
    assert_equal(of(16384.0, None, Fa2, false), 4.0 * full);
    assert_equal(of(8192.0, Some(8192.0), Fa2, false), full);
    assert_equal(of(8192.0, Some(4096.0), Fa2, false), 0.75 * full);
    assert_equal(of(8192.0, Some(1e9), Fa2, false), full);
    assert!(of(8192.0, Some(128.0), Fa2, false) < 0.04 * full);
    for backward in [false, true] {
        let times = [Cudnn, Fa2, Fa1, Unfused].map(|kernel| of(8192.0, None, kernel, backward));
        assert!(times.windows(2).all(|two| two[0] < two[1]), "{times:?}");
    }
    assert!(of(8192.0, None, Fa2, true) > 2.5 * full);
}

#[test]
fn a_generated_token_takes_the_time_in_which_its_keys_are_read() {
    let (keys, read) = (8192.0, 2.0 * 8192.0 * 8.0 * 128.0 * 2.0);
    let of = |bytes| {
        let StepWork::Attention(other) = attention(keys, None, AttentionKernel::Fa2, false) else { unreachable!() };
        let one = Attention { queries: 1.0, causal: false, bytes, ..other };
        seconds("h100-sxm", &StepWork::Attention(one)).unwrap()
    };
    assert_equal(of(Some(read)), read / (3350e9 * Constants::shipped().memory_rate));
    assert!(of(Some(read)) > 10.0 * of(None) && of(Some(1.0)) == of(None));
}

#[test]
fn integers_of_8_bits_have_twice_the_rate_of_fp16_since_turing() {
    let peaks = [
        ("t4", 130.0),
        ("v100-sxm", 59.4),
        ("a100-sxm", 624.0),
        ("rtx3090", 284.0),
        ("l4", 242.0),
        ("h100-sxm", 1978.8),
        ("b300", 150.0),
    ];
    for (gpu, peak) in peaks {
        let device = Device::of(gpus::named(gpu).unwrap()).unwrap();
        let found = device.peak(Dtype::Int8).unwrap() / 1e12;
        assert!((found / peak - 1.0).abs() < 0.01, "{gpu}: {found} TOPS");
    }
}

#[test]
fn heads_of_no_multiple_of_8_need_no_tensor_cores() {
    let of = |elements: f64| {
        let StepWork::Attention(other) = attention(2048.0, None, AttentionKernel::Unfused, false) else {
            unreachable!()
        };
        let work = StepWork::Attention(Attention { qk_dim: elements, v_dim: elements, ..other });
        seconds("a100-sxm", &work).unwrap()
    };
    assert!(of(108.0) > 1.5 * of(112.0));
}

#[test]
fn precisions_that_a_gpu_lacks_are_refused_with_those_it_has() {
    for (gpu, dtype) in [("a100-sxm", Dtype::Fp8), ("h100-sxm", Dtype::Fp4), ("v100-sxm", Dtype::Bf16)] {
        let error = seconds(gpu, &gemm(64.0, 64.0, 64.0, dtype, None)).unwrap_err().to_string();
        assert!(error.contains("choose one of") && error.contains("fp16"), "{error}");
    }
    let [half, single] = [Dtype::Bf16, Dtype::Tf32]
        .map(|dtype| seconds("h100-sxm", &gemm(8192.0, 8192.0, 8192.0, dtype, None)).unwrap());
    assert!(single > 1.8 * half && single < 2.1 * half);
}

#[test]
fn tf32_without_tensor_cores_for_it_runs_as_fp32() {
    let of = |gpu, dtype| seconds(gpu, &gemm(4096.0, 4096.0, 4096.0, dtype, None)).unwrap();
    assert_equal(of("t4", Dtype::Tf32), of("t4", Dtype::Fp32));
    assert!(of("a100-sxm", Dtype::Tf32) < 0.5 * of("a100-sxm", Dtype::Fp32));
}

#[test]
fn every_gpu_with_peaks_computes() {
    for gpu in gpus::all().iter().filter(|gpu| gpu.compute.is_some()) {
        let device = Device::of(gpu).unwrap();
        let compute = Compute { device: &device, constants: Constants::shipped() };
        let took = compute.seconds(&gemm(4096.0, 4096.0, 4096.0, Dtype::Fp16, None)).unwrap();
        let peak = device.peak(Dtype::Fp16).unwrap();
        let reached = 2.0 * 4096.0_f64.powi(3) / took / peak;
        assert!((0.2..0.95).contains(&reached), "{}: {reached}", gpu.name);
    }
}

#[test]
fn products_of_a_vocabulary_that_nobody_padded_take_longer() {
    let of = |[m, n, k]: [f64; 3]| seconds("a100-sxm", &gemm(m, n, k, Dtype::Bf16, None)).unwrap();
    let padded = of([8192.0, 50304.0, 768.0]);
    assert!(of([8192.0, 50257.0, 768.0]) > 2.0 * padded);
    assert!(of([8192.0, 768.0, 50257.0]) > 2.0 * padded);
    assert!(of([8191.0, 50304.0, 768.0]) < 1.01 * padded, "rows of tokens may be any number");
}

proptest! {
    #[test]
    fn larger_products_take_longer(
        m in 1.0..1e5_f64, n in 1.0..1e5_f64, k in 1.0..1e5_f64, more in 1.0..4.0_f64, side in 0..3_usize,
    ) {
        let aligned = |size: f64| 8.0 * (size / 8.0).ceil();
        let mut sizes = [m, n, k].map(aligned);
        let of = |[m, n, k]: [f64; 3]| seconds("b200", &gemm(m, n, k, Dtype::Bf16, None)).unwrap();
        let before = of(sizes);
        sizes[side] = aligned(sizes[side] * more);
        prop_assert!(of(sizes) >= before * 0.999, "{sizes:?}: {} after {before}", of(sizes));
    }
}
