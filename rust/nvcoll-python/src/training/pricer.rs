//! The pricer of steps on one machine: steps, plans, sweeps, neighbours, timelines.

use std::collections::BTreeMap;
use std::thread;

use pyo3::prelude::*;

use nvcoll_fabric::hardware::gpus;
use nvcoll_step::compute::Device;
use nvcoll_step::constants::Constants;
use nvcoll_step::memory::Fit;
use nvcoll_step::network::{MeasuredBandwidth, Network};
use nvcoll_step::planner::Request;
use nvcoll_step::pricing::{Pricer, StepReport, StepTimeline};
use nvcoll_step::serving::ServingRequest;
use nvcoll_step::{Error, Result};

use super::prediction::{StepPrediction, StepSource};
use super::serving::ServingPrediction;
use super::{input, json, of_step, unplaced, WorkStep};
use crate::error::invalid;
use crate::machines::fabric::Fabric;
use crate::machines::settings::settings_of;

/// The layouts that are priced between two reports of progress. Chosen.
const AT_ONCE: usize = 64;

/// The longest time of a neighbour worth a try, as a share of the layout's. Chosen: less is within the noise of runs.
const FASTER: f64 = 0.98;

/// Prices steps on one machine. What it learns of groups of ranks it keeps. Not public: `nvcoll.training` has the API.
#[pyclass(module = "nvcoll", frozen)]
pub(crate) struct StepPricer {
    machine: Py<Fabric>,
    network: Network,
    device: Device,
}

impl StepPricer {
    fn pricer(&self, is_exact: bool) -> Pricer<'_> {
        Pricer { network: &self.network, device: &self.device, constants: Constants::shipped(), is_exact }
    }

    /// Prices what requests plan, with the closed form of the pipeline.
    fn all(&self, requests: &[Request]) -> Vec<Result<StepReport>> {
        on_all_processors(requests, |one| one.plan().and_then(|step| self.pricer(false).price(&step)))
    }

    fn found(&self, py: Python<'_>, report: StepReport, priced: StepSource) -> StepPrediction {
        StepPrediction { report, machine: self.machine.clone_ref(py), priced }
    }

    fn planned(&self, py: Python<'_>, report: StepReport, request: Request) -> StepPrediction {
        self.found(py, report, StepSource::Request(Box::new(request)))
    }
}

/// Returns the answer to each question.
fn on_all_processors<Q: Sync, A: Send>(questions: &[Q], answer: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = questions.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let part = |part: &[Q]| part.iter().map(&answer).collect::<Vec<A>>();
        let running: Vec<_> = questions.chunks(each).map(|some| scope.spawn(move || part(some))).collect();
        running.into_iter().flat_map(|one| one.join().expect("pricing does not panic")).collect()
    })
}

