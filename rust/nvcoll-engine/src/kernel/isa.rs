//! The instruction sets for which the kernels are compiled, and which of them this processor has.

/// An instruction set for which the kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every processor of the architecture has.
    Baseline,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// Returns the instruction sets of this processor, the best last.
    pub fn available() -> Vec<Isa> {
        let mut all = vec![Isa::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Isa::Avx2);
            }
            let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if has_avx512 && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
                all.push(Isa::Avx512);
            }
        }
        all
    }

    /// Returns the best instruction set of this processor.
    pub fn detect() -> Isa {
        *Self::available().last().expect("the baseline is always there")
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Baseline if cfg!(target_arch = "aarch64") => "NEON (arm64 baseline)",
            Isa::Baseline => "SSE2 (x86-64 baseline)",
            Isa::Avx2 => "AVX2",
            Isa::Avx512 => "AVX-512",
        }
    }
}
