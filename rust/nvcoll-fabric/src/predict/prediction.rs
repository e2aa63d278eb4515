//! A prediction: the time, its interval, its parts, and the bottleneck.

use super::breakdown::{us, wire, Carrier, TimeBreakdown};
use super::machine::{self, MachineSummary};
use super::pattern::Pattern;
use super::predictor::{CollectiveCall, Launch, Predictor};
use super::selection::{AlgoProto, Candidates};
use super::trust;
use crate::floor::Floor;
use crate::hardware::Evidence;
use crate::nccl::NcclAlgorithm;
use crate::units::PS_PER_US;

/// The name of a class without measurements.
const UNSEEN: &str = "";

/// Names the cut that limits sends, or any schedule.
fn cut(machine: &MachineSummary) -> &'static str {
    match machine.network.is_some() && machine.has_switch {
        true => "the narrowest cut of the network",
        false => "the narrowest cut of the fabric",
    }
}

/// Names what limits the bytes of a node on their way to other nodes more than its cards do. Of sends no link between switches
/// does, but a cut.
fn egress(predictor: &Predictor, pattern: Pattern) -> Option<&str> {
    let network = predictor.params.inter_node.as_ref()?;
    match predictor.params.bottlenecks.network.as_ref().filter(|_| !pattern.is_of_sends()) {
        Some(narrow) => Some(&narrow.name),
        None => network.egress_gbps.map(|_| "the way from GPUs to network cards"),
    }
}

/// The predicted time of a call. Times are in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The size, as nccl-tests counts it.
    pub nbytes: u64,
    /// The algorithm as NCCL prints it; `SendRecv` for collectives of sends and receives.
    pub algorithm: &'static str,
    /// The protocol as NCCL prints it.
    pub protocol: &'static str,
    /// What runs the call: `NCCL`, or a server and its kernel, as `vLLM one_shot`.
    pub implementation: String,
    /// The rule of a server that chose it.
    pub rule: Option<String>,
    /// The largest number of channels that NCCL gives the call, if its model knows the machine.
    pub channels: Option<u32>,
    /// The predicted time; never less than the lower bound.
    pub us: f64,
    /// The lower end of the 90 % interval.
    pub low_us: f64,
    /// The upper end of the 90 % interval.
    pub high_us: f64,
    /// The lower bound of any schedule.
    pub floor_us: f64,
    /// NCCL's own estimate of the time of the algorithm and protocol that it selects.
    pub nccl_us: Option<f64>,
    /// The part of the machine that limits the call, in words, with its share.
    pub bottleneck: String,
    /// The same without the share, so that calls of several sizes compare.
    pub limited_by: String,
    /// The measurements that such predictions were compared with: validated, extrapolated or not validated.
    pub trust: String,
    /// Whether measurements of such calls on such machines were compared with predictions.
    pub is_validated: bool,
    /// The parts of the time, by name; the sum is the time.
    pub parts: Vec<(&'static str, f64)>,
}

impl Predictor {
    /// Names what joins the GPUs of a node and what takes most of a call's time.
    pub fn limit(&self, call: &CollectiveCall, weighed: &Candidates) -> String {
        let (_, spent) = self.fastest(call, weighed);
        let parts = parts(&spent, self.launch_us(call, &spent), 0.0);
        limit(&self.machine, &spent, longest(&parts))
    }

