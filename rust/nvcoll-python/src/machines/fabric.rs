//! Fabrics: devices, links, rates and lower bounds of machines.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use pyo3::prelude::*;

use nvcoll_fabric::hardware::network::{self, networks, Network as Described};
use nvcoll_fabric::hardware::origin::Change;
use nvcoll_fabric::hardware::{gpus, media};
use nvcoll_fabric::import::{TextFormat as FormatRow, FORMATS};
use nvcoll_fabric::nccl::NcclSettings;
use nvcoll_fabric::preset::presets;
use nvcoll_fabric::topology::loss::Loss;
use nvcoll_fabric::topology::ports::PortRates;
use nvcoll_fabric::topology::rates::RateMatrix;
use nvcoll_fabric::units::{Rate, PS_PER_US};
use nvcoll_fabric::{Error, Fabric as Hardware};

use crate::error::{invalid, of_fabric, of_file, raised};
use crate::gil::interrupt;
use crate::integers::integer;
use crate::machines::fabric_cache::FabricCache;
use crate::rows::{GpuRow, MediumRow};
use crate::schedules::schedule::{collective_named, in_notebook};
use crate::sizes::sizes_of;

/// Rates in decimal GB/s, row by row.
type Rates = Vec<Vec<f64>>;

/// A link: from, to, medium, lanes, decimal GB/s at line rate and of a long transfer.
type LinkRow<'a> = (&'a str, &'a str, &'a str, u32, f64, f64);

