//! The predictor of a fabric: its machine, the constants that hold there, and NCCL's model of it.

use std::borrow::Cow;

use super::bottleneck::{self, Bottlenecks};
use super::breakdown::TimeBreakdown;
use super::constants::Constants;
use super::machine::{Interconnect, MachineSummary};
use super::params::ModelParams;
use super::pattern::Pattern;
use super::rates::UsedRates;
use super::selection::{self, AlgoProto, AlgorithmFilter, Candidates};
use super::served::ServedMachine;
use super::{set_fabric, trust};
use crate::error::{Error, Result};
use crate::hardware::{Evidence, Fabric};
use crate::nccl::{Model, NcclAlgorithm, NcclSettings, Protocol};
use crate::tables;

nvcoll_core::names! {
    /// How the program launches its calls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Launch {
        /// A process for each GPU, as nccl-tests with `-g 1`.
        ProcessPerGpu = "process_per_gpu",
        /// One process for all GPUs of a node, as nccl-tests with `-g 8`.
        SingleProcess = "single_process",
        /// A process for each GPU, called from a framework as torch.
        Framework = "framework",
    }
}

impl Launch {
    /// Finds a launch by name.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Unable`] for `graph`: there is no public measurement of it.
    pub fn named(name: &str) -> Result<Self> {
        if name == "graph" {
            let message = "no public measurement says what launching from a CUDA graph saves".to_owned();
            return Err(Error::Unable { fabric: "launch `graph`".to_owned(), message });
        }
        tables::named("launch", name, Self::ALL, Self::name)
    }
}

impl Fabric {
    /// Returns the evidence for predictions of all_reduce at the sizes at which most systems of the class were measured.
    /// [`Prediction::trust`] has the evidence for one size.
    pub fn evidence(&self) -> Evidence {
        let part = self.excerpt();
        let seen = part.as_ref().unwrap_or(self);
        let Ok(machine) = MachineSummary::of_part(self, seen) else { return Evidence::NotValidated };
        if machine.lacks.is_some() {
            return Evidence::NotValidated;
        }
        let joined_by = machine.joined_by();
        let of_class = trust::best_evidence(machine.class(), Pattern::AllReduce, machine.nodes, joined_by);
        // Where NVLink joins the GPUs of one node no ring crosses another link.
        if of_class == Evidence::NotValidated || (machine.interconnect == Interconnect::Nvlink && machine.nodes == 1) {
            return of_class;
        }
        // NCCL tries the order of the ranks first, and takes another ring only if that carries more: its search, which takes
        // long, is asked only where this one is too narrow.
        let is_wide_in_order = || {
            let constants = Constants::shipped();
            let rates = UsedRates::of(&machine, &constants);
            let bottlenecks = Bottlenecks::of(self, seen, &machine, &rates, None)?;
            Ok::<_, Error>(!ModelParams::of(&machine, rates, bottlenecks, &constants, None).is_narrow())
        };
        let is_narrow_as_laid = || Predictor::of(self, None).is_ok_and(|found| found.params.is_narrow());
        if is_wide_in_order().unwrap_or(false) || !is_narrow_as_laid() {
            of_class
        } else {
            Evidence::NotValidated
        }
    }
}

/// A predictor knows one fabric and the constants that hold there, and predicts the time of calls on it.
#[derive(Debug, Clone)]
pub struct Predictor {
    pub(super) fabric: String,
    pub(super) settings: NcclSettings,
    pub(super) machine: MachineSummary,
    pub(super) params: ModelParams,
    pub(super) model: Option<Model>,
    pub(super) chooses: String,
    pub(super) served: ServedMachine,
}

/// A call of a collective: which one, how it is launched, and the algorithm that the caller forces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveCall {
    /// The collective.
    pub pattern: Pattern,
    /// How it is launched.
    pub launch: Launch,
    /// The algorithm and the protocol that the caller forces; none by default.
    pub forced: AlgorithmFilter,
}

impl Predictor {
    /// Makes the predictor of a fabric with the constants that are shipped; `version` of NCCL, the newest known if none.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a version before the first known one; [`Error::Unable`] for one GPU or unlike nodes;
    /// [`Error::NoPath`] if GPUs cannot reach each other.
    pub fn of(fabric: &Fabric, version: Option<&str>) -> Result<Self> {
        Self::with_settings(fabric, version, &NcclSettings::default())
    }

