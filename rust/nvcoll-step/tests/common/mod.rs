//! What tests of steps share: requests by names, and machines that price them.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod unrolled;

use nvcoll_fabric::machines::preset;
use nvcoll_fabric::nccl::NcclSettings;
use nvcoll_step::compute::Device;
use nvcoll_step::constants::Constants;
use nvcoll_step::layout::Layout;
use nvcoll_step::model::Model;
use nvcoll_step::network::Network;
use nvcoll_step::planner::Request;
use nvcoll_step::pricing::Pricer;
use nvcoll_step::software::Software;
use nvcoll_step::step::work::StepOp;
use nvcoll_step::step::WorkStep;
use serde_json::Value;

/// The machine on which tests price: 64 GPUs in nodes of 8.
pub(crate) const MACHINE: &str = "hgx-h100x8+ib-ndr-8";

/// Returns a layout of the fields that are given; others have their defaults.
pub(crate) fn layout(fields: Value) -> Layout {
    serde_json::from_value(fields).unwrap()
}

/// Returns a request for nodes of 8 GPUs.
pub(crate) fn request(model: &str, layout: Layout, software: &str) -> Request {
    let (model, software) = (Model::named(model).unwrap().clone(), Software::named(software).unwrap().clone());
    Request { model, layout, software, domain: 8 }
}

/// A machine whose first GPUs work on a step.
pub(crate) struct Machine(Network, Device);

impl Machine {
    pub(crate) fn of(name: &str, gpus: u32) -> Self {
        let machine = preset(name).unwrap();
        let network = Network::of(&machine, None, &NcclSettings::default(), gpus).unwrap();
        Self(network, Device::of(machine.gpu).unwrap())
    }

    pub(crate) fn pricer(&self, is_exact: bool) -> Pricer<'_> {
        Pricer { network: &self.0, device: &self.1, constants: Constants::shipped(), is_exact }
    }
}

/// Returns every operation of a step with the times that all ranks together run it, and whether it is in a block.
pub(crate) fn all_ops(step: &WorkStep) -> Vec<(&StepOp, f64, bool)> {
    let layers = step.layers().expect("it is planned");
    let ranks = f64::from(step.gpus / layers.pipeline.stages);
    let mut found = Vec::new();
    for role in &layers.roles {
        let stages = role.stages.len() as f64 * ranks;
        for run in role.chunks.iter().flatten() {
            let block = &layers.blocks[&run.block];
            let times = stages * f64::from(run.repeat) * f64::from(layers.pipeline.micro_batches);
            let ops = block.forward.iter().chain(&block.backward).chain(&block.weights);
            found.extend(ops.map(|one| &one.op).map(|op| (op, times * op.count, true)));
        }
        found.extend(role.once.iter().map(|one| &one.op).map(|op| (op, stages * op.count, false)));
    }
    found
}
