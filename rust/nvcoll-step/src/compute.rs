//! What an operation costs on a GPU: closed forms over the device's row and the constants.
//!
//! ```text
//! GEMM         max(2 m n k / (peak e quantised^q k / (k + lost)), bytes / rate)
//! quantised    best of four tiles: used part of the tiles x filled part of the waves over the SMs, which share K if tiles are few
//! lost         K of a tile's prologue and epilogue, sqrt(peak per SM) larger on faster SMs, several times larger for experts, smaller at half rate
//! flash        max(4 FLOPs per score and element (10 backward), causal blocks 9/16, over the kernel's published part of the peak, bytes / rate)
//! unfused      two GEMMs with the whole square of scores, and bytes per score
//! bytes        at 85 % of the memory's rate; products that wait for the memory at the part that a generation's reach (`weights`)
//! in a graph   start, tail and gap of each kernel, beyond its work (`graph_*`)
//! element-wise the least bytes x passes x slowness / rate; passes: how often they are moved; slowness: the rate of A100's in a generation's
//! ```
//!
//! Source: roofline (Williams et al. 2009); tiles and waves (NVIDIA, "Matrix Multiplication Background"); the rest is ours, fitted as the
//! rows of `constants.toml` say. It does not know clocks: a power limit below the row's watts makes products slower than computed here. Of
//! AMD's it knows that those with fewer watts for their peak clock lower.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nvcoll_fabric::hardware::gpus::{self, Generation, Gpu};
use serde::Deserialize;

use crate::attention::Attention;
use crate::constants::{ByGeneration, Constants};
use crate::error::{Error, Result};
use crate::layout::Dtype;
use crate::memory_constants::{CONTEXT_BYTES_PER_SM, GIB};
use crate::software::AttentionKernel;
use crate::step::work::{Direction, MoveRate, StepWork};
use crate::tables;

/// A GPU as computing sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The name of its row.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// The memory that programs see, in bytes.
    pub memory: f64,
    /// Bytes of it that a CUDA context takes.
    pub context: f64,
    /// The bytes per second of its memory.
    rate: f64,
    sms: f64,
    /// FLOP/s in fp32 without tensor cores, and the part of them in fp64.
    plain: f64,
    double: f64,
    /// Bytes per second to the memory of the processor, in one direction.
    pub(crate) host_link: f64,
    /// Dense FLOP/s by dtype.
    peaks: BTreeMap<&'static str, f64>,
    class: CoreClass,
    /// The part of its class's rate of products that its power leaves.
    power: f64,
}

/// A row of [`ByGeneration`]. Generations without published runs have the constants of the nearest one that has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CoreClass {
    Volta,
    Ampere,
    Hopper,
    Blackwell,
    BlackwellUltra,
    Cdna3,
    Cdna4,
}

impl ByGeneration {
    fn of(&self, class: CoreClass) -> f64 {
        match class {
            CoreClass::Volta => self.volta,
            CoreClass::Ampere => self.ampere,
            CoreClass::Hopper => self.hopper,
            CoreClass::Blackwell => self.blackwell,
            CoreClass::BlackwellUltra => self.blackwell_ultra,
            CoreClass::Cdna3 => self.cdna3.unwrap_or(self.hopper),
            CoreClass::Cdna4 => self.cdna4.unwrap_or(self.hopper),
        }
    }
}

/// A row of `attention.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelRow {
    kernel: AttentionKernel,
    forward: ByGeneration,
    backward: ByGeneration,
    heads: BTreeMap<String, f64>,
    #[expect(dead_code, reason = "read by people, and required")]
    source: String,
}

static KERNELS: LazyLock<Vec<KernelRow>> =
    LazyLock::new(|| tables::rows(include_str!("data/attention.toml"), "kernel"));

/// The compute capability of Blackwell Ultra.
const BLACKWELL_ULTRA: u32 = 103;

/// The compute capability from which on Blackwell is a chip for graphics, without the tensor memory of B200.
const GRAPHICS_BLACKWELL: u32 = 120;

/// What heads of a size that the table lacks sustain.
const OTHER_HEADS: f64 = 0.8;

