//! Fabrics in Python: what a machine is made of, how its GPUs are joined, what they reach, and the floor.

use std::path::PathBuf;

use pyo3::prelude::*;

use nvcoll_fabric::cluster::{self, networks};
use nvcoll_fabric::hardware::{gpus, media};
use nvcoll_fabric::import::{TextFormat as FormatRow, FORMATS};
use nvcoll_fabric::ports::PortRates;
use nvcoll_fabric::preset::{preset, presets};
use nvcoll_fabric::rates::RateMatrix;
use nvcoll_fabric::units::{Rate, PS_PER_US};
use nvcoll_fabric::{Error, Fabric as Hardware};

use crate::error::{of_fabric, of_file};
use crate::fabric_cache::FabricCache;
use crate::gil::{interrupt, raised};
use crate::integers::integer;
use crate::rows::{GpuRow, MediumRow, NetworkRow};
use crate::schedule::{collective_named, in_notebook};
use crate::sizes::sizes_of;

/// Rates in decimal GB/s, row by row.
type Rates = Vec<Vec<f64>>;

/// A link as Python sees it: from, to, medium, lanes, decimal GB/s at line rate and in use.
type LinkRow<'a> = (&'a str, &'a str, &'a str, u32, f64, f64);

/// A machine, or several with a network between them: devices, links, and what they are able to do.
///
/// Made by :func:`fabric`, :meth:`from_text`, :meth:`from_file` and :func:`cluster`. Ranks are its GPUs. Rates are decimal GB/s, one direction.
#[pyclass(frozen, module = "nvcoll", eq)]
pub(crate) struct Fabric(Hardware, FabricCache);

impl PartialEq for Fabric {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl From<Hardware> for Fabric {
    fn from(hardware: Hardware) -> Self {
        Self(hardware, FabricCache::default())
    }
}

#[pymethods]
impl Fabric {
    /// Reads a machine from a text in any known format: what ``nvidia-smi topo -m`` prints, what NCCL writes to
    /// ``NCCL_TOPO_DUMP_FILE``, or a description in TOML. The text itself says which format it is.
    ///
    /// Args:
    ///     text: str.
    ///     gpu: the model of the GPUs, as ``h100-sxm``, for formats that do not name it: all but TOML.
    ///
    /// Raises:
    ///     InvalidArgument: no format recognises the text, or it is incomplete or wrong; ``gpu`` is unknown, missing or not
    ///         wanted.
    #[staticmethod]
    #[pyo3(signature = (text, *, gpu=None))]
    fn from_text(py: Python<'_>, text: &str, gpu: Option<&str>) -> PyResult<Self> {
        Hardware::from_text(text, gpu, "text").map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// Reads a machine from a file: see :meth:`from_text`. The name of the file does not matter.
    ///
    /// Args:
    ///     path: str or path-like.
    ///     gpu: the model of the GPUs, as of :meth:`from_text`.
    ///
    /// Raises:
    ///     InvalidArgument: as of :meth:`from_text`.
    ///     OSError: the file cannot be read.
    #[staticmethod]
    #[pyo3(signature = (path, *, gpu=None))]
    fn from_file(py: Python<'_>, path: PathBuf, gpu: Option<&str>) -> PyResult<Self> {
        let text = std::fs::read_to_string(&path).map_err(|error| of_file(py, &error, &path))?;
        let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
        Hardware::from_text(&text, gpu, &name).map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is, in a few words.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// The model of its GPUs.
    #[getter]
    fn gpu(&self) -> &str {
        &self.0.gpu.title
    }

    /// The number of GPUs.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// The number of nodes.
    #[getter]
    fn nodes(&self) -> u32 {
        self.0.nodes()
    }

    /// How its predictions of all_reduce are known, at the sizes of which most is: `validated on k systems` or `not validated`.
    #[getter]
    fn trust(&self) -> String {
        self.0.evidence().to_string()
    }

    /// Where its numbers are from.
    #[getter]
    fn sources(&self) -> Vec<String> {
        self.0.sources.clone()
    }

    /// What it can do: `peer_access`, `multicast`, `switch_folds`, `gpu_direct`.
    #[getter]
    fn abilities(&self) -> Vec<&'static str> {
        let able = self.0.abilities;
        let all = [
            ("peer_access", able.peer_access),
            ("multicast", able.multicast),
            ("switch_folds", able.switch_folds),
            ("gpu_direct", able.gpu_direct),
        ];
        all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
    }

    /// Its devices: (name, kind, node or None, chips).
    #[getter]
    fn devices(&self) -> Vec<(&str, &'static str, Option<u32>, u32)> {
        self.0
            .devices
            .iter()
            .map(|device| (device.name.as_str(), device.kind.name(), device.node, device.chips))
            .collect()
    }

    /// Its links, each of one direction: (from, to, medium, lanes, GB/s at line rate, GB/s that a long transfer reaches).
    #[getter]
    fn links(&self) -> Vec<LinkRow<'_>> {
        let name = |at: usize| self.0.devices[at].name.as_str();
        let row = |link: &nvcoll_fabric::hardware::Link| {
            let rates = (link.line_rate().gbps(), link.rate().gbps());
            (name(link.from), name(link.to), link.medium.name.as_str(), link.lanes, rates.0, rates.1)
        };
        self.0.links.iter().map(row).collect()
    }