/// A machine, or several machines and a network: devices, links and abilities.
///
/// Made by :func:`fabric`, :meth:`from_text`, :meth:`from_file` and :func:`cluster`. The GPUs are the ranks. Rates are decimal GB/s in
/// one direction.
///
/// Example:
///     >>> import nvcoll
///     >>> machine = nvcoll.fabric("hgx-h100")
///     >>> machine.predict("all_reduce", "1G").algorithm
///     'NVLS'
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
    /// Reads a machine from a text: the output of ``nvidia-smi topo -m``, ``rocm-smi --showtopo`` or ``amd-smi topology``, the
    /// ``NCCL_TOPO_DUMP_FILE`` of NCCL or RCCL, or TOML. nvcoll recognises the format.
    ///
    /// Args:
    ///     text: the text.
    ///     gpu: the model of the GPUs, as ``h100-sxm``, if the text does not name it.
    ///
    /// Raises:
    ///     InvalidArgument: no format recognises the text, or it is incomplete or wrong; ``gpu`` is unknown, is missing,
    ///         contradicts the text, or is given for TOML.
    #[staticmethod]
    #[pyo3(signature = (text, *, gpu=None))]
    fn from_text(py: Python<'_>, text: &str, gpu: Option<&str>) -> PyResult<Self> {
        Hardware::from_text(text, gpu, "text").map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// Reads a machine from a file in a format of :meth:`from_text`, in UTF-8 or UTF-16. The name of the file does not matter.
    ///
    /// Args:
    ///     path: str or path-like.
    ///     gpu: the model of the GPUs, as ``h100-sxm``, if the text does not name it.
    ///
    /// Raises:
    ///     InvalidArgument: no format recognises the text, or it is incomplete or wrong; ``gpu`` is unknown, is missing,
    ///         contradicts the text, or is given for TOML.
    ///     OSError: the file cannot be read.
    #[staticmethod]
    #[pyo3(signature = (path, *, gpu=None))]
    fn from_file(py: Python<'_>, path: PathBuf, gpu: Option<&str>) -> PyResult<Self> {
        Self::of_file(py, &path, gpu)
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The description in a few words.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// The model of the GPUs.
    #[getter]
    fn gpu(&self) -> &str {
        &self.0.gpu.title
    }

    /// The row of the table of models for the GPUs.
    #[getter]
    fn gpu_model(&self) -> GpuRow {
        GpuRow(self.0.gpu)
    }

    /// The name of one node of a cluster; of another machine, its own.
    #[getter]
    fn node(&self) -> &str {
        self.0.origin.cluster.as_deref().map_or(&self.0.name, |(node, _)| &node.name)
    }

    /// The number of network cards of each node of a cluster, or of each tray; None without a network.
    #[getter]
    fn cards(&self) -> Option<u32> {
        self.0.cards()
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

    /// The evidence for predictions of all_reduce, at the sizes with the most measurements: `validated on k systems` or `not validated`.
    #[getter]
    fn trust(&self) -> String {
        self.0.evidence().to_string()
    }

    /// The sources of the numbers.
    #[getter]
    fn sources(&self) -> Vec<String> {
        self.0.sources.clone()
    }

    /// The abilities: some of `peer_access`, `multicast`, `switch_reduction`, `gpu_direct`, `forwards`.
    #[getter]
    fn abilities(&self) -> Vec<&'static str> {
        let able = self.0.abilities;
        let all = [
            ("peer_access", able.peer_access),
            ("multicast", able.multicast),
            ("switch_reduction", able.switch_reduction),
            ("gpu_direct", able.gpu_direct),
            ("forwards", able.forwards),
        ];
        all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
    }

    /// The devices: (name, kind, node or None, chips).
    #[getter]
    fn devices(&self) -> Vec<(&str, &'static str, Option<u32>, u32)> {
        self.0
            .devices
            .iter()
            .map(|device| (device.name.as_str(), device.kind.name(), device.node, device.chips))
            .collect()
    }

    /// The links, each in one direction: (from, to, medium, lanes, GB/s at line rate, GB/s of a long transfer).
    #[getter]
    fn links(&self) -> Vec<LinkRow<'_>> {
        let name = |at: usize| self.0.devices[at].name.as_str();
        let row = |link: &nvcoll_fabric::hardware::Link| {
            let rates = (link.line_rate().gbps(), link.rate().gbps());
            (name(link.from), name(link.to), link.medium.name.as_str(), link.lanes, rates.0, rates.1)
        };
        self.0.links.iter().map(row).collect()
    }

    /// Returns the matrix of ``nvidia-smi topo -m``: the kind of connection of each pair of GPUs.
    ///
    /// Args:
    ///     first: the number of GPUs in the matrix, from the first. Default: all.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is not a whole number from 0.
    ///     KeyboardInterrupt: Ctrl-C ended the search for routes.
    #[pyo3(signature = (*, first: "int | None" = None))]
    fn matrix(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Vec<String>>> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        py.detach(|| self.0.matrix_among(ranks, &interrupt)).map_err(|error| of_search(py, &error))
    }

    /// Returns the names of the devices on the route between two ranks, and the kind of the route.
    ///
    /// Raises:
    ///     InvalidArgument: a rank does not exist, or there is no path.
    #[pyo3(signature = (source: "int", target: "int"))]
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

    /// Returns the GB/s of each pair of GPUs without other traffic: a row per source, a column per target, NaN on the diagonal.
    ///
    /// Args:
    ///     first: the number of GPUs in the matrix, from the first. Default: all.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is not a whole number from 0.
    ///     KeyboardInterrupt: Ctrl-C ended the search for routes.
    #[pyo3(signature = (*, first: "int | None" = None))]
    fn alone(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Rates> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        rates(py, py.detach(|| self.0.alone_among(ranks, &interrupt)))
    }

    /// Returns the GB/s of each pair of GPUs while every pair sends in both directions: a row per source, a column per target, NaN on
    /// the diagonal.
    ///
    /// Args:
    ///     first: the number of GPUs in the matrix, from the first. Default: all. All GPUs send in any case.
    ///
    /// Raises:
    ///     InvalidArgument: `first` is not a whole number from 0.
    ///     KeyboardInterrupt: Ctrl-C ended the search for routes.
    #[pyo3(signature = (*, first: "int | None" = None))]
    fn at_once(&self, py: Python<'_>, first: Option<&Bound<'_, PyAny>>) -> PyResult<Rates> {
        let (ranks, interrupt) = (ranks_shown(first)?, interrupt());
        rates(py, py.detach(|| self.0.at_once_among(ranks, &interrupt)))
    }

    /// Returns two line rates of a GPU in GB/s, in one direction. The first is that of its links to the other GPUs of the node, or to
    /// the host if NVLink does not connect all of them. The second is its share of the node's network cards, None on one node.
    fn port_rates(&self) -> (f64, Option<f64>) {
        let PortRates { gpu, network } = self.0.port_rates();
        (gpu.gbps(), network.map(Rate::gbps))
    }

    /// Returns the GB/s from these ranks to all others.
    ///
    /// Args:
    ///     ranks: the ranks, at least one.
    ///
    /// Raises:
    ///     InvalidArgument: there is no rank, one does not exist, or one occurs twice.
    #[pyo3(signature = (ranks: "Sequence[int]"))]
    fn cut(&self, py: Python<'_>, ranks: &Bound<'_, PyAny>) -> PyResult<f64> {
        let ranks = self.ranks_of(ranks)?;
        self.0.check_ranks(&ranks).map_err(|error| of_fabric(py, &error))?;
        Ok(self.0.cut(&ranks).gbps())
    }

    /// Returns the lower bound of a collective's time in microseconds, for any schedule.
    ///
    /// Args:
    ///     collective: the name of a collective, as ``all_reduce``.
    ///     nbytes: a size in bytes, a text such as `"64K"`, or several sizes. nccl-tests' count.
    ///
    /// Returns:
    ///     The lower bound; for several sizes a list in their order.
    ///
    /// Raises:
    ///     InvalidArgument: the collective is unknown or has no lower bound; a size is out of range.
    #[pyo3(signature = (collective, nbytes: "_Size") -> "float")]
    fn floor<'py>(&self, py: Python<'py>, collective: &str, nbytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (contract, sizes) = (collective_named(py, collective)?, sizes_of(nbytes)?);
        let floor = py.detach(|| self.1.floor(contract.name, &NcclSettings::default(), || self.0.floor(contract)));
        let floor = floor.map_err(|error| of_fabric(py, &error))?;
        let us = |&nbytes: &u64| floor.time(nbytes) as f64 / PS_PER_US as f64;
        sizes.answers(py, sizes.all().iter().map(us).collect())
    }

    /// Returns the machine with some of its GPUs as ranks.
    ///
    /// Args:
    ///     ranks: the ranks here, in the order of the new ranks.
    ///
    /// Raises:
    ///     InvalidArgument: there is no rank, one does not exist, or one occurs twice.
    #[pyo3(signature = (ranks: "Sequence[int]"))]
    fn among(&self, py: Python<'_>, ranks: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.0.among(&self.ranks_of(ranks)?).map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// Returns the machine with one change.
    ///
    /// Args:
    ///     change: ``nvlink x2``, ``pcie x0.5`` or another family of links with a factor; ``nics 4``: cards of a node; ``pcie``: no
    ///         NVLink; ``gpu a100-sxm-40gb``: another model with the same links; ``socket epyc x3``: links between sockets. The title
    ///         of the result says what changed, and its name is that of :func:`machines`.
    ///
    /// Raises:
    ///     InvalidArgument: the change is unknown, or the machine cannot have it.
    fn what_if(&self, py: Python<'_>, change: &str) -> PyResult<Self> {
        let changed = Change::of(change).and_then(|change| self.0.changed(&change));
        changed.map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// Returns the cluster with another number of the same nodes; with 1, one node without the network.
    ///
    /// Args:
    ///     nodes: the number of nodes.
    ///
    /// Raises:
    ///     InvalidArgument: the machine is no cluster, or its network holds fewer nodes.
    #[pyo3(signature = (nodes: "int"))]
    fn with_nodes(&self, py: Python<'_>, nodes: &Bound<'_, PyAny>) -> PyResult<Self> {
        let nodes = integer("nodes", nodes, 1..=u32::MAX)?;
        self.0.with_nodes(nodes).map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    /// Returns the machine with something lost, in each node.
    ///
    /// Args:
    ///     lost: ``nvlink``, ``pcie`` or another family: lanes of its links to GPUs; ``cards``: network cards; ``rate``: of each port of
    ///         the network; ``gpu_direct``; or the name of a medium: one port of it replaces all cards. One node has no network to
    ///         lose.
    ///     part: what there was over what is left. 0, of lanes: nothing is left.
    ///     of_all: whether all GPUs lose lanes, or the first of each node.
    ///     gbit: Gbit/s of the port.
    ///
    /// Raises:
    ///     InvalidArgument: `lost` is unknown, or the machine cannot lose it.
    #[pyo3(signature = (lost, part=1, *, of_all=true, gbit=100.0))]
    fn damaged(&self, py: Python<'_>, lost: &str, part: u32, of_all: bool, gbit: f64) -> PyResult<Self> {
        let family = media::all().iter().map(|medium| medium.family).find(|family| family.name() == lost);
        let loss = match (lost, family) {
            ("cards", _) => Ok(Loss::Cards(part)),
            ("rate", _) => Ok(Loss::Rate(part)),
            ("gpu_direct", _) => Ok(Loss::GpuDirect),
            (_, Some(family)) => Ok(Loss::Lanes { family, part, of_all }),
            (medium, None) => media::named(medium).map(|medium| Loss::Port(medium, gbit)),
        };
        let damaged = loss.and_then(|loss| self.0.damaged(&loss));
        damaged.map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.0.name, self.0.devices.len(), self.0.links.len()).hash(&mut hasher);
        hasher.finish()
    }

    #[pyo3(signature = () -> "tuple[Any, ...]")]
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let saved = serde_json::to_string(&slf.get().0);
        let saved = saved.map_err(|error| invalid(slf.py(), error.to_string()))?;
        Ok((slf.get_type().getattr("_restored")?, (saved,)))
    }

    // For pickle.
    #[staticmethod]
    fn _restored(py: Python<'_>, saved: &str) -> PyResult<Self> {
        let fabric: Result<Hardware, _> = serde_json::from_str(saved);
        fabric.map(Self::from).map_err(|error| invalid(py, format!("a saved fabric cannot be read: {error}")))
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Fabric {}, {} x {}>", self.0.name, self.0.world_size(), self.0.gpu.title)
    }

    /// Returns a picture for notebooks, or None if it would be too large.
    #[pyo3(signature = () -> "str | None")]
    fn _repr_svg_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        in_notebook("fabric_svg", slf.as_any())
    }
}