/// The square of causal scores that blocks of a kernel compute: the half, and the diagonal blocks of an eighth.
const CAUSAL: f64 = 0.5 * (1.0 + 1.0 / 8.0);

/// The peak per SM of A100, TFLOP/s.
const A100_SM: f64 = 312.0 / 108.0;

/// Peaks of tensor cores below this multiple of the fp32 peak are those of GeForce: other chips have 4 to 16 times.
const HALF_RATE: f64 = 3.0;

/// Tiles of products, rows and columns, with what they reach of the largest. Chosen after cuBLAS; those of few rows after kernels of servers,
/// which multiply with the weights of one expert for a token or two.
const TILES: [(f64, f64, f64); 7] = [
    (128.0, 256.0, 1.0),
    (256.0, 128.0, 1.0),
    (128.0, 128.0, 0.88),
    (64.0, 128.0, 0.7),
    (64.0, 256.0, 0.75),
    (32.0, 256.0, 0.5),
    (16.0, 256.0, 0.35),
];

/// The parts of K that as many tiles share, where one tile for each part of the result leaves SMs idle. Chosen after cuBLAS and cuDNN.
const PARTS_OF_K: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

impl Device {
    /// Returns what is known of a GPU's computing.
    ///
    /// # Errors
    /// [`Error::Gpu`] if its row has no peaks.
    pub fn of(gpu: &Gpu) -> Result<Self> {
        let Some(compute) = &gpu.compute else {
            return Err(Error::Gpu(format!("the peaks of {} are not known: choose another GPU", gpu.name)));
        };
        let class = match gpu.generation {
            Generation::Kepler | Generation::Pascal | Generation::Volta | Generation::Turing => CoreClass::Volta,
            Generation::Ampere | Generation::Ada | Generation::Cdna2 => CoreClass::Ampere,
            Generation::Blackwell if gpu.sm >= Some(GRAPHICS_BLACKWELL) => CoreClass::Ampere,
            Generation::Hopper => CoreClass::Hopper,
            Generation::Cdna3 => CoreClass::Cdna3,
            Generation::Cdna4 => CoreClass::Cdna4,
            Generation::Blackwell if gpu.sm == Some(BLACKWELL_ULTRA) => CoreClass::BlackwellUltra,
            Generation::Blackwell => CoreClass::Blackwell,
        };
        let peaks = [("fp16", compute.fp16), ("bf16", compute.bf16), ("fp8", compute.fp8), ("fp4", compute.fp4)];
        let plain = f64::from(compute.sms) * plain_of_sm(gpu.sm);
        let mut peaks: BTreeMap<_, _> =
            peaks.into_iter().filter_map(|(name, peak)| Some((name, peak? * 1e12))).collect();
        peaks.extend(int8_peak(gpu, &peaks, plain).map(|peak| ("int8", peak)));
        Ok(Self {
            name: gpu.name.clone(),
            title: gpu.title.clone(),
            memory: compute.usable_gib * GIB,
            context: f64::from(compute.sms) * CONTEXT_BYTES_PER_SM,
            rate: gpu.memory_gbps * 1e9,
            sms: compute.sms.into(),
            plain,
            double: if matches!(gpu.sm, Some(70 | 80 | 90 | 100)) { 0.5 } else { 1.0 / 64.0 },
            host_link: host_link(gpu),
            peaks,
            class,
            power: part_of_power(class, compute),
        })
    }

    /// Returns the value of its generation.
    pub(crate) fn of_generation(&self, constant: &ByGeneration) -> f64 {
        constant.of(self.class)
    }

    /// Returns the dense FLOP/s of products of a precision; TF32 has half of the bf16 rate, FP32 and FP64 use no tensor cores.
    ///
    /// # Errors
    /// [`Error::Gpu`] if its tensor cores lack it.
    pub fn peak(&self, dtype: Dtype) -> Result<f64> {
        let name = match dtype {
            Dtype::Fp4 => "fp4",
            Dtype::Fp8 => "fp8",
            Dtype::Int8 => "int8",
            Dtype::Tf32 if !self.peaks.contains_key("bf16") => return Ok(self.plain), // before Ampere it is not there
            Dtype::Bf16 | Dtype::Tf32 => "bf16",
            Dtype::Fp16 => "fp16",
            Dtype::Fp32 => return Ok(self.plain),
            Dtype::Fp64 => return Ok(self.plain * self.double),
        };
        let found = self.peaks.get(name).copied();
        let half = if dtype == Dtype::Tf32 { 0.5 } else { 1.0 };
        found.map(|peak| peak * half).ok_or_else(|| {
            let known = self.peaks.keys().copied().collect::<Vec<_>>().join(", ");
            Error::Gpu(format!("{} has no tensor cores for {}: choose one of {known}", self.name, dtype.name()))
        })
    }
}

