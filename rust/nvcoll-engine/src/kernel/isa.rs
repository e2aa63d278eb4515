//! The instruction sets for which the kernels are compiled, and which of them this processor has.

use crate::error::{Error, Result};

/// An instruction set for which the kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// The instructions that every processor of the architecture has.
    Baseline,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// Every instruction set, the best last.
    pub const ALL: [Isa; 3] = [Isa::Baseline, Isa::Avx2, Isa::Avx512];

    /// Returns the instruction sets of this processor, the best last.
    pub fn available() -> Vec<Isa> {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            let has_avx512 = has_avx512 && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl");
            Self::ALL
                .into_iter()
                .zip([true, has_avx2, has_avx512])
                .filter_map(|(isa, has)| has.then_some(isa))
                .collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Isa::Baseline]
    }

    /// Returns the best instruction set of this processor.
    pub fn detect() -> Isa {
        *Self::available().last().expect("the baseline is always there")
    }

    /// Refuses an instruction set that this processor lacks: its kernels would end the process.
    ///
    /// # Errors
    /// [`Error::NoIsa`] names those that it has.
    pub fn check(self) -> Result<()> {
        self.check_among(&Self::available())
    }

    fn check_among(self, available: &[Isa]) -> Result<()> {
        if available.contains(&self) {
            return Ok(());
        }
        let names: Vec<&str> = available.iter().map(|isa| isa.short_name()).collect();
        Err(Error::NoIsa { isa: self.short_name(), available: names.join(", ") })
    }

    /// Finds an instruction set by its short or its long name, in any case, whether this processor has it or not.
    pub fn named(name: &str) -> Option<Isa> {
        Self::ALL.into_iter().find(|isa| [isa.short_name(), isa.name()].iter().any(|n| n.eq_ignore_ascii_case(name)))
    }

    /// Returns the name by which users choose it.
    pub fn short_name(self) -> &'static str {
        match self {
            Isa::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Isa::Baseline => "sse2",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_the_processor_lacks_is_refused_and_what_it_has_is_named() {
        let error = Isa::Avx512.check_among(&[Isa::Baseline, Isa::Avx2]).unwrap_err().to_string();
        assert_eq!(error, format!("this processor has no avx512: choose from {}, avx2", Isa::Baseline.short_name()));
        for isa in Isa::ALL {
            assert_eq!(isa.check().is_ok(), Isa::available().contains(&isa));
        }
    }

    #[test]
    fn short_and_long_names_are_found_in_any_case() {
        assert_eq!(Isa::named("AVX2"), Some(Isa::Avx2));
        assert_eq!([Isa::named("avx-512"), Isa::named("AVX512")], [Some(Isa::Avx512); 2]);
        assert!(Isa::ALL.iter().all(|isa| Isa::named(isa.short_name()) == Isa::named(isa.name())));
        assert_eq!(Isa::named("avx"), None);
    }
}
