//! The prices of some steps do not change, to the bit: a change of the planner or of an equation is seen here.
//!
//! Planned steps are priced by both forms of the pipeline, steps of one stage also as streams. `golden_prices.txt` has a line for each: numbers
//! as the shortest decimals that are read back to the same bits. Powers and roots come from the C library, so another library may
//! change a last digit.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;

use common::unrolled::unrolled;
use common::{request, Machine};
use nvcoll_step::constants::Constants;
use nvcoll_step::layout::Layout;
use nvcoll_step::network::Network;
use nvcoll_step::pricing::{Pricer, StepReport};
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
}

impl Row {
    /// Adds a line for each price of the step.
    fn write(&self, constants: &Constants, lines: &mut String) {
        let machine = Machine::of(&self.machine, self.layout.gpus);
        let mut request = request(&self.model, self.layout.clone(), &self.software);
        let pricer = |is_exact| Pricer { constants, ..machine.pricer(is_exact) };
        request.domain = Network::domain(pricer(false).network);
        let step = request.plan().unwrap();
        let mut add = |how: &str, price: StepReport| {
            let parts: Vec<String> = price.parts.named().map(|(name, seconds)| format!("{name} {seconds:?}")).collect();
            let (seconds, memory, tflops) = (price.seconds, price.memory_gib.unwrap(), price.tflops.unwrap());
            writeln!(
                lines,
                "{} with {}, {how}: {seconds:?} s, {memory:?} GiB, {tflops:?} TFLOP/s; {}",
                self.model,
                self.software,
                parts.join(", ")
            )
            .unwrap();
        };
        add("closed form", pricer(false).price(&step).unwrap());
        add("virtual time", pricer(true).price(&step).unwrap());
        if self.layout.stages == 1 {
            add("streams", pricer(true).price(&unrolled(&step)).unwrap());
        }
    }
}

#[test]
fn prices_are_those_that_they_were() {
    let golden: Golden = toml::from_str(include_str!("golden_prices.toml")).unwrap();
    let constants = Constants::with(&golden.constants).unwrap();
    let mut lines = String::new();
    golden.step.iter().for_each(|row| row.write(&constants, &mut lines));
    if lines != include_str!("golden_prices.txt") {
        let written = std::env::temp_dir().join("golden_prices.txt");
        std::fs::write(&written, &lines).unwrap();
        panic!("prices have changed: the new ones are in {}", written.display());
    }
}