    /// The matrix of ``nvidia-smi topo -m``: how each pair of GPUs is joined.
    ///
    /// Args:
    ///     first: int or None; rows and columns of the first GPUs only, of all if None.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is no whole number, or negative.
    #[pyo3(signature = (*, first=None))]
    fn matrix(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Vec<String>>> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        py.detach(|| self.0.matrix_among(ranks, &interrupt)).map_err(|error| of_search(py, &error))
    }

    /// The devices that a transfer from one rank to another passes, and how it goes.
    fn route(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<(Vec<&str>, &str)> {
        let ranks = 0..=self.0.world_size() - 1;
        let (source, target) = (integer("source", source, ranks.clone())?, integer("target", target, ranks)?);
        let route = self.0.route(source, target).map_err(|error| of_fabric(py, &error))?;
        let first = self.0.gpus()[source as usize];
        let passed = std::iter::once(first).chain(route.links.iter().map(|&link| self.0.links[link].to));
        Ok((passed.map(|at| self.0.devices[at].name.as_str()).collect(), route.kind.name()))
    }

    /// GB/s of each pair when nothing else moves; row `from`, column `to`, NaN on the diagonal.
    ///
    /// Args:
    ///     first: int or None; rows and columns of the first GPUs only, of all if None.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is no whole number, or negative.
    #[pyo3(signature = (*, first=None))]
    fn alone(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Rates> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        rates(py, py.detach(|| self.0.alone_among(ranks, &interrupt)))
    }

    /// GB/s of each pair when every pair of all GPUs sends, both ways; row `from`, column `to`, NaN on the diagonal.
    ///
    /// Args:
    ///     first: int or None; rows and columns of the first GPUs only, of all if None.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is no whole number, or negative.
    #[pyo3(signature = (*, first=None))]
    fn at_once(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Rates> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        rates(py, py.detach(|| self.0.at_once_among(ranks, &interrupt)))
    }

    /// GB/s at line rate, one way: of the links from the first GPU to the others of its node (to the host if NVLink does not
    /// join all of them), and of its share of the node's network cards, or None on one node.
    fn port_rates(&self) -> (f64, Option<f64>) {
        let PortRates { gpu, network } = self.0.port_rates();
        (gpu.gbps(), network.map(Rate::gbps))
    }

    /// GB/s that can leave these ranks for the others, one way.
    ///
    /// Raises:
    ///     InvalidArgument: no rank is named, one does not exist, or one is named twice.
    fn cut(&self, py: Python<'_>, ranks: &Bound<'_, PyAny>) -> PyResult<f64> {
        let ranks = self.ranks_of(ranks)?;
        self.0.check_ranks(&ranks).map_err(|error| of_fabric(py, &error))?;
        Ok(self.0.cut(&ranks).gbps())
    }

    /// The least time in microseconds of a collective of `nbytes` (as nccl-tests counts them), whatever the schedule.
    ///
    /// Args:
    ///     collective: as all_reduce.
    ///     nbytes: bytes, or a size such as `"64K"` or `"1G"`; or any number of them: then a list is returned.
    ///
    /// Raises:
    ///     InvalidArgument: no collective is called so, or it has no floor.
    fn floor<'py>(&self, py: Python<'py>, collective: &str, nbytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (contract, sizes) = (collective_named(py, collective)?, sizes_of(nbytes)?);
        let floor = py.detach(|| self.1.floor(contract.name, || self.0.floor(contract)));
        let floor = floor.map_err(|error| of_fabric(py, &error))?;
        let us = |&nbytes: &u64| floor.time(nbytes) as f64 / PS_PER_US as f64;
        sizes.answers(py, sizes.all().iter().map(us).collect())
    }

    /// Some of its GPUs, which are the ranks in this order.
    ///
    /// Raises:
    ///     InvalidArgument: no rank is named, one does not exist, or one is named twice.
    fn among(&self, py: Python<'_>, ranks: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.among(&self.ranks_of(ranks)?).map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Fabric {}: {}; {}>", self.0.name, self.0.title, self.0.evidence())
    }

    /// For notebooks: a picture, or None if it is too large.
    fn _repr_svg_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("fabric_svg", slf.as_any())
    }
}

/// Reads how many of the first GPUs a matrix shows: all of them if the argument is None.
fn ranks_shown(first: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    first.map_or(Ok(u32::MAX), |first| integer("first", first, 0..=u32::MAX))
}

impl Fabric {
    /// Reads numbers of ranks that exist.
    fn ranks_of(&self, ranks: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let last = self.0.world_size() - 1;
        ranks.try_iter()?.map(|rank| integer("a rank", &rank?, 0..=last)).collect()
    }

    pub(crate) fn hardware(&self) -> &Hardware {
        &self.0
    }

    pub(crate) fn cache(&self) -> &FabricCache {
        &self.1
    }
}