/// Seconds of operations on one device, under some constants.
#[derive(Debug, Clone, Copy)]
pub struct Compute<'d> {
    /// The device.
    pub device: &'d Device,
    /// The constants.
    pub constants: &'d Constants,
}

impl Compute<'_> {
    /// Bytes per second of streaming kernels.
    fn stream_rate(&self) -> f64 {
        self.device.rate * self.constants.memory_rate
    }

    /// Returns the seconds of work of the GPU or of the processor: 0 for what links do and for what orders streams.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device lacks the precision.
    pub fn seconds(&self, work: &StepWork) -> Result<f64> {
        Ok(match *work {
            StepWork::Gemm { m, n, k, batch, dtype, experts, bytes } => {
                self.gemm([m, n, k], batch, dtype, experts, bytes)?
            }
            StepWork::Attention(attention) => self.attention(attention)?,
            StepWork::Move { bytes, rate, .. } => match rate {
                MoveRate::Least => {
                    let constant = self.constants.elementwise;
                    self.moving(constant.of(self.device.class).min(constant.ampere) * bytes)
                }
                MoveRate::Stream => bytes / self.stream_rate(),
                MoveRate::Counted | MoveRate::Bound => self.moving(bytes),
            },
            StepWork::Copy { bytes, direction: Direction::D2d } => 2.0 * bytes / self.stream_rate(),
            StepWork::Copy { bytes, .. } => bytes / self.device.host_link,
            StepWork::Timed { seconds } | StepWork::Host { seconds } | StepWork::Stall { seconds } => seconds,
            StepWork::Collective { .. }
            | StepWork::Message { .. }
            | StepWork::Record { .. }
            | StepWork::StreamWait { .. }
            | StepWork::HostWait { .. } => 0.0,
        })
    }

    /// Returns the seconds of element-wise kernels that move `bytes`, as a recording counts them.
    ///
    /// The fitted constant is the time of the least bytes. It has two factors: how often the bytes are moved, on no GPU more often than on
    /// A100, whose kernels stream; and how much longer that takes than on A100, in parts of the memory's rate. Chosen: runs tell only the
    /// product.
    fn moving(&self, bytes: f64) -> f64 {
        let constant = self.constants.elementwise;
        (constant.of(self.device.class) / constant.ampere).max(1.0) * bytes / self.stream_rate()
    }

    /// Returns the seconds that kernels of a CUDA graph take beyond their work: starts, tails, and the gaps to the next. Attention of
    /// tokens that are generated divides the keys of a sequence among SMs, and joins their results. Collectives were measured in graphs.
    pub(crate) fn graph_s(&self, work: &StepWork) -> f64 {
        let (constants, class) = (self.constants, self.device.class);
        1e-6 * match work {
            StepWork::Move { launches, .. } => launches * constants.graph_kernel.of(class),
            StepWork::Attention(Attention { bytes: Some(_), .. }) => constants.graph_attention,
            StepWork::Gemm { experts: Some(_), .. } => constants.graph_experts.of(class),
            StepWork::Gemm { .. } | StepWork::Attention(_) => constants.graph_gemm.of(class),
            _ => 0.0,
        }
    }

    /// Returns how often weights of `bytes` each seem to be read in products as `dtype`: narrow ones take longer than their bytes.
    pub(crate) fn weights_seen(&self, bytes: f64, dtype: Dtype) -> f64 {
        match bytes {
            bytes if bytes < dtype.bytes() / 2.0 => self.constants.widened_weights,
            bytes if bytes < 2.0 => self.constants.narrow_weights,
            _ => 1.0,
        }
    }

    fn gemm(
        &self,
        [m, n, k]: [f64; 3],
        batch: f64,
        dtype: Dtype,
        experts: Option<f64>,
        bytes: Option<f64>,
    ) -> Result<f64> {
        let constants = self.constants;
        let peak = self.device.peak(dtype)?;
        let narrow = match dtype {
            Dtype::Fp8 if self.device.class == CoreClass::Cdna3 => constants.gemm_fp8_cdna3,
            Dtype::Fp8 => constants.gemm_fp8,
            Dtype::Fp4 => constants.gemm_fp4,
            _ => 1.0,
        };
        let of_a100 = peak / 1e12 / self.device.sms / A100_SM;
        let shows = if self.is_half_rate() { of_a100.min(1.0) } else { 1.0 };
        let lost =
            constants.gemm_loss * (of_a100 * shows).sqrt() * experts.map_or(1.0, |part| constants.grouped * part);
        let tiles = (m / 128.0).ceil() * (n / 128.0).ceil() * batch;
        let shares = if tiles < self.device.sms { &PARTS_OF_K[..] } else { &PARTS_OF_K[..1] };
        let reaches = shares.iter().map(|parts| {
            self.quantised(m, n, batch * parts, shows).powf(constants.quantisation) * k / (k + parts * lost)
        });
        let reached = reaches.fold(f64::MIN_POSITIVE, f64::max);
        let sustained = peak * self.sustained() * narrow * reached / misaligned_product(n, k);
        let matrices = (m * k + n * k) * dtype.bytes() + dtype.bytes().max(2.0) * m * n;
        let bytes = bytes.unwrap_or(batch * matrices);
        let read = bytes * constants.weights.of(self.device.class) / self.stream_rate();
        Ok((batch * 2.0 * m * n * k / sustained).max(read))
    }

    /// The part of the dense peak that large products sustain.
    fn sustained(&self) -> f64 {
        let half_rate = if self.is_half_rate() { self.constants.half_rate } else { 1.0 };
        self.constants.gemm.of(self.device.class) * self.device.power * half_rate
    }

    /// Whether tensor cores add in fp32 at half rate: loads of small tiles then hide behind products.
    fn is_half_rate(&self) -> bool {
        self.device.peaks.get("fp16").is_some_and(|peak| *peak < HALF_RATE * self.device.plain)
    }

    /// The part of the tiles and waves of a product that does useful work, with the best of the tiles. `shows`: the part of the losses of
    /// small tiles that nothing hides.
    fn quantised(&self, m: f64, n: f64, together: f64, shows: f64) -> f64 {
        let used = TILES.map(|(rows, columns, reaches)| {
            let tiles = (m / rows).ceil() * (n / columns).ceil() * together;
            let waves = (tiles / self.device.sms).ceil() * self.device.sms;
            m * n * together / (waves * rows * columns) * f64::powf(reaches, shows)
        });
        used.into_iter().fold(f64::MIN_POSITIVE, f64::max)
    }

    fn attention(&self, work: Attention) -> Result<f64> {
        let Attention { qk_dim, v_dim, kernel, backward, causal, bytes, .. } = work;
        let scores = work.scores();
        let square = 2.0 * scores * (qk_dim + v_dim);
        let peak = self.device.peak(Dtype::Bf16).or_else(|_| self.device.peak(Dtype::Fp16))?;
        if kernel == AttentionKernel::Unfused {
            return Ok(self.unfused(square, scores, qk_dim, peak, backward));
        }
        let row = KERNELS.iter().find(|row| row.kernel == kernel).expect("the table has every kernel");
        let part = if backward { row.backward } else { row.forward }.of(self.device.class);
        let head = row.heads.get(&format!("{qk_dim}")).copied().unwrap_or(OTHER_HEADS);
        let part_of_keys = work.part_of_keys();
        let seen = if causal { CAUSAL * part_of_keys * (2.0 - part_of_keys) } else { part_of_keys };
        let passes = if backward { 2.5 } else { 1.0 };
        let products = passes * square * seen / (peak * part * self.constants.attention * head);
        Ok(products.max(bytes.unwrap_or(0.0) / self.stream_rate()))
    }

    /// Two products of the whole square of scores, forward, and what softmax, mask and dropout move.
    fn unfused(&self, square: f64, scores: f64, head: f64, peak: f64, backward: bool) -> f64 {
        let constants = self.constants;
        let misaligned = if head % 8.0 == 0.0 { 1.0 } else { MISALIGNED };
        let (passes, bytes) = if backward { (2.0, 0.6) } else { (1.0, 0.4) };
        let sustained = peak * UNFUSED * self.sustained();
        passes * square / sustained * misaligned + bytes * constants.score_bytes * scores / self.stream_rate()
    }
}

