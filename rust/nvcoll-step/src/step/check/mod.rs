//! Refuses steps that contradict themselves: what is common to both forms here, each form in a file.

mod layers;
mod streams;

use nvcoll_fabric::predict::Pattern;

use super::work::{StepOp, StepWork};
use super::{Form, WorkStep, MOST, SCHEMA};
use crate::error::{Error, Result};

/// Refuses with a reason.
fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::Step(reason))
}

/// Returns the first number that is none from 0 to [`MOST`].
fn wrong(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().find(|number| !(0.0..=MOST).contains(number))
}

impl WorkStep {
    /// Refuses a step that contradicts itself.
    ///
    /// # Errors
    /// [`Error::Step`] with what was found and what was expected; [`Error::Fabric`] for an unknown GPU.
    pub fn check(&self) -> Result<()> {
        if self.schema != SCHEMA {
            return refuse(format!("its schema is `{}`, {SCHEMA} was expected", self.schema));
        }
        if self.gpus == 0 || !self.groups.values().all(|group| group.ranks.is_sound()) {
            let message = "1 or more were expected, and runs of equal size at a multiple of their length";
            return refuse(format!("it has no GPUs, or a group without ranks, stride or whole runs: {message}"));
        }
        if let Some(number) = wrong([self.tokens, self.model_flops].into_iter().flatten()) {
            return refuse(format!("its tokens or FLOPs are {number:?}: 0 to {MOST:e} was expected"));
        }
        match &self.form {
            Form::Layers(layers) => self.check_layers(layers),
            Form::Streams(streams) => self.check_streams(streams),
        }
    }

    /// Returns the error of an operation of either form, if it has one.
    fn wrong_op(&self, op: &StepOp) -> Option<String> {
        if let Some(number) = wrong(op.work.numbers().into_iter().chain([op.count])) {
            return Some(format!("has the number {number:?}, 0 to {MOST:e} was expected"));
        }
        match &op.work {
            StepWork::Collective { group, .. } if !self.groups.contains_key(group) => {
                Some(format!("is a collective of the group `{group}`, which does not exist"))
            }
            StepWork::Collective { pattern, server: Some(_), .. } if *pattern != Pattern::AllReduce => {
                Some(format!("is {} with `as`: servers have kernels of their own for all_reduce only", pattern.name()))
            }
            _ => None,
        }
    }
}