/// Reads the number of GPUs in a matrix. Default: all.
fn ranks_shown(first: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
    first.map_or(Ok(u32::MAX), |first| integer("first", first, 0..=u32::MAX))
}

impl Fabric {
    /// Reads ranks, which must exist.
    fn ranks_of(&self, ranks: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let last = self.0.world_size() - 1;
        ranks.try_iter()?.map(|rank| integer("a rank", &rank?, 0..=last)).collect()
    }

    /// Reads a machine from a file.
    pub(crate) fn of_file(py: Python<'_>, path: &Path, gpu: Option<&str>) -> PyResult<Self> {
        let (text, name) = read(py, path)?;
        Hardware::from_text(&text, gpu, &name).map(Self::from).map_err(|error| of_fabric(py, &error))
    }

    pub(crate) fn hardware(&self) -> &Hardware {
        &self.0
    }

    pub(crate) fn cache(&self) -> &FabricCache {
        &self.1
    }
}

/// Makes the exception of a search: that of the signal handler if it was interrupted.
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

/// Returns every preset machine.
#[pyfunction]
pub(crate) fn fabrics() -> Vec<Fabric> {
    presets().iter().cloned().map(Fabric::from).collect()
}

/// Reads a file that describes a machine or a network. Returns its text without a byte order mark, and the file's name.
pub(crate) fn read(py: Python<'_>, path: &Path) -> PyResult<(String, String)> {
    let text = std::fs::read(path).and_then(text_of).map_err(|error| of_file(py, &error, path))?;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
    Ok((text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned), name))
}

