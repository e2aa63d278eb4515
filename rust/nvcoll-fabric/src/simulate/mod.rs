//! Virtual time: any schedule on any fabric, moving no bytes. It knows steps, links and rates, and nothing of
//! algorithms.
//!
//! ```text
//! Schedule ──┐
//! Partition ─┼─▶ flat arrays ─▶ queues in order, waits, tiles ─▶ transfers ─▶ links, shared ─▶ Timeline
//! Fabric ────┘                                                                                 ends · links · spans · critical path
//!
//! one step   waits over │ fixed │ latency of the route │ bytes, as fast as shared links allow │ done ─signal─▶ those who wait
//! ```
//!
//! **Tiles.** The schedule passes once per tile, which is `slice_bytes` of every chunk. Each queue goes through its
//! steps in order, tile after tile. A step is ready when the step before it is done and what it waits for has
//! happened, `lag` tiles back; of another rank it hears after the latency of the route from there times the
//! protocol's signal ratio. A rank's enter happens at its start time. A rank leaves when its queues are
//! through and what its leave waits for has happened.
//!
//! **Steps.** Every view that is not on the executing rank is bytes on its route, from the owner for a source and to
//! it for a destination; every view that is there is bytes of the rank's memory, which is a link like others. A copy
//! onto itself takes no time at all. A step streams: its views advance together, so it is *one* transfer over all
//! these links, as fast as the slowest of them allows (two sources over the same port get half of it each). The first
//! byte takes the longest source's latency plus the longest destination's, then bytes flow: latency first, then
//! fluid, as in SimGrid's CM02.
//!
//! **At the switch.** Where one NVSwitch joins all ranks of a step marked so, and folds and multicasts, every source
//! leaves its GPU once and one folded stream comes down to the executor; one stream goes up and the switch sends it
//! to every destination. Then an nvswitch all_reduce of N bytes moves N (1 + 1/n) each way through each port.
//! Elsewhere the step is refused, or, with a setting, done point to point.
//!
//! **Links** are shared max-min fair by progressive filling (`sharing.rs`). A step of no bytes pays its fixed time only.
//!
//! **Fitted costs.** Settings may bring rates of links and one time per hop that were fitted to measurements: they stand
//! in place of the fabric's rates and latencies ([`FittedCosts`]; [`crate::predict`] has the constants).
//!
//! **Stragglers and damage.** A slow rank's fixed time is multiplied by its slowdown, and its transfers never go faster
//! than alone divided by the slowdown. A slow link has part of its rate; a cut one is not there, so routes go round it or
//! there is [`Error::NoPath`].
//!
//! Time is whole picoseconds; the same input gives the same output on every machine. Cost: an event per step to
//! begin, one to end; sharing as `sharing.rs` says; memory per queue about 250 bytes, per step 20 bytes and 16 for each wait, and 32 per step and tile. Limitations: a faster link may make a whole longer, as in any
//! network that shares (Braess 1968); transfers of one step advance together even where a GPU could run ahead on one of
//! them. Source: ours; max-min sharing of fluid flows as in SimGrid (Casanova, Giersch, Legrand, Quinson, Suter 2014).

mod agenda;
mod critical;
mod damage;
mod fitted_costs;
mod flat;
mod link_table;
mod paths;
pub mod protocol;
mod ratio;
mod run;
mod settings;
mod sharing;
mod timeline;

pub use critical::{Critical, CriticalPiece, DelayReason};
pub use damage::Damage;
pub use fitted_costs::{FittedCosts, HopLatencies};
pub use protocol::StepCosts;
pub use ratio::Ratio;
pub use settings::{AtSwitch, Settings};
pub use timeline::{LinkUse, SpanRoute, StepSpan, Timeline};

use nvcoll_core::dtype::DType;
use nvcoll_core::partition::Partition;
use nvcoll_core::schedule::Schedule;