    /// Makes the predictor of a fabric on which NCCL runs with settings.
    ///
    /// # Errors
    /// As [`Predictor::of`]; [`Error::Setting`] for a setting that the version does not read, or that cannot be honoured on the
    /// machine.
    pub fn with_settings(fabric: &Fabric, version: Option<&str>, settings: &NcclSettings) -> Result<Self> {
        let (whole, set) = (fabric, Self::seen(fabric, settings)?);
        let fabric = set.as_ref();
        let part = fabric.excerpt();
        let seen = part.as_ref().unwrap_or(fabric);
        let machine = MachineSummary::of_part(fabric, seen)?;
        let (model, chooses) = match Model::with_settings(version.unwrap_or(Model::newest()), whole, settings) {
            Ok(model) if model.is_last_resort() => (None, LAST_RESORT.to_owned()),
            Ok(model) => (Some(model), "NCCL's own cost model".to_owned()),
            Err(error @ (Error::Unknown { .. } | Error::Setting { .. })) => return Err(error),
            Err(error) => (None, format!("rings, since NCCL's model does not know this machine: {error}")),
        };
        if let (None, Some(variable)) = (&model, settings.names().next()) {
            let message = format!("NCCL's choice on {} is not known: {chooses}", fabric.name);
            return Err(Error::Setting { variable, message });
        }
        let constants = Constants::shipped();
        let rates = UsedRates::of(&machine, &constants);
        let mut bottlenecks = Bottlenecks::of(fabric, seen, &machine, &rates, model.as_ref())?;
        for pattern in Pattern::ALL {
            bottlenecks.cuts[pattern as usize] = bottleneck::cut(fabric, &machine, &rates, pattern)?;
        }
        let params = ModelParams::of(&machine, rates, bottlenecks, &constants, model.as_ref());
        // Kernels of servers do not read NCCL's settings.
        let unset = if matches!(set, Cow::Owned(_)) { MachineSummary::of(whole)? } else { machine.clone() };
        let served = ServedMachine::of(whole, unset);
        let (fabric, settings) = (fabric.name.clone(), settings.clone());
        Ok(Self { fabric, settings, machine, params, model, chooses, served })
    }