/// Returns the text of a file: UTF-8, or UTF-16 with its byte order mark, which PowerShell writes where it redirects.
fn text_of(bytes: Vec<u8>) -> std::io::Result<String> {
    let invalid = |message: String| std::io::Error::new(std::io::ErrorKind::InvalidData, message);
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] if rest.len().is_multiple_of(2) => {
            let units = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))
        }
        _ => String::from_utf8(bytes).map_err(|error| invalid(error.to_string())),
    }
}

/// A text format of machines, which :meth:`Fabric.from_text` reads. Made by :func:`text_formats`.
#[pyclass(frozen, get_all, module = "nvcoll")]
pub(crate) struct TextFormat {
    /// The name of the format, as ``nvidia-smi topo -m``.
    name: &'static str,
    /// The usual ending of file names, as ``.txt``.
    ending: &'static str,
    /// Whether the caller may pass the model of the GPUs, because some texts do not name it.
    takes_gpu: bool,
}

/// Returns every text format of machines.
#[pyfunction]
pub(crate) fn text_formats() -> Vec<TextFormat> {
    let row = |one: &FormatRow| TextFormat { name: one.name, ending: one.ending, takes_gpu: one.takes_gpu() };
    FORMATS.iter().map(row).collect()
}

/// A network between nodes: its cards, ports and switches. Made by :meth:`from_text` and :meth:`from_file`; :func:`cluster` takes it.
///
/// Example:
///     >>> import nvcoll
///     >>> network = nvcoll.Network.from_text(
///     ...     'name = "mine"\ntitle = "my network"\nsource = "its manual"\nmedium = "ib-ndr"\n'
///     ...     'nics = 8\nhost_medium = "pcie5"\nhost_lanes = 16'
///     ... )
///     >>> nvcoll.cluster("hgx-h100", nodes=2, network=network).world_size
///     16
#[pyclass(frozen, module = "nvcoll", eq)]
#[derive(PartialEq)]
pub(crate) struct Network(Described);

