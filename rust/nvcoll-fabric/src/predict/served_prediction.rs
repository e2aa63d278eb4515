//! Predictions of calls as model servers make them: by their kernels, or by NCCL where their rule says so.

use super::pattern::Pattern;
use super::predictor::{CollectiveCall, Launch, Predictor};
use super::selection::AlgorithmFilter;
use super::served::{ServedMachine, ServerKernel, KERNELS};
use super::served_rules::{PeerLink, Server};
use super::Prediction;
use crate::error::{Error, Result};
use crate::floor::Floor;
use crate::units::PS_PER_US;

/// The fewest models of GPUs of a generation and link that validate a kernel. Chosen.
const FEWEST_GPUS: u32 = 2;

/// The power of the interval where a kernel was not measured on such GPUs and links. Chosen.
const UNMEASURED: f64 = 2.0;

impl CollectiveCall {
    /// Makes the call of a server, which chooses all but the collective.
    fn served(pattern: Pattern) -> Self {
        Self { pattern, launch: Launch::ProcessPerGpu, forced: AlgorithmFilter::default() }
    }
}

impl Predictor {
    /// Predicts a call as a server makes it, or as a program does that calls NCCL; `floor` as of [`Predictor::predict`].
    ///
    /// # Errors
    /// Those of [`Predictor::weigh`]; [`Error::Unable`] for another collective than all_reduce, for a forced algorithm or another
    /// launch than the default, and for machines with kernels that are not known.
    pub fn predict_as(
        &self,
        server: Option<Server>,
        call: &CollectiveCall,
        nbytes: u64,
        floor: &Floor,
    ) -> Result<Prediction> {
        let by_nccl = || Ok(self.predict(call, &self.weigh(call, nbytes)?, floor));
        let Some(server) = server else { return by_nccl() };
        let (machine, row) = (&self.served, server.row());
        let refused = match (call.pattern, machine.refusal) {
            (Pattern::AllReduce, refusal) if *call == CollectiveCall::served(Pattern::AllReduce) => refusal,
            (Pattern::AllReduce, _) => {
                Some("a server chooses, in a CUDA graph: leave out algorithm, protocol and launch")
            }
            _ => Some("servers have kernels of their own for all_reduce only: leave out `as`, since NCCL runs others"),
        };
        if let Some(message) = refused {
            return Err(Error::Unable { fabric: self.fabric.clone(), message: message.to_owned() });
        }
        let rule = format!("the rule of {} {}", row.title, row.version);
        let why = match machine.link.map(|link| Some((link, machine.kernel(server, link, nbytes)?))) {
            Ok(Some((link, (name, kernel)))) => {
                let (implementation, rule) = (format!("{} {name}", row.title), Some(rule));
                return Ok(Prediction {
                    implementation,
                    rule,
                    ..machine.prediction(link, (name, kernel), nbytes, floor)
                });
            }
            Ok(None) => "this size and number of GPUs",
            Err(why) => why,
        };
        Ok(Prediction { rule: Some(format!("{rule}: {why}")), ..by_nccl()? })
    }

    /// Returns the microseconds of a call that a server makes, without interval and lower bound.
    ///
    /// # Errors
    /// Those of [`Predictor::predict_as`].
    pub fn us_as(&self, server: Server, pattern: Pattern, nbytes: u64) -> Result<f64> {
        let (call, floor) = (CollectiveCall::served(pattern), Floor { algbw: None, latency: 0 });
        Ok(self.predict_as(Some(server), &call, nbytes, &floor)?.us)
    }
}

impl ServedMachine {
    fn prediction(
        &self,
        link: PeerLink,
        (name, kernel): (&'static str, &ServerKernel),
        nbytes: u64,
        floor: &Floor,
    ) -> Prediction {
        let [start, copies, bytes] = self.spent(kernel, link, nbytes as f64);
        let floor_us = floor.time(nbytes) as f64 / PS_PER_US as f64;
        let parts = [
            ("start-up", start, "starting: kernel and flags"),
            ("copies", copies, "copies to and from the symmetric buffer"),
            ("bytes", bytes, "links between GPUs"),
            ("floor", (floor_us - start - copies - bytes).max(0.0), "the narrowest cut of the fabric"),
        ];
        let time: f64 = parts.iter().map(|part| part.1).sum();
        let (_, longest_us, limited_by) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("it has parts");
        let measured = kernel.measured.get(&format!("{link:?} {:?}", self.age).to_lowercase()).copied().unwrap_or(0);
        let is_validated = measured >= FEWEST_GPUS;
        let factor = if link == PeerLink::Pcie { KERNELS.pcie_factor } else { kernel.factor };
        let factor = factor.powf(if measured > 0 { 1.0 } else { UNMEASURED });
        let trust = match is_validated {
            true => format!("validated on {measured} GPU models of this generation"),
            false => "not validated".to_owned(),
        };
        Prediction {
            nbytes,
            algorithm: name,
            protocol: "",
            implementation: String::new(),
            rule: None,
            channels: None,
            us: time,
            low_us: (time / factor).max(floor_us),
            high_us: time * factor,
            floor_us,
            nccl_us: None,
            bottleneck: format!("{limited_by}, {:.0} % of the time", 100.0 * longest_us / time),
            limited_by: limited_by.to_owned(),
            trust,
            is_validated,
            parts: parts.into_iter().filter(|part| part.1 > 0.0).map(|(name, us, _)| (name, us)).collect(),
        }
    }
}