    /// Predicts a call whose candidates were found by [`Predictor::weigh`]; `floor` is the lower bound of the collective on the
    /// fabric.
    pub fn predict(&self, call: &CollectiveCall, weighed: &Candidates, floor: &Floor) -> Prediction {
        let (machine, (pair, spent)) = (&self.machine, self.fastest(call, weighed));
        let launch_us = self.launch_us(call, &spent);
        let floor_us = floor.time(weighed.nbytes) as f64 / PS_PER_US as f64;
        let parts = parts(&spent, launch_us, (floor_us - spent.us() - launch_us).max(0.0));
        let time: f64 = parts.iter().map(|part| part.1).sum::<f64>().max(floor_us);
        let longest = longest(&parts);
        // No measured system has such a bottleneck, or a GPU without some of its NVLinks: the class does not apply.
        let unseen = if longest == "bytes" { unseen(self, call.pattern, &spent) } else { None };
        let class = if unseen.is_some() || machine.lacks.is_some() { UNSEEN } else { self.class() };
        let limit = limit(machine, &spent, longest);
        let known = trust::evidence(class, call.pattern, weighed.nbytes, machine.nodes, &limit);
        let (trust, at_line) = match (&machine.lacks, unseen) {
            (Some(lacks), _) => (format!("{known}: {lacks}"), 1.0),
            (None, Some((what, part))) => (format!("{known}: no measured machine is held up by {what}"), 1.0 / part),
            (None, None) => (known.to_string(), 1.0),
        };
        let factor = trust::factor(class, call.pattern, weighed.nbytes, machine.nodes).max(at_line);
        Prediction {
            nbytes: weighed.nbytes,
            algorithm: pair.algorithm.map_or("SendRecv", NcclAlgorithm::name),
            protocol: pair.protocol.name(),
            implementation: "NCCL".to_owned(),
            rule: None,
            channels: pair.channels,
            us: time,
            low_us: (time / factor).max(floor_us),
            high_us: time * factor,
            floor_us,
            nccl_us: weighed.nccl_us,
            bottleneck: bottleneck(self, call, pair, &spent, longest, Some(time)),
            limited_by: bottleneck(self, call, pair, &spent, longest, None),
            trust,
            is_validated: matches!(known, Evidence::Validated { .. }),
            parts,
        }
    }
}

/// Names the interconnect of a node's GPUs and the longest part of a call's time. A measured system validates a prediction only
/// if both have the same.
fn limit(machine: &MachineSummary, spent: &TimeBreakdown, longest: &str) -> String {
    let taken = match (longest, spent.carrier) {
        ("launch", _) => "launch",
        ("bytes", Carrier::Cards) => "network cards",
        ("bytes", Carrier::FoldingSwitch) => "NVLS",
        ("bytes", Carrier::Links) => "GPU links",
        ("bytes", Carrier::InnerLink(_)) => "a link between GPUs' links",
        ("bytes", Carrier::Cut(_)) | ("floor", _) => "a cut",
        _ => "latency",
    };
    format!("{}: {taken}", machine.joined_by())
}

