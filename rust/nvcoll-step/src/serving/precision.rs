//! Formats of weights, the precision in which a GPU multiplies with them, and what kernels of experts take beside that.

use std::sync::LazyLock;

use nvcoll_fabric::predict::Server;
use serde::{Deserialize, Serialize};

use crate::compute::Device;
use crate::constants::ByGeneration;
use crate::layout::Dtype;
use crate::matrices::MatrixKind;
use crate::tables;

nvcoll_core::names! {
    /// The format of a model's weights.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Precision {
        /// bfloat16.
        #[default]
        Bf16 = "bf16",
        /// 8 bits, activations too.
        Fp8 = "fp8",
        /// 4 bits with a scale for 16 elements: all matrices of a dense model, the experts of others.
        Nvfp4 = "nvfp4",
        /// 4 bits with a scale for 32 elements: the experts alone.
        Mxfp4 = "mxfp4",
        /// Integers of 4 bits, with a scale for 128: weights alone.
        Int4 = "int4",
    }
}

/// How a matrix is stored, and how it is multiplied with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    /// Bytes of a weight, scales included.
    pub(super) bytes: f64,
    /// The precision of the product: bf16 where the GPU has no tensor cores for the format, which is widened on the way.
    pub(super) product: Dtype,
}

impl Precision {
    /// Returns how a matrix of a model with or without experts is stored.
    pub(super) fn of(self, kind: MatrixKind, has_experts: bool, device: &Device) -> Stored {
        let wide = Stored { bytes: 2.0, product: Dtype::Bf16 };
        let able = |dtype| if device.peak(dtype).is_ok() { dtype } else { Dtype::Bf16 };
        let is_narrow = match self {
            Self::Bf16 => false,
            Self::Fp8 | Self::Int4 => !matches!(kind, MatrixKind::Router | MatrixKind::Decays),
            Self::Nvfp4 => kind == MatrixKind::Expert || !has_experts,
            Self::Mxfp4 => kind == MatrixKind::Expert,
        };
        match self {
            _ if !is_narrow => wide,
            Self::Bf16 => wide,
            Self::Fp8 => Stored { bytes: 1.0, product: able(Dtype::Fp8) },
            Self::Nvfp4 => Stored { bytes: 0.5 + 1.0 / 16.0, product: able(Dtype::Fp4) },
            Self::Mxfp4 if device.peak(Dtype::Fp4).is_ok() => Stored { bytes: 0.5 + 1.0 / 32.0, product: Dtype::Fp8 },
            Self::Mxfp4 => Stored { bytes: 0.5 + 1.0 / 32.0, ..wide },
            Self::Int4 => Stored { bytes: 0.5 + 2.0 / 128.0, ..wide },
        }
    }
}

/// Formats that kernels of experts are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExpertFormat {
    Bf16,
    Fp8,
    Fp4,
    Widened,
}

/// A row of `expert_kernels.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpertKernels {
    server: Server,
    format: ExpertFormat,
    us: ByGeneration,
}

static EXPERTS: LazyLock<Vec<ExpertKernels>> =
    LazyLock::new(|| tables::rows(include_str!("../data/expert_kernels.toml"), "experts"));

impl Stored {
    /// Returns the seconds that a server's kernels for a layer of experts take beyond their work.
    ///
    /// # Panics
    /// If the table that is shipped lacks the row.
    pub(super) fn experts_s(self, server: Server, device: &Device) -> f64 {
        let format = match (self.product, self.bytes) {
            (Dtype::Bf16, 2.0) => ExpertFormat::Bf16,
            (Dtype::Bf16, _) => ExpertFormat::Widened,
            (Dtype::Fp8, 1.0) => ExpertFormat::Fp8,
            _ => ExpertFormat::Fp4,
        };
        let row = EXPERTS.iter().find(|row| row.server == server && row.format == format);
        1e-6 * device.of_generation(&row.expect("the table has each server and format").us)
    }
}