/// The part of a large product's rate that the small products of unfused attention sustain. Chosen.
const UNFUSED: f64 = 0.9;

/// The times of unfused products whose heads are no multiple of 8 elements: no tensor cores. Fitted on BLOOM's trials.
const MISALIGNED: f64 = 6.0;

/// The times that a product takes longer where rows of a matrix begin at addresses that loads of 16 bytes cannot take: vocabularies that
/// nobody padded. Rows of tokens may be any number. Chosen: nanoGPT became 25 % faster on A100 when its vocabulary of 50,257 was padded
/// to 50,304, which takes a third of its products.
fn misaligned_product(n: f64, k: f64) -> f64 {
    let divides = |by: f64| n % by == 0.0 && k % by == 0.0;
    match () {
        () if divides(8.0) => 1.0,
        () if divides(2.0) => 1.3,
        () => 2.4,
    }
}

/// FLOP/s of an SM in fp32: two for each of its lanes and clocks. V100, A100 have 64 lanes at 1.4 to 1.5 GHz, all later ones 128 at 1.7
/// to 2. Cited: 15.7, 19.5, 67 and 75 TFLOP/s in the datasheets of V100, A100, H100 and B200, all within 8 %.
fn plain_of_sm(capability: Option<u32>) -> f64 {
    let (lanes, hertz) = match capability {
        Some(70 | 80) => (64.0, 1.45e9),
        Some(75) => (64.0, 1.6e9),
        Some(86) => (128.0, 1.7e9),
        _ => (128.0, 1.95e9),
    };
    2.0 * lanes * hertz
}