/// Names the longest part of a call's time.
fn longest(parts: &[(&'static str, f64)]) -> &'static str {
    parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("bytes", |part| part.0)
}

/// Lists the parts of a call's time, with their names.
fn parts(spent: &TimeBreakdown, launch_us: f64, missing_us: f64) -> Vec<(&'static str, f64)> {
    let all = [
        ("launch", launch_us),
        ("start-up", spent.start_up),
        ("channels", spent.channels),
        ("network", spent.network),
        ("hops", spent.hops),
        ("fill", spent.fill),
        ("bytes", spent.bytes),
        ("floor", missing_us),
    ];
    all.into_iter().filter(|part| part.1 > 0.0).collect()
}

/// Names a bottleneck that no measured system has, and returns the part of its line rate that the prediction assumes.
fn unseen(predictor: &Predictor, pattern: Pattern, spent: &TimeBreakdown) -> Option<(String, f64)> {
    match spent.carrier {
        Carrier::InnerLink(traffic) => {
            let narrow = predictor.bottleneck(traffic);
            Some((narrow.name.clone(), narrow.gbps / narrow.line_gbps))
        }
        Carrier::Cut(limit) => {
            let part = limit.part * predictor.params.rates.bidirectional_gbps / limit.line_gbps;
            Some((cut(&predictor.machine).to_owned(), part))
        }
        Carrier::Cards => egress(predictor, pattern).map(|by| (by.to_owned(), 1.0)),
        Carrier::Links | Carrier::FoldingSwitch => None,
    }
}

/// Describes the bottleneck of a call, with its share of the time, or of its line rate, if the time is given.
fn bottleneck(
    predictor: &Predictor,
    call: &CollectiveCall,
    pair: AlgoProto,
    spent: &TimeBreakdown,
    longest: &str,
    time: Option<f64>,
) -> String {
    let of_time = |us: f64| time.map_or(String::new(), |time| format!(", {:.0} % of the time", 100.0 * us / time));
    match longest {
        "launch" if call.launch == Launch::SingleProcess => {
            format!("launching: one process starts {} GPUs", predictor.params.local)
        }
        "launch" => "launching from a framework".to_owned(),
        "start-up" => format!("starting: kernel and {}{}", pair.protocol.name(), of_time(spent.start_up)),
        "channels" => format!("starting channels one after the other{}", of_time(spent.channels)),
        "network" => format!("starting over the network{}", of_time(spent.network)),
        "hops" => format!("latency of the steps from GPU to GPU{}", of_time(spent.hops)),
        "fill" => format!("filling the pipeline{}", of_time(spent.fill)),
        "floor" => "the narrowest cut of the fabric".to_owned(),
        _ => carried(predictor, call.pattern, pair, spent, time),
    }
}

/// Describes the part of the machine that limits the bytes, and the part of its line rate that the call reaches.
fn carried(
    predictor: &Predictor,
    pattern: Pattern,
    pair: AlgoProto,
    spent: &TimeBreakdown,
    time: Option<f64>,
) -> String {
    let (params, machine) = (&predictor.params, &predictor.machine);
    let flags = wire(pair.protocol);
    let of_line_rate = |us: f64| {
        time.map_or(String::new(), |time| format!(" at {:.0} % of line rate", (100.0 * us / time).min(100.0)))
    };
    let note = if flags > 1.0 { " (LL: half of the bytes are flags)" } else { "" };
    let cards_gbps = params.inter_node.as_ref().map_or(f64::INFINITY, |network| network.line_gbps);
    let line = match spent.carrier {
        Carrier::Cards => cards_gbps,
        Carrier::InnerLink(traffic) => predictor.bottleneck(traffic).line_gbps,
        Carrier::Cut(cut) => cut.line_gbps,
        Carrier::Links | Carrier::FoldingSwitch => params.rates.line_gbps,
    };
    let busy = us(spent.load * flags, line);
    let words = match (spent.carrier, machine.interconnect) {
        (Carrier::Cards, _) => {
            let by = egress(predictor, pattern).map_or(String::new(), |by| format!("{by}; "));
            return format!("{by}network cards{}{note}", of_line_rate(busy));
        }
        (Carrier::InnerLink(traffic), _) => {
            format!("{}{}{note}", predictor.bottleneck(traffic).name, of_line_rate(busy))
        }
        (Carrier::Cut(_), _) => format!("{}{}", cut(machine), of_line_rate(busy)),
        (Carrier::FoldingSwitch, _) => {
            let each_way = 1.0 + 1.0 / params.local;
            format!("GPU ports{} (NVLS: a port carries {each_way:.3} x the size each way)", of_line_rate(busy))
        }
        (Carrier::Links, machine::Interconnect::Nvlink) => format!("GPU ports{}{note}", of_line_rate(busy)),
        (Carrier::Links, machine::Interconnect::Peer) => format!("PCIe{}{note}", of_line_rate(busy)),
        (Carrier::Links, machine::Interconnect::Staged) => {
            format!("PCIe{}, each byte crosses PCIe twice, through host memory{note}", of_line_rate(2.0 * busy))
        }
    };
    match us(spent.of_cards * flags, cards_gbps) {
        cards if cards > 0.0 => format!("{words}; network cards{}", of_line_rate(cards)),
        _ => words,
    }
}
