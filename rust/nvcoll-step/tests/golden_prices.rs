//! The prices of some steps are those that they were: a change of the planner or of an equation is seen here.

mod common;

use std::collections::BTreeMap;

use common::{request, Machine};
use nvcoll_step::constants::Constants;
use nvcoll_step::layout::Layout;
use nvcoll_step::network::Network;
use nvcoll_step::pricing::Pricer;
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    constants: BTreeMap<String, f64>,
    step: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    model: String,
    software: String,
    machine: String,
    layout: Layout,
    seconds: f64,
    memory_gb: f64,
}

impl Row {
    /// Seconds and memory as they are now.
    fn now(&self, constants: &Constants) -> [f64; 2] {
        let machine = Machine::of(&self.machine, self.layout.gpus);
        let mut request = request(&self.model, self.layout.clone(), &self.software);
        let pricer = Pricer { constants, ..machine.pricer(false) };
        request.domain = Network::domain(pricer.network);
        let price = pricer.price(&request.plan().unwrap()).unwrap();
        [price.seconds, price.memory_gb]
    }
}

#[test]
fn prices_are_those_that_they_were() {
    let golden: Golden = toml::from_str(include_str!("golden_prices.toml")).unwrap();
    let constants = Constants::with(&golden.constants).unwrap();
    let (mut report, mut is_off) = (String::new(), false);
    for row in &golden.step {
        let [seconds, memory] = row.now(&constants);
        is_off |= (seconds / row.seconds - 1.0).abs() > 0.01 || (memory / row.memory_gb - 1.0).abs() > 0.01;
        let was = format!("{:.4} s and {:.2} GB were written", row.seconds, row.memory_gb);
        report +=
            &format!("{} with {}: seconds = {seconds:.4}, memory_gb = {memory:.2}; {was}\n", row.model, row.software);
    }
    assert!(!is_off, "{report}");
}