use crate::error::{Error, Result};
use crate::hardware::Fabric;
use crate::units::Ps;
use critical::Enters;
use flat::Flat;
use link_table::LinkTable;
use paths::{TransferPaths, NOTHING};
use run::{Execution, RunOutcome, StepRecord, Stopped};

/// A schedule prepared for one call on one fabric: it can run any number of times, and be resized for another call.
pub struct Simulation {
    schedule: String,
    links: LinkTable,
    paths: TransferPaths,
    flat: Flat,
    starts: Vec<Ps>,
    settings: Settings,
}

/// Runs a schedule once: see [`Simulation`].
///
/// # Errors
/// As [`Simulation::new`] and [`Simulation::run`].
pub fn simulate(
    schedule: &Schedule,
    partition: &Partition,
    dtype: DType,
    fabric: &Fabric,
    settings: &Settings,
) -> Result<Timeline> {
    Simulation::new(schedule, partition, dtype, fabric, settings)?.run()
}

impl Simulation {
    /// Finds routes and flattens the schedule for a call with the element counts of `partition`.
    ///
    /// # Errors
    /// [`Error::Unable`] for a step at a switch that is not there, too few GPUs, or settings that fit neither;
    /// [`Error::NoPath`]; [`Error::Schedule`] for steps that cannot be numbered.
    pub fn new(
        schedule: &Schedule,
        partition: &Partition,
        dtype: DType,
        fabric: &Fabric,
        settings: &Settings,
    ) -> Result<Self> {
        settings.check(&fabric.name, fabric.links.len(), schedule.world_size)?;
        let mut links = LinkTable::of(fabric, schedule.world_size, settings)?;
        let mut paths = TransferPaths::new();
        let flat = Flat::of(schedule, &mut links, &mut paths, settings.at_switch)?;
        let (schedule, settings, starts) = (schedule.title(), settings.clone(), Vec::new());
        let mut simulation = Self { schedule, links, paths, flat, starts, settings };
        simulation.price();
        simulation.fit(partition, dtype)?;
        Ok(simulation)
    }

    /// Makes it one for another call of the schedule: other element counts, elements, or settings. Routes, paths and waits
    /// stay. So must the damages, the treatment of steps at a switch and the fitted rates of links.
    ///
    /// # Errors
    /// [`Error::Unable`] for settings that change what must stay, or do not fit the schedule; [`Error::Schedule`] for more
    /// tiles than can be counted, or missing chunks. It is fit for no run then, until it is resized again.
    pub fn resize(&mut self, partition: &Partition, dtype: DType, settings: &Settings) -> Result<()> {
        let fabric = &self.links.fabric.name;
        settings.check(fabric, self.links.fabric_links(), self.flat.world_size)?;
        if !settings.has_links_of(&self.settings) {
            let message =
                "damages, steps at a switch and rates of links decide paths: prepare another simulation".to_owned();
            return Err(Error::Unable { fabric: fabric.clone(), message });
        }
        let is_priced = settings.has_costs_of(&self.settings);
        self.settings = settings.clone();
        if !is_priced {
            self.price();
        }
        self.fit(partition, dtype)
    }

    /// Gives paths and signals what they cost under the settings.
    fn price(&mut self) {
        let (settings, links, flat, paths) = (&self.settings, &mut self.links, &mut self.flat, &mut self.paths);
        links.hops = settings.fitted.as_ref().map(|fitted| fitted.hops);
        paths.price(links, settings);
        flat.price(links, settings.protocol.signal);
    }

    /// Gives steps their bytes, and ranks their starts.
    fn fit(&mut self, partition: &Partition, dtype: DType) -> Result<()> {
        let before = self.settings.fitted.as_ref().map_or(0, |fitted| fitted.start);
        self.starts.clone_from(&self.settings.starts_ps);
        self.starts.resize(self.flat.world_size as usize, 0);
        self.starts.iter_mut().for_each(|start| *start += before);
        self.flat.resize(&self.schedule, partition, dtype, self.settings.slice_bytes)
    }