/// Operations per second on integers of 8 bits: twice the fp16 rate since Turing, four times where fp16 adds in fp32 at half rate, four
/// products a lane before. Cited: 130, 624, 284, 1979, 62.8 and 150 TOPS of T4, A100, RTX 3090, H100, V100 and B300.
fn int8_peak(gpu: &Gpu, peaks: &BTreeMap<&'static str, f64>, plain: f64) -> Option<f64> {
    let half = *peaks.get("fp16")?;
    Some(match gpu.sm {
        Some(..75) => 4.0 * plain,
        Some(BLACKWELL_ULTRA) => 0.15e15,
        _ if gpu.generation == Generation::Cdna2 => half,
        _ if half < HALF_RATE * plain => 4.0 * half,
        _ => 2.0 * half,
    })
}

/// The part of the rate of products that fewer watts for the peak leave, in those of the GPU that `gemm` is of, MI325X and MI355X: the root.
/// Cited: MI300X has 708 of the 831 TFLOP/s of MI325X (AMD's maximum achievable FLOPs); MI350X 0.90 of the part that MI355X reaches in fp8
/// (HazyResearch/HipKittens).
fn part_of_power(class: CoreClass, compute: &gpus::Compute) -> f64 {
    let full = match class {
        CoreClass::Cdna3 => 1000.0 / 1307.4,
        CoreClass::Cdna4 => 1400.0 / 2516.6,
        _ => return 1.0,
    };
    compute.bf16.map_or(1.0, |peak| (compute.watts / peak / full).sqrt().min(1.0))
}

/// The coherent link of a GPU to its processor, or its PCIe, at the part of the line rate that long copies reach.
fn host_link(gpu: &Gpu) -> f64 {
    let (medium, lanes) = gpu.c2c.map_or((gpu.pcie, gpu.pcie_lanes), |medium| (medium, 1));
    medium.lane_gbps * 1e9 * f64::from(lanes) * medium.efficiency
}