/// Raises what a search says: what a signal raised if it was interrupted.
fn of_search(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Interrupted => raised(),
        error => of_fabric(py, error),
    }
}

fn rates(py: Python<'_>, matrix: Result<RateMatrix, Error>) -> PyResult<Rates> {
    let matrix = matrix.map_err(|error| of_search(py, &error))?;
    let gbps = |rate: &Option<nvcoll_fabric::units::Rate>| rate.map_or(f64::NAN, |rate| rate.gbps());
    Ok(matrix.iter().map(|row| row.iter().map(gbps).collect()).collect())
}

/// A machine by name: one that is shipped, some of its GPUs (`hgx-h100[0-3]`), or nodes and a network
/// (`hgx-h100x4+ib-ndr-8`), as :func:`cluster` joins them.
///
/// Raises:
///     InvalidArgument: no machine is called so; the message has the nearest.
#[pyfunction]
fn fabric(py: Python<'_>, name: &str) -> PyResult<Fabric> {
    preset(name).map(Fabric::from).map_err(|error| of_fabric(py, &error))
}

/// Every machine that is shipped.
#[pyfunction]
fn fabrics() -> Vec<Fabric> {
    presets().iter().cloned().map(Fabric::from).collect()
}

/// A format of text that describes a machine. Made by :func:`text_formats`; :meth:`Fabric.from_text` reads them all.
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct TextFormat {
    /// The name of the format, as ``nvidia-smi topo -m``.
    name: &'static str,
    /// The usual end of the names of such files, as ``.txt``.
    ending: &'static str,
    /// Whether the caller has to say the model of the GPUs.
    needs_gpu: bool,
}

/// Every format of text that describes a machine.
#[pyfunction]
fn text_formats() -> Vec<TextFormat> {
    let row = |one: &FormatRow| TextFormat { name: one.name, ending: one.ending, needs_gpu: one.needs_gpu() };
    FORMATS.iter().map(row).collect()
}

/// `nodes` nodes of one kind with a network between them.
///
/// Args:
///     node: the name of a machine, or a `Fabric` of one node.
///     nodes: how many.
///     network: the name of a network, as `ib-ndr-8`: eight ports of InfiniBand NDR per node.
///
/// Raises:
///     InvalidArgument: a name that is unknown, or a node to which no NIC can be attached.
#[pyfunction]
#[pyo3(name = "cluster", signature = (node, *, nodes, network))]
fn make_cluster(py: Python<'_>, node: &Bound<'_, PyAny>, nodes: &Bound<'_, PyAny>, network: &str) -> PyResult<Fabric> {
    let nodes = integer("nodes", nodes, 1..=u32::MAX)?;
    let node = match node.cast::<Fabric>() {
        Ok(fabric) => fabric.get().0.clone(),
        Err(_) => preset(&node.extract::<String>()?).map_err(|error| of_fabric(py, &error))?,
    };
    let made = cluster::network(network).and_then(|network| cluster::cluster(&node, nodes, network));
    made.map(Fabric::from).map_err(|error| of_fabric(py, &error))
}

/// Returns every network that can lie between nodes.
#[pyfunction]
#[pyo3(name = "networks")]
fn all_networks(py: Python<'_>) -> PyResult<Vec<NetworkRow>> {
    let row = |network: &'static cluster::Network| {
        let gbps = network.line_rate().map_err(|error| of_fabric(py, &error))?.gbps();
        Ok(NetworkRow { name: &network.name, title: &network.title, gbps, source: &network.source })
    };
    networks().iter().map(row).collect()
}

/// Returns every medium of which links are made.
#[pyfunction(name = "media")]
fn all_media() -> Vec<MediumRow> {
    let row = |one: &'static media::Medium| MediumRow {
        name: &one.name,
        title: &one.title,
        family: one.family.name(),
        lane_gbps: one.lane_gbps,
        efficiency: one.efficiency,
        latency_ns: one.latency_ns,
        source: &one.source,
    };
    media::all().iter().map(row).collect()
}

/// Returns every model of GPU.
#[pyfunction(name = "gpus")]
fn all_gpus() -> Vec<GpuRow> {
    let row = |one: &'static gpus::Gpu| GpuRow {
        name: &one.name,
        title: &one.title,
        nvlink: one.nvlink.as_deref(),
        nvlinks: one.nvlinks,
        pcie: &one.pcie,
        pcie_lanes: one.pcie_lanes,
        memory_gbps: one.memory_gbps,
        source: &one.source,
    };
    gpus::all().iter().map(row).collect()
}

/// Adds the class and the functions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Fabric>()?;
    module.add_function(wrap_pyfunction!(fabric, module)?)?;
    module.add_class::<TextFormat>()?;
    module.add_function(wrap_pyfunction!(fabrics, module)?)?;
    module.add_function(wrap_pyfunction!(text_formats, module)?)?;
    module.add_function(wrap_pyfunction!(make_cluster, module)?)?;
    module.add_function(wrap_pyfunction!(all_networks, module)?)?;
    module.add_function(wrap_pyfunction!(all_media, module)?)?;
    module.add_function(wrap_pyfunction!(all_gpus, module)?)
}