#[pymethods]
impl StepPricer {
    /// Makes the pricer of a machine.
    ///
    /// Args:
    ///     fabric: the machine.
    ///     gpus: the number of its GPUs that steps use, the first ones.
    ///     gpu: the model of GPU whose computing counts. Default: that of the machine.
    ///     version: a version of NCCL. Default: the newest whose release was read.
    ///     settings: environment variables of NCCL.
    ///     measured: JSON of bus bandwidths that the owner of the machine measured.
    ///
    /// Raises:
    ///     InvalidArgument: a name is unknown, the peaks of the GPU are not known, or the machine has fewer GPUs.
    #[new]
    #[pyo3(
        signature = (
            fabric, gpus, *, gpu=None, version=None, settings: "Mapping[str, str | int] | None" = None,
            measured=None
        )
    )]
    fn new(
        py: Python<'_>,
        fabric: &Bound<'_, Fabric>,
        gpus: u32,
        gpu: Option<&str>,
        version: Option<&str>,
        settings: Option<&Bound<'_, PyAny>>,
        measured: Option<&str>,
    ) -> PyResult<Self> {
        let settings = settings_of(settings)?;
        let (machine, hardware) = (fabric.clone().unbind(), fabric.get().hardware());
        let made = py.detach(|| {
            let network = Network::of(hardware, version, &settings, gpus)?;
            let rows: Vec<MeasuredBandwidth> =
                serde_json::from_str(measured.unwrap_or("[]")).map_err(|error| Error::Request(error.to_string()))?;
            let model = gpu.map_or(Ok(hardware.gpu), gpus::named)?;
            Ok((network.with_measured(&rows)?, Device::of(model)?))
        });
        made.map(|(network, device)| Self { machine, network, device }).map_err(|error| of_step(py, &error))
    }

    /// The number of GPUs that NVLink joins.
    #[getter]
    fn domain(&self) -> u32 {
        self.network.domain()
    }

    /// Prices a step.
    ///
    /// Args:
    ///     step: the step.
    ///     exact: whether its pipeline runs in virtual time, instead of a closed form.
    #[pyo3(signature = (step, *, exact=true))]
    fn predict(&self, step: &Bound<'_, WorkStep>, exact: bool) -> PyResult<StepPrediction> {
        let (py, one) = (step.py(), &step.get().0);
        let report = py.detach(|| self.pricer(exact).price(one)).map_err(|error| of_step(py, &error))?;
        Ok(self.found(py, report, StepSource::Step(step.clone().unbind())))
    }

    /// Plans a step and prices it.
    ///
    /// Args:
    ///     asked: JSON of model, software and options.
    fn plan(&self, py: Python<'_>, asked: &str) -> PyResult<StepPrediction> {
        let planned = || {
            let request = input(asked)?.request(self.network.gpus(), self.domain())?;
            Ok((self.pricer(true).price(&request.plan()?)?, request))
        };
        let (report, request) = py.detach(planned).map_err(|error| of_step(py, &error))?;
        Ok(self.planned(py, report, request))
    }

    /// Prices the layouts of a sweep, in closed form.
    ///
    /// Args:
    ///     asked: JSON of model, software and options; the words that are open vary.
    ///     tell: is called with the numbers of layouts priced and to price.
    ///
    /// Returns:
    ///     The layouts, and for each other one the rule that it breaks.
    #[pyo3(signature = (asked, tell: "Callable[[int, int], None] | None" = None))]
    fn sweep(
        &self,
        py: Python<'_>,
        asked: &str,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<StepPrediction>, Vec<String>)> {
        let candidates = py.detach(|| input(asked)?.candidates(self.network.gpus(), self.domain()));
        let requests = candidates.map_err(|error| of_step(py, &error))?;
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for (nth, some) in requests.chunks(AT_ONCE).enumerate() {
            for (request, answer) in some.iter().zip(py.detach(|| self.all(some))) {
                match answer {
                    Ok(report) => found.push(self.planned(py, report, request.clone())),
                    Err(error) => refused.push(error.to_string()),
                }
            }
            if let Some(tell) = &tell {
                tell.call1(py, (AT_ONCE * nth + some.len(), requests.len()))?;
            }
        }
        Ok((found, refused))
    }

    /// Returns the layouts next to that of a planned step that are possible, fit or are tight, and are faster, best first; slower ones
    /// that fit, too, if it does not fit.
    ///
    /// Raises:
    ///     InvalidArgument: the step was not planned here.
    fn neighbours(&self, py: Python<'_>, found: &StepPrediction) -> PyResult<Vec<StepPrediction>> {
        let request = found.request().ok_or_else(|| invalid(py, "only a planned step has layouts next to it"))?;
        let with = |layout| Request { layout, ..request.clone() };
        let requests: Vec<Request> = request.layout.neighbours().into_iter().map(with).collect();
        let most = if found.report.fit == Some(Fit::TooLarge) { f64::INFINITY } else { FASTER * found.report.seconds };
        let reports = py.detach(|| self.all(&requests));
        let mut found: Vec<_> =
            requests.into_iter().zip(reports).filter_map(|(one, report)| Some((one, report.ok()?))).collect();
        found.retain(|(_, report)| report.fit != Some(Fit::TooLarge) && report.seconds < most);
        found.sort_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds));
        Ok(found.into_iter().map(|(request, report)| self.planned(py, report, request)).collect())
    }

    /// Answers for layouts of a model server, on all processors.
    ///
    /// Args:
    ///     asked: JSON of each: model, software, layout, precision and load.
    ///     constants: constants that replace those that are shipped. For fits.
    ///
    /// Returns:
    ///     The answers, and for each other one why it has none.
    #[pyo3(signature = (asked, constants=None))]
    fn serve(
        &self,
        py: Python<'_>,
        asked: Vec<String>,
        constants: Option<BTreeMap<String, f64>>,
    ) -> PyResult<Vec<(Option<ServingPrediction>, String)>> {
        let read = |text: &String| {
            serde_json::from_str::<ServingRequest>(text).map_err(|error| Error::Request(unplaced(&error)))
        };
        let constants = Constants::with(&constants.unwrap_or_default()).map_err(|error| of_step(py, &error))?;
        let pricer = Pricer { constants: &constants, ..self.pricer(false) };
        let requests: Vec<ServingRequest> =
            asked.iter().map(read).collect::<Result<_>>().map_err(|error| of_step(py, &error))?;
        let answers = py.detach(|| on_all_processors(&requests, |one| pricer.serve(one)));
        let found = requests.into_iter().zip(answers).map(|(request, answer)| match answer {
            Ok(report) => (Some(ServingPrediction::of(report, self.machine.clone_ref(py), request)), String::new()),
            Err(error) => (None, error.to_string()),
        });
        Ok(found.collect())
    }

    /// Returns an iteration of a model server as a step.
    ///
    /// Args:
    ///     asked: as of `serve`.
    ///     batch: JSON: `decodes`, their tokens that are `cached`, `prompts`, their `tokens`, and the `pairs` of those.
    ///     constants: constants by name, in place of those that are shipped.
    #[pyo3(signature = (asked, batch, constants=None))]
    fn iteration(
        &self,
        py: Python<'_>,
        asked: &str,
        batch: &str,
        constants: Option<BTreeMap<String, f64>>,
    ) -> PyResult<WorkStep> {
        let wrong = |error: &serde_json::Error| Error::Request(unplaced(error));
        let made = || {
            let request = serde_json::from_str(asked).map_err(|error| wrong(&error))?;
            let batch = serde_json::from_str(batch).map_err(|error| wrong(&error))?;
            let constants = Constants::with(&constants.unwrap_or_default())?;
            Pricer { constants: &constants, ..self.pricer(false) }.iteration(&request, batch)
        };
        made().map(WorkStep).map_err(|error| of_step(py, &error))
    }

    /// Returns the seconds of a step under other constants. For fits: the pipeline is the closed form.
    fn seconds(&self, py: Python<'_>, step: &WorkStep, constants: BTreeMap<String, f64>) -> PyResult<f64> {
        let priced = || {
            let constants = Constants::with(&constants)?;
            Pricer { constants: &constants, ..self.pricer(false) }.seconds(&step.0)
        };
        priced().map_err(|error| of_step(py, &error))
    }

    /// Runs a step in virtual time; returns JSON.
    ///
    /// Of a planned step: the seconds of a send that nothing hides, and the timeline of its pipeline with spans. Of a recorded step:
    /// `period_ns` of the step, and for each of `ranks` the times `issued_ns`, `start_ns` and `end_ns` of its operations, in their order.
    fn timeline(&self, py: Python<'_>, step: &WorkStep) -> PyResult<String> {
        let pricer = self.pricer(true);
        let timed = || {
            Ok(match pricer.timeline(&step.0)? {
                StepTimeline::Pipeline(send_s, timeline) => json(&(send_s, timeline)),
                StepTimeline::Streams(timeline) => json(&timeline),
            })
        };
        py.detach(timed).map_err(|error| of_step(py, &error))
    }
}
