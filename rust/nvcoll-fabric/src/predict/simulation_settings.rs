//! The constants of the closed forms as settings of the event simulator, for any schedule.
//!
//! ```text
//! enter      start, of channels over NVLink, of a framework; the last step and the ramp of a ring        every rank at once
//! a step     hop + bytes / rate, as links are shared                a hop for its sources, one for its destinations
//!            LL: twice the bytes on links, at most what a GPU moves with LL;  LL128: 16/15 of the bytes, and so on
//! at switch  (1 + 1/n) x its loop / what the loop moves             no hop: enter has the start, and the filling, of NVLS
//! ```
//!
//! A rate is the rate of links in use: what both ways at once reach, and a ring's over a network. So a ring that is run event by
//! event takes what the closed form says wherever one ring has all links of a GPU: on a switch, and on PCIe. NCCL lays
//! several rings over a mesh; a schedule of one ring has a part of the links there.
//!
//! What the closed forms know and this does not: that a chain of two GPUs goes faster through host memory, what trees get of
//! a network, and the size of NCCL's chunks in schedules other than NVLS. One process that starts the GPUs of its node
//! is no part of a schedule: no call ends before ([`SimulationSettings::least`]).

use nvcoll_core::schedule::Schedule;

use super::breakdown::us;
use super::pattern::Pattern;
use super::predictor::{Launch, Predictor};
use super::ring;
use crate::error::{Error, Result};
use crate::hardware::Fabric;
use crate::nccl::Protocol;
use crate::simulate::{FittedCosts, HopLatencies, Ratio, Settings, StepCosts as Costs};
use crate::units::{Ps, Rate, PS_PER_US};

/// Below the line of ratios of bytes on links to bytes of data. Chosen: a multiple of 15, for LL128, and fine.
const WIRE: u32 = 960;

/// The settings under which the event simulator runs a schedule at the cost of the constants, for calls of any size.
pub struct SimulationSettings<'a> {
    predictor: &'a Predictor,
    /// Whether a switch folds or multicasts.
    is_by_switch: bool,
    pattern: Option<Pattern>,
    /// For each link of the fabric, its rate in use.
    rates: Vec<Rate>,
}

impl Predictor {
    /// Looks once at the steps of a schedule and at the links of `fabric`, which is the predictor's.
    pub fn simulation_settings(&self, fabric: &Fabric, schedule: &Schedule) -> SimulationSettings<'_> {
        let in_use = |link| self.params.rates.of_link(fabric, &self.machine, link);
        SimulationSettings {
            predictor: self,
            is_by_switch: self.params.nvls.is_some() && schedule.steps.iter().any(|step| step.at_switch),
            pattern: Pattern::ALL.into_iter().find(|pattern| pattern.collective() == Some(schedule.collective)),
            rates: fabric.links.iter().map(in_use).collect(),
        }
    }
}

