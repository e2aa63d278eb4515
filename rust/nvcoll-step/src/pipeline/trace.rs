//! The timeline of a step as a document that `nvcoll.training.trace` draws: streams of named spans, sends between them, loads of links.
//!
//! The format is open. Whoever knows more of a step adds spans of other streams ("communication"), sends and loads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ps, seconds, Pass, Pipeline, Span, Timeline};

/// A step as streams of spans.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What the step is.
    pub title: String,
    /// The name of each stage.
    pub stages: Vec<String>,
    /// The spans.
    pub spans: Vec<TraceSpan>,
    /// The sends between spans.
    pub sends: Vec<Send>,
    /// What links carry.
    pub loads: Vec<Load>,
    /// The unit of loads.
    pub unit: String,
}

/// A named time on a stream of a stage. Spans of a stream do not overlap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// The stage, from 0.
    pub stage: u32,
    /// The stream: `compute`, `communication`.
    pub stream: String,
    /// Its name, as `F 3`.
    pub name: String,
    /// When it begins, in seconds.
    pub start_s: f64,
    /// When it ends, in seconds.
    pub end_s: f64,
    /// What else is known of it.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
}

/// A send, from the end of one span to the begin of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// What is sent.
    pub name: String,
    /// The number of the span that sends.
    pub from: usize,
    /// The number of the span that waits for it.
    pub to: usize,
}

/// A load of a link during a time; loads at the same time add up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The name of the link.
    pub link: String,
    /// When it begins, in seconds.
    pub start_s: f64,
    /// When it ends, in seconds.
    pub end_s: f64,
    /// How much, in the unit of the trace.
    pub load: f64,
}

impl Pipeline {
    /// Returns a timeline of this pipeline as a document; it has spans if the timeline has.
    pub fn trace(&self, timeline: &Timeline) -> Trace {
        let stages = (0..self.stages.len()).map(|stage| format!("stage {stage}")).collect();
        let title = format!("{} micro-batches on {} stages", self.micro_batches, self.stages.len());
        let mut trace = Trace { title, stages, unit: "sends".to_owned(), ..Trace::default() };
        for (stage, spans) in timeline.spans.iter().enumerate() {
            trace.spans.extend(spans.iter().map(|span| self.trace_span(stage, span)));
        }
        self.add_sends(timeline, &mut trace);
        trace
    }

    fn trace_span(&self, stage: usize, span: &Span) -> TraceSpan {
        let Span { pass, micro_batch, chunk, start: start_s, end: end_s } = *span;
        let letter = letter(pass);
        let name = if self.chunks() > 1 {
            format!("{letter} {micro_batch} chunk {chunk}")
        } else {
            format!("{letter} {micro_batch}")
        };
        let args = BTreeMap::from([
            ("pass".to_owned(), letter.into()),
            ("micro_batch".to_owned(), micro_batch.into()),
            ("chunk".to_owned(), chunk.into()),
        ]);
        TraceSpan { stage: stage as u32, stream: "compute".to_owned(), name, start_s, end_s, args }
    }

    /// Adds the sends between neighbours, and for as long as they take, a load of one on their link.
    fn add_sends(&self, timeline: &Timeline, trace: &mut Trace) {
        let (p, v, m) = (self.stages.len(), self.chunks(), self.micro_batches as usize);
        let mut numbers = vec![[usize::MAX; 2]; p * v * m];
        let spans =
            || timeline.spans.iter().enumerate().flat_map(|(stage, spans)| spans.iter().map(move |one| (stage, one)));
        let place = |stage: usize, span: &Span| span.chunk as usize * p + stage;
        for (number, (stage, span)) in spans().enumerate().filter(|(_, (_, span))| span.pass != Pass::Weight) {
            let at = place(stage, span) * m + span.micro_batch as usize;
            numbers[at][usize::from(span.pass == Pass::Backward)] = number;
        }
        for (from, (stage, span)) in spans().enumerate().filter(|_| p > 1) {
            let here = place(stage, span);
            let (name, there) = match span.pass {
                Pass::Forward if here + 1 < p * v => ("activation", here + 1),
                Pass::Backward if here > 0 => ("gradient", here - 1),
                _ => continue,
            };
            let to = numbers[there * m + span.micro_batch as usize][usize::from(span.pass == Pass::Backward)];
            trace.sends.push(Send { name: name.to_owned(), from, to });
            if self.send > 0.0 {
                let link = format!("stage {stage} -> stage {}", there % p);
                let end_s = seconds(ps(span.end) + ps(self.send));
                trace.loads.push(Load { link, start_s: span.end, end_s, load: 1.0 });
            }
        }
    }
}

fn letter(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "F",
        Pass::Backward => "B",
        Pass::Weight => "W",
    }
}