    /// Returns the machine as the settings leave it: without NVLS, or without peer access.
    ///
    /// # Errors
    /// [`Error::Setting`] for a level of peer access that leaves it to some pairs of GPUs only.
    pub fn seen<'a>(fabric: &'a Fabric, settings: &NcclSettings) -> Result<Cow<'a, Fabric>> {
        set_fabric::set_fabric(fabric, settings)
    }

    /// Returns the link that limits a traffic pattern, which must have one.
    pub(super) fn bottleneck(&self, traffic: bottleneck::TrafficPattern) -> &bottleneck::Bottleneck {
        self.params.bottlenecks.of_traffic(traffic).expect("a pattern that a link limits has that link")
    }

    /// Replaces the constants; a fit does so for each trial.
    pub fn set(&mut self, constants: &Constants) {
        let rates = UsedRates::of(&self.machine, constants);
        let bottlenecks = std::mem::take(&mut self.params.bottlenecks);
        self.params = ModelParams::of(&self.machine, rates, bottlenecks, constants, self.model.as_ref());
    }

    /// Returns the class of systems, in the table of measurements, to which the fabric belongs.
    pub fn class(&self) -> &'static str {
        self.machine.class()
    }

    /// Returns the number of nodes; GPUs that an NVSwitch joins are one node.
    pub fn nodes(&self) -> u32 {
        self.machine.nodes
    }

    /// Says whether NCCL's own cost model selects the algorithm.
    pub fn is_by_nccl(&self) -> bool {
        self.model.is_some()
    }

    /// Says who selects the algorithm: NCCL's own cost model, or a rule and its reason.
    pub fn chooses(&self) -> &str {
        &self.chooses
    }

    /// Finds the algorithms and protocols that a call of `nbytes` may run by; bytes as nccl-tests counts them.
    ///
    /// # Errors
    /// [`Error::Unable`] if what is forced is not possible here, or has no closed form; [`Error::Setting`] for a setting that
    /// changes the time in a way that has no closed form.
    pub fn weigh(&self, call: &CollectiveCall, nbytes: u64) -> Result<Candidates> {
        let found = selection::select(self.model.as_ref(), &self.params, call.pattern, call.forced, nbytes);
        if found.pairs.is_empty() {
            return Err(self.refusal(call, nbytes, found.why_not));
        }
        if let Some((pair, variable)) = found.pairs.iter().find_map(|pair| Some((pair, self.untimed(*pair)?))) {
            let what = pair.algorithm.map_or("sends", NcclAlgorithm::name);
            let message = format!("nvcoll does not know how it changes the time of {what} here: leave it out");
            return Err(Error::Setting { variable, message });
        }
        Ok(found)
    }

    /// Returns the first setting that changes the time of a pair and is unknown to its closed form.
    fn untimed(&self, pair: AlgoProto) -> Option<&'static str> {
        let model = self.model.as_ref()?;
        let names = match pair.algorithm {
            None => vec!["NCCL_PXN_DISABLE"],
            Some(NcclAlgorithm::Nvls | NcclAlgorithm::NvlsTree) => {
                let (set, own) = model.nvls_channels();
                if set == own {
                    vec![]
                } else {
                    vec!["NCCL_NVLS_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS"]
                }
            }
            // More channels take longer to start, with a closed form; fewer may carry less.
            Some(_) => {
                let (set, own) = model.ring_channels();
                let of_channels = if set < own { &["NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"][..] } else { &[] };
                let of_simple = if pair.protocol == Protocol::Simple { &["NCCL_BUFFSIZE"][..] } else { &[] };
                [of_channels, of_simple].concat()
            }
        };
        names.into_iter().find(|name| self.settings.differs(name))
    }

    fn refusal(&self, call: &CollectiveCall, nbytes: u64, why: Option<&'static str>) -> Error {
        // Without anything forced, it is the settings that leave nothing, or nothing that has a closed form.
        let collective = call.pattern.collective().filter(|_| call.forced == AlgorithmFilter::default());
        match collective.and_then(|collective| Some(self.model.as_ref()?.choice(collective, nbytes))) {
            Some(Ok(found)) => {
                let (name, algorithm) = (call.pattern.name(), found.algorithm.name());
                let message = format!("NCCL takes {algorithm} for {name}, which nvcoll does not predict here");
                return Error::Unable { fabric: self.fabric.clone(), message };
            }
            Some(Err(error)) => return error,
            None => {}
        }
        let algorithm = call.forced.algorithm.map_or("any algorithm", NcclAlgorithm::name);
        let protocol = call.forced.protocol.map_or("any protocol", |protocol| protocol.name());
        let why = match (call.pattern.is_of_sends(), why) {
            (true, _) => "NCCL builds it from sends and receives, whose algorithm cannot be forced",
            (false, Some(why)) => why,
            (false, None) => "it has no prediction here",
        };
        let message = format!("{} by {algorithm} with {protocol}: {why}", call.pattern.name());
        Error::Unable { fabric: self.fabric.clone(), message }
    }

    /// Returns the predicted time in microseconds, without interval and lower bound: the number that a fit compares.
    pub fn us(&self, call: &CollectiveCall, weighed: &Candidates) -> f64 {
        let (_, spent) = self.fastest(call, weighed);
        spent.us() + self.launch_us(call, &spent)
    }

    pub(super) fn fastest(&self, call: &CollectiveCall, weighed: &Candidates) -> (AlgoProto, TimeBreakdown) {
        let nbytes = weighed.nbytes as f64;
        let timed = weighed.pairs.iter().filter_map(|&pair| {
            let spent = selection::spent(&self.params, call.pattern, pair, nbytes)?;
            Some((pair, spent))
        });
        timed.min_by(|a, b| a.1.us().total_cmp(&b.1.us())).expect("a weighed call has a pair that has a closed form")
    }

    /// Returns the microseconds that launching adds to the device's time.
    pub(super) fn launch_us(&self, call: &CollectiveCall, spent: &TimeBreakdown) -> f64 {
        let params = &self.params.launching;
        match call.launch {
            Launch::ProcessPerGpu => 0.0,
            Launch::Framework => params.framework_us,
            // One process starts the GPUs of its node one after the other; what a GPU does meanwhile does not add, but for
            // its channels, and what all_to_all prepares for each pair.
            Launch::SingleProcess => {
                let meanwhile = spent.us() - spent.channels;
                (params.single_process_us - meanwhile).max(0.0) + self.pairs_us(call.pattern == Pattern::AllToAll)
            }
        }
    }

    /// Returns the microseconds that one process takes to prepare the pairs of an all_to_all.
    pub(super) fn pairs_us(&self, is_all_to_all: bool) -> f64 {
        if is_all_to_all {
            self.params.launching.per_peer_us
        } else {
            0.0
        }
    }

    /// Returns the number of channels that a ring starts for a size; all channels where NCCL does not know the machine.
    pub(super) fn channels(&self, protocol: Protocol, nbytes: u64) -> f64 {
        let used = self.model.as_ref().map(|model| model.used_channels(NcclAlgorithm::Ring, protocol, nbytes));
        used.map_or(self.params.channels, f64::from)
    }
}

const LAST_RESORT: &str = "rings, since NCCL's search finds none and it would run one channel as a last resort";
