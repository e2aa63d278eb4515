//! Where the time of a step goes: one number of seconds for each part, and nothing twice.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Mul};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A part of the time of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum TimePart {
    /// Matrix products.
    Gemm,
    /// Attention.
    Attention,
    /// Short convolutions and states of layers that keep a state instead of keys and values.
    State,
    /// Element-wise work, and gradients that are accumulated.
    Elementwise,
    /// What is computed again in the backward pass.
    Recompute,
    /// Waits for the processor.
    Host,
    /// Collectives of tensor parallelism that nothing hides.
    Tensor,
    /// All-to-alls of experts that nothing hides.
    Expert,
    /// Context parallelism that nothing hides.
    Context,
    /// Sharded parameters that nothing hides, and computing that slows beside them.
    Sharded,
    /// Waits for other stages.
    Bubble,
    /// Sends between stages that nothing hides.
    Sends,
    /// Reductions of gradients and gathers of parameters that nothing hides, and computing that slows beside them.
    Data,
    /// The optimizer.
    Optimizer,
    /// Stalls that the software is known for.
    Stall,
    /// Copies between processor and GPU that nothing hides.
    Copies,
}

/// The number of parts.
const COUNT: usize = 16;

/// What a GPU does in a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// It computes.
    Computes,
    /// It waits for data that move between GPUs, or computes slower beside them.
    Exposed,
    /// It waits for other stages, the processor or copies.
    Idle,
}

/// The parts in order: name, kind, and what people call it.
pub const PARTS: [(&str, PartKind, &str); COUNT] = [
    ("gemm", PartKind::Computes, "matrix products"),
    ("attention", PartKind::Computes, "attention"),
    ("state", PartKind::Computes, "states of sequences"),
    ("elementwise", PartKind::Computes, "element-wise work"),
    ("recompute", PartKind::Computes, "computed again"),
    ("host", PartKind::Idle, "waits for the processor"),
    ("tensor", PartKind::Exposed, "tensor parallelism, exposed"),
    ("expert", PartKind::Exposed, "expert parallelism, exposed"),
    ("context", PartKind::Exposed, "context parallelism, exposed"),
    ("sharded", PartKind::Exposed, "sharded parameters, exposed"),
    ("bubble", PartKind::Idle, "pipeline bubble"),
    ("sends", PartKind::Exposed, "sends between stages, exposed"),
    ("data", PartKind::Exposed, "data parallelism, exposed"),
    ("optimizer", PartKind::Computes, "optimizer"),
    ("stall", PartKind::Idle, "stalls of the software"),
    ("copies", PartKind::Idle, "copies to and from the processor, exposed"),
];

/// Seconds of each part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeParts([f64; COUNT]);

impl TimeParts {
    /// Returns seconds of one part.
    pub fn of(part: TimePart, seconds: f64) -> Self {
        let mut parts = Self::default();
        parts.add(part, seconds);
        parts
    }

    /// Adds seconds to a part.
    pub fn add(&mut self, part: TimePart, seconds: f64) {
        self.0[part as usize] += seconds;
    }

    /// Returns the seconds of a part.
    pub fn seconds(&self, part: TimePart) -> f64 {
        self.0[part as usize]
    }

    /// Returns the seconds of all parts.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns the seconds of all parts of a kind.
    pub fn of_kind(&self, kind: PartKind) -> f64 {
        PARTS.iter().zip(self.0).filter(|((_, of, _), _)| *of == kind).fold(0.0, |sum, (_, seconds)| sum + seconds)
    }

    /// Returns what people call the longest of some kinds of parts, and its seconds.
    pub(crate) fn longest(&self, is_meant: impl Fn(PartKind) -> bool) -> (&'static str, f64) {
        let meant = PARTS.into_iter().zip(self.0).filter(|((_, kind, _), _)| is_meant(*kind));
        let longest = meant.max_by(|(_, one), (_, other)| one.total_cmp(other));
        longest.map_or(("", 0.0), |((.., title), seconds)| (title, seconds))
    }

    /// Returns names and seconds of the parts that take any.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        PARTS.into_iter().zip(self.0).filter(|(_, seconds)| *seconds > 0.0).map(|((name, ..), seconds)| (name, seconds))
    }
}

impl AddAssign for TimeParts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, more)| *mine += more);
    }
}

impl Mul<f64> for TimeParts {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self(self.0.map(|seconds| seconds * factor))
    }
}

impl Serialize for TimeParts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.named())
    }
}

impl<'de> Deserialize<'de> for TimeParts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, f64>::deserialize(from)?;
        Ok(Self(PARTS.map(|(name, ..)| named.get(name).copied().unwrap_or_default())))
    }
}