impl SimulationSettings<'_> {
    /// Returns the settings of a call. `nbytes` is the size as nccl-tests counts it, `step_bytes` what a step moves in a
    /// tile, on which the rate of LL depends.
    ///
    /// # Errors
    /// [`Error::Unable`] for a protocol that is not used there, and for steps that the switch folds under another than Simple.
    pub fn of(&self, protocol: Protocol, launch: Launch, (nbytes, step_bytes): (u64, u64)) -> Result<Settings> {
        let Predictor { fabric, params, .. } = self.predictor;
        let unable = |message: String| Err(Error::Unable { fabric: fabric.clone(), message });
        let by_switch = params.nvls.filter(|_| self.is_by_switch);
        if by_switch.is_some() && protocol != Protocol::Simple {
            return unable(format!(
                "{} travels with its flags, which the switch would fold: take Simple",
                protocol.name()
            ));
        }
        let inter_node = params.inter_node.as_ref();
        let between = inter_node.filter(|_| protocol != Protocol::Ll128);
        let between = between.map(|network| network.hops.of(protocol) + network.software_us(step_bytes as f64));
        if protocol == Protocol::Ll128 && params.ll128_channel_gbps.is_none() {
            return unable(
                "LL128 is used over NVLink from Ampere on; between nodes, where the network keeps 128 bytes together"
                    .to_owned(),
            );
        }
        let (bytes, gbps) = (step_bytes.max(1) as f64, params.rates.ring_gbps);
        let channels = self.predictor.channels(protocol, nbytes);
        let start = params.start_us;
        let (start, wire, cap) = match protocol {
            Protocol::Ll => {
                let cap = bytes / ring::ll_us(params, bytes, channels, gbps) / 1e3;
                (start, 2 * WIRE, Some(cap))
            }
            Protocol::Ll128 => (start, WIRE / 15 * 16, params.ll128_channel_gbps.map(|channel| channel * channels)),
            Protocol::Simple => (start + params.startup_us, WIRE, None),
        };
        let (start, switch_wire) = match by_switch {
            Some(nvls) => {
                let loop_us = nvls.loop_us(params.local, nvls.chunk_of(nbytes as f64));
                (nvls.start_us + nvls.fill_loops * loop_us, self.predictor.switch_wire(nbytes as f64))
            }
            None => {
                let drain = |pattern| {
                    let shard = nbytes as f64 / params.ranks;
                    ring::drain_us(params, pattern, protocol, (shard, channels), gbps)
                };
                (start + params.channels_us(channels) + self.pattern.map_or(0.0, drain), wire)
            }
        };
        let launching = match launch {
            Launch::ProcessPerGpu => 0.0,
            Launch::SingleProcess => self.predictor.pairs_us(self.pattern == Some(Pattern::AllToAll)),
            Launch::Framework => params.launching.framework_us,
        };
        let start = ps(start + launching);
        let inside = ps(ring::hop_us(params, protocol, bytes, gbps));
        let fitted = FittedCosts {
            start,
            rates: self.rates.clone(),
            hops: HopLatencies { inside, network: between.map_or(inside, ps) },
            switch_wire,
        };
        let costs = Costs {
            name: protocol.name().to_lowercase(),
            fixed_ps: 0,
            wire: Ratio::new(wire, WIRE),
            cap: cap.map(Rate::from_gbps),
            signal: Ratio::new(0, 1),
            source: "predict/constants.toml".to_owned(),
        };
        Ok(Settings { fitted: Some(fitted), ..Settings::new(&costs, step_bytes.max(1)) })
    }

    /// Returns the time before which no call ends, however short: one process starts the GPUs of its node one by one.
    pub fn least(&self, protocol: Protocol, launch: Launch, nbytes: u64) -> Ps {
        if launch != Launch::SingleProcess {
            return 0;
        }
        let predictor = self.predictor;
        let channels =
            if self.is_by_switch { 0.0 } else { predictor.params.channels_us(predictor.channels(protocol, nbytes)) };
        ps(predictor.params.launching.single_process_us
            + channels
            + predictor.pairs_us(self.pattern == Some(Pattern::AllToAll)))
    }
}

impl Predictor {
    /// Bytes on links per byte that the switch folds or multicasts, over [`WIRE`]: its rate is not the rate of a ring, and each
    /// loop waits.
    fn switch_wire(&self, nbytes: f64) -> u32 {
        let Some(nvls) = &self.params.nvls else { return WIRE };
        let gpus = self.params.local;
        let moved = us(nbytes * (1.0 + 1.0 / gpus), self.params.rates.bidirectional_gbps);
        let taken = us(nbytes, nvls.steady_gbps(gpus, nvls.chunk_of(nbytes)));
        if moved > 0.0 {
            (taken / moved * f64::from(WIRE)).round() as u32
        } else {
            WIRE
        }
    }
}

fn ps(us: f64) -> Ps {
    (us * PS_PER_US as f64).round() as Ps
}
