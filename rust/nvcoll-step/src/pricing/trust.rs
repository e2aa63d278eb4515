//! How far predictions of a step can be trusted: its 90 % interval, and what of it was never measured.
//!
//! Intervals are quantiles of what published runs took, in what constants that had not seen their source predicted. A step that is like no
//! published run has a wider interval, and says why. `tools/training/steps.py --write` writes the tables.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nvcoll_fabric::hardware::gpus;
use serde::Deserialize;

use super::Pricer;
use crate::error::Result;
use crate::layout::Dtype;
use crate::step::work::{MoveRate, StepWork};
use crate::step::WorkStep;
use crate::tables;

/// A row of `intervals.toml` and `serving_intervals.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interval {
    pub(crate) class: String,
    pub(crate) low: f64,
    pub(crate) high: f64,
    #[expect(dead_code, reason = "read by people, and required")]
    source: String,
}

/// A row of `evidence.toml`: published runs on a GPU, in a precision, with or without experts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Evidence {
    gpu: String,
    dtype: Dtype,
    experts: bool,
    /// The most GPUs of a run.
    gpus: u32,
    /// The longest sequence of a run.
    sequence: f64,
}

static INTERVALS: LazyLock<Vec<Interval>> =
    LazyLock::new(|| tables::rows(include_str!("../data/intervals.toml"), "interval"));

/// A row of `ran.toml`: software of which runs were published.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ran {
    name: String,
}

static RAN: LazyLock<Vec<Ran>> = LazyLock::new(|| tables::rows(include_str!("../data/ran.toml"), "software"));

static EVIDENCE: LazyLock<Vec<Evidence>> =
    LazyLock::new(|| tables::rows(include_str!("../data/evidence.toml"), "evidence"));

/// The times that an interval is wider, on the logarithmic scale, where nothing like the step was measured. Chosen.
const WIDER: f64 = 1.5;

/// The times that a kernel may take longer, or shorter, than the bytes of its arguments. Chosen: scans and attention in Triton compute as long
/// as they move several times their bytes, and kernels that gather read a part of an argument.
const BOUND: f64 = 3.0;

/// The part of the computing in such kernels from which on the interval tells it. Chosen.
const TOLD: f64 = 0.02;

impl Pricer<'_> {
    /// Returns the ends of the 90 % interval in times of the prediction, and why it is wider than usual, if it is.
    pub(super) fn trust(&self, step: &WorkStep) -> Result<([f64; 2], Vec<String>)> {
        let has_experts = step.ops().any(|op| matches!(op.work, StepWork::Gemm { experts: Some(_), .. }));
        let class = if has_experts { "experts" } else { "dense" };
        let ends = tables::named("interval", class, &INTERVALS, |one| &one.class)?;
        let mut reasons = self.unlike(step, has_experts);
        reasons.extend(step.layers().and_then(|layers| never_ran(layers.software.as_deref()?)));
        reasons.extend(step.streams().map(|streams| self.recorded_elsewhere(&streams.gpu)).transpose()?.flatten());
        let wider = if reasons.is_empty() { 1.0 } else { WIDER };
        let (part, why) = self.bounded(step)?;
        reasons.extend(why);
        let [low, high] = [part / BOUND, part * BOUND].map(|bound| 1.0 - part + bound);
        Ok(([low * ends.low.powf(wider), high * ends.high.powf(wider)], reasons))
    }

    /// Returns the part of the computing in kernels of which only the bytes of their arguments are known, and says which, if it matters.
    fn bounded(&self, step: &WorkStep) -> Result<(f64, Option<String>)> {
        let (mut all, mut of) = (f64::MIN_POSITIVE, BTreeMap::<&str, f64>::new());
        for op in step.ops() {
            let seconds = op.count * self.compute().seconds(&op.work)?;
            all += seconds;
            if matches!(op.work, StepWork::Move { rate: MoveRate::Bound, .. }) {
                *of.entry(&op.name).or_default() += seconds;
            }
        }
        let part = of.values().sum::<f64>() / all;
        let longest = of.iter().max_by(|one, other| one.1.total_cmp(other.1)).filter(|_| part >= TOLD);
        let why = longest.map(|(name, _)| {
            let kernels = if of.len() > 1 { format!("`{name}` and {} more", of.len() - 1) } else { format!("`{name}`") };
            format!("{:.0} % of the computing is in kernels of which only the bytes of their arguments are known ({kernels})", 100.0 * part)
        });
        Ok((if why.is_some() { part } else { 0.0 }, why))
    }

    /// Says that a step was recorded on another generation of GPU, which runs other kernels, or on an unknown one.
    fn recorded_elsewhere(&self, gpu: &str) -> Result<Option<String>> {
        let here = gpus::named(&self.device.name)?;
        let models = gpus::named(gpu).map_or_else(|_| gpus::gpus_called(gpu), |one| vec![one]);
        let is_alike = models.iter().any(|on| on.generation == here.generation && on.sm == here.sm);
        let title = if let [one] = models[..] { one.title.as_str() } else { gpu };
        Ok((!is_alike).then(|| format!("it was recorded on {title}: {} runs other kernels", here.title)))
    }

    /// Returns in what a step is like no published run.
    fn unlike(&self, step: &WorkStep, has_experts: bool) -> Vec<String> {
        let title = &self.device.title;
        let on_gpu: Vec<_> = EVIDENCE.iter().filter(|row| row.gpu == self.device.name).collect();
        if on_gpu.is_empty() {
            return vec![format!("no run on {title} was published")];
        }
        let alike = on_gpu.into_iter().find(|row| row.dtype == step.dtype && row.experts == has_experts);
        let Some(row) = alike else {
            let model = if has_experts { "a model with experts" } else { "a dense model" };
            return vec![format!("no run of {model} in {} on {title} was published", step.dtype.name())];
        };
        let keys = step.ops().filter_map(|op| match op.work {
            StepWork::Attention(attention) => Some(attention.keys),
            _ => None,
        });
        let sequence = keys.fold(0.0, f64::max);
        let mut found = Vec::new();
        if step.gpus > row.gpus {
            found.push(format!("published runs of such models on {title} have at most {} GPUs", row.gpus));
        }
        if sequence > row.sequence {
            found.push(format!(
                "published runs of such models on {title} have at most {} tokens a sequence",
                row.sequence
            ));
        }
        found
    }
}

/// Says that nobody published a run of some software.
fn never_ran(software: &str) -> Option<String> {
    let is_known = RAN.iter().any(|row| row.name == software);
    (!is_known).then(|| format!("no run with {software} was published"))
}