#[pymethods]
impl Network {
    /// Reads the description of a network in TOML.
    ///
    /// Args:
    ///     text: the description.
    ///
    /// Raises:
    ///     InvalidArgument: a field is missing, unknown or wrong; the message names it.
    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<Self> {
        Described::from_text(text, "text").map(Self).map_err(|error| of_fabric(py, &error))
    }

    /// Reads the description of a network from a file in TOML, in UTF-8 or UTF-16.
    ///
    /// Args:
    ///     path: str or path-like.
    ///
    /// Raises:
    ///     InvalidArgument: a field is missing, unknown or wrong; the message names it.
    ///     OSError: the file cannot be read.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let (text, name) = read(py, &path)?;
        Described::from_text(&text, &name).map(Self).map_err(|error| of_fabric(py, &error))
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The description in a few words.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// The line rate of the cards of a node, or of a tray of a rack, one way, in GB/s.
    #[getter]
    fn gbps(&self) -> f64 {
        self.0.line_rate().gbps()
    }

    /// The source of the numbers.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    fn __repr__(&self) -> String {
        format!("<nvcoll.Network {}: {}>", self.0.name, self.0.title)
    }
}

/// Reads a network: an object, a name, or a file.
pub(super) fn described(from: &Bound<'_, PyAny>) -> PyResult<Described> {
    let py = from.py();
    if let Ok(network) = from.cast::<Network>() {
        return Ok(network.get().0.clone());
    }
    match from.extract::<String>() {
        Ok(name) if !name.ends_with(".toml") => network::network(&name).cloned().map_err(|error| of_fabric(py, &error)),
        _ => Ok(Network::from_file(py, from.extract()?)?.0),
    }
}

/// Returns every network between nodes that is shipped.
#[pyfunction]
#[pyo3(name = "networks")]
pub(crate) fn all_networks() -> Vec<Network> {
    networks().iter().cloned().map(Network).collect()
}

/// Returns every medium of links.
#[pyfunction(name = "media")]
pub(crate) fn all_media() -> Vec<MediumRow> {
    media::all().iter().map(MediumRow).collect()
}

/// Returns every model of GPU.
#[pyfunction(name = "gpus")]
pub(crate) fn all_gpus() -> Vec<GpuRow> {
    gpus::all().iter().map(GpuRow).collect()
}