    /// Returns the number of steps over all tiles.
    pub fn steps(&self) -> u64 {
        self.flat.number(self.flat.working_queues() as u32, 0)
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Error::Schedule`] if its waits make a circle.
    pub fn run(&self) -> Result<Timeline> {
        self.run_until(&mut || false)
    }

    /// Runs it to the end, or until `is_interrupted`, which is asked every few ten thousand events, says to stop.
    ///
    /// # Errors
    /// [`Error::Schedule`] if its waits make a circle; [`Error::Interrupted`].
    pub fn run_until(&self, is_interrupted: &mut dyn FnMut() -> bool) -> Result<Timeline> {
        let outcome =
            Execution::run((&self.flat, &self.paths, &self.starts), is_interrupted).map_err(
                |stopped| match stopped {
                    Stopped::Stuck(queue, step) => self.stuck(queue, step),
                    Stopped::Interrupted => Error::Interrupted,
                },
            )?;
        Ok(self.timeline(outcome))
    }

    fn timeline(&self, outcome: RunOutcome) -> Timeline {
        let (links, memory_bytes) = self.uses(&outcome);
        let after = self.settings.fitted.as_ref().map_or(0, |fitted| fitted.start);
        let enters = Enters { at: &self.starts, after };
        let has_spans = self.settings.spans;
        Timeline {
            memory_bytes,
            tiles: self.flat.tiles,
            spans: if has_spans { self.spans(&outcome.record) } else { Vec::new() },
            ways: if has_spans { self.ways() } else { Vec::new() },
            critical: critical::trace(&self.flat, &self.paths, &outcome.record, enters, links.len()),
            links,
            ends_ps: outcome.ends,
        }
    }

    fn spans(&self, record: &[StepRecord]) -> Vec<StepSpan> {
        let span = |number: u64| {
            let (number_of_queue, step, tile) = self.flat.of_number(number);
            let (rank, queue) = (self.flat.ranks[number_of_queue as usize], self.flat.queue_of_rank(number_of_queue));
            let StepRecord { ready: start_ps, done: end_ps, .. } = record[number as usize];
            let flat = self.flat.step(self.flat.first(number_of_queue) + step);
            let way = if self.flat.nbytes(flat, tile) > 0 { flat.path } else { NOTHING };
            StepSpan { rank, queue, step, tile, start_ps, end_ps, way }
        };
        (0..self.steps()).map(span).collect()
    }

    /// For each path, what of it a reader of spans sees.
    fn ways(&self) -> Vec<SpanRoute> {
        let way = |(at, path): (usize, &paths::TransferPath)| {
            let crossed = self.paths.crossings(at as u32).iter().map(|crossing| crossing.link as usize);
            let links = crossed.filter(|&link| link < self.links.fabric_links()).collect();
            SpanRoute { before_ps: path.fixed + path.latency, links }
        };
        self.paths.all.iter().enumerate().map(way).collect()
    }

    /// What links and memories did: bytes are counted from what each path moved.
    fn uses(&self, outcome: &RunOutcome) -> (Vec<LinkUse>, Vec<u64>) {
        let mut scaled = vec![0u128; self.paths.capacities.len()];
        for (path, &nbytes) in outcome.moved.iter().enumerate() {
            for crossing in self.paths.crossings(path as u32) {
                scaled[crossing.link as usize] += u128::from(nbytes) * u128::from(crossing.weight);
            }
        }
        let scale = u128::from(self.settings.protocol.wire.den);
        let whole = |scaled: &u128| u64::try_from(scaled.div_ceil(scale)).unwrap_or(u64::MAX);
        let (links, memories) = scaled.split_at(self.links.fabric_links());
        let busy = outcome.busy.iter();
        let links = links.iter().zip(busy).map(|(scaled, &busy_ps)| LinkUse { nbytes: whole(scaled), busy_ps });
        (links.collect(), memories.iter().map(whole).collect())
    }

    fn stuck(&self, queue: u32, step: u32) -> Error {
        let (rank, working) = (self.flat.ranks[queue as usize], self.flat.working_queues());
        let what = if (queue as usize) < working {
            format!("r{rank}.q{}.{step}", self.flat.queue_of_rank(queue))
        } else {
            format!("the leave of r{rank}")
        };
        let message = format!("{what} waits for what never happens");
        Error::Schedule { schedule: self.schedule.clone(), message }
    }
}

#[cfg(test)]
mod tests {
    use nvcoll_core::algorithm::build;
    use nvcoll_core::collective::{Roles, ALL_REDUCE};
    use nvcoll_core::counts::Counts;
    use nvcoll_core::schedule::Aliasing;

    use super::*;
    use crate::machines::preset;
    use crate::nccl::Protocol;
    use crate::predict::{Launch, Predictor};
    use crate::topology::cluster::{cluster, network};
    use crate::topology::excerpt::work;

    fn partition(schedule: &Schedule, count: usize) -> Partition {
        let counts = Counts::Even(count).of_parts(schedule.collective, schedule.roles());
        Partition::new(counts, schedule.chunks_per_part)
    }

    #[test]
    fn other_sizes_and_costs_need_no_routes_and_run_as_if_they_were_the_first() {
        let fabric = cluster(&preset("hgx-h100").unwrap(), 4, network("ib-ndr-8").unwrap()).unwrap();
        let predictor = Predictor::of(&fabric, None).unwrap();
        for name in ["ring", "tree", "halving_doubling", "two_level"] {
            let schedule = build(&ALL_REDUCE, name, Roles::of(32), Aliasing::InPlace).unwrap();
            let fitted = predictor.simulation_settings(&fabric, &schedule);
            let protocols: &[Protocol] = if name == "two_level" { &[Protocol::Simple] } else { &Protocol::ALL };
            let new = |count, settings: &Settings| {
                Simulation::new(&schedule, &partition(&schedule, count), DType::U8, &fabric, settings).unwrap()
            };
            let mut prepared = None;
            for (nth, count) in [1 << 10, 12_345, 1 << 24].into_iter().enumerate() {
                for &protocol in protocols {
                    let sizes = (count as u64, count as u64 >> nth);
                    let mut settings = fitted.of(protocol, Launch::ProcessPerGpu, sizes).unwrap();
                    settings.slowdowns = (0..32).map(|rank| Ratio::new(1 + u32::from(rank == nth), 1)).collect();
                    let simulation = prepared.get_or_insert_with(|| new(count, &settings));
                    let resize = || simulation.resize(&partition(&schedule, count), DType::U8, &settings).unwrap();
                    assert_eq!(work::of(resize), 0);
                    let mut found = None;
                    assert!(work::of(|| found = Some(new(count, &settings).run().unwrap())) > 0);
                    assert_eq!(simulation.run().unwrap(), found.unwrap(), "{name} {protocol:?} {count}");
                }
            }
        }
    }

    #[test]
    fn what_decides_paths_needs_another_simulation() {
        let fabric = preset("hgx-h100").unwrap();
        let schedule = build(&ALL_REDUCE, "ring", Roles::of(8), Aliasing::InPlace).unwrap();
        let (partition, settings) = (partition(&schedule, 8), Settings::new(protocol::named("ideal").unwrap(), 8));
        let mut simulation = Simulation::new(&schedule, &partition, DType::U8, &fabric, &settings).unwrap();
        let others = [
            Settings { at_switch: AtSwitch::Ignore, ..settings.clone() },
            Settings { damages: vec![Damage { link: 0, left: Ratio::new(1, 2) }], ..settings.clone() },
            Settings { slowdowns: vec![Ratio::ONE; 3], ..settings.clone() },
        ];
        for other in others {
            assert!(matches!(simulation.resize(&partition, DType::U8, &other), Err(Error::Unable { .. })));
        }
        assert!(simulation.resize(&partition, DType::U8, &settings).is_ok());
    }
}
