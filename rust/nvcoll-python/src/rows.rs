//! Rows of the registries as Python sees them: named tuples, whose fields and types stand here with the values that a source gives.

use std::collections::BTreeMap;

use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::IntoPyObjectExt;
use serde::Serialize;

use nvcoll_core::algorithm::{Algorithm, Parameter};
use nvcoll_core::collective::{Collective, Folds};
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_fabric::hardware::gpus::Gpu;
use nvcoll_fabric::hardware::media::Medium;
use nvcoll_fabric::nccl::Variable;
use nvcoll_fabric::predict::constants::Constant;
use nvcoll_fabric::predict::Pattern;
use nvcoll_fabric::preset::board_of;
use nvcoll_step::memory::GIB;
use nvcoll_step::pricing;

/// Numbers by name, in their order.
pub(crate) struct ByName(Vec<(String, f64)>);

impl ByName {
    pub(crate) fn of(numbers: impl IntoIterator<Item = (impl Into<String>, f64)>) -> Self {
        Self(numbers.into_iter().map(|(name, number)| (name.into(), number)).collect())
    }
}

impl<'py> IntoPyObject<'py> for ByName {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    const OUTPUT_TYPE: PyStaticExpr = <BTreeMap<String, f64> as IntoPyObject>::OUTPUT_TYPE;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let dict = PyDict::new(py);
        self.0.into_iter().try_for_each(|(name, number)| dict.set_item(name, number))?;
        Ok(dict)
    }
}

/// Returns the word of the JSON of steps for a value.
pub(crate) fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).expect("it is one word")
}

/// Makes a type of each row, which holds its source, and a named tuple of each type.
macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $row:ident($source:ident: $of:ty) { $($field:ident: $type:ty = $value:expr,)+ })+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) struct $row(pub(crate) $of);

            impl $row {
                fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
                    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                    let make = || class(py, stringify!($row), &[$((stringify!($field), <$type>::OUTPUT_TYPE)),+], &[$($doc.trim()),+]);
                    CLASS.get_or_try_init(py, make).map(|class| class.bind(py))
                }
            }

            impl<'py> IntoPyObject<'py> for $row {
                type Target = PyAny;
                type Output = Bound<'py, PyAny>;
                type Error = PyErr;

                const OUTPUT_TYPE: PyStaticExpr = PyStaticExpr::Name { id: stringify!($row) };

                fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                    let $source = self.0;
                    $(let $field: $type = $value;)+
                    Self::class(py)?.call1(PyTuple::new(py, [$($field.into_bound_py_any(py)?),+])?)
                }
            }
        )+

        /// Adds the classes to the module.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($row), $row::class(module.py())?)?;)+
            Ok(())
        }
    };
}

pub(crate) use rows;

/// Makes the named tuple of a row.
pub(crate) fn class(py: Python<'_>, name: &str, fields: &[(&str, PyStaticExpr)], doc: &[&str]) -> PyResult<Py<PyAny>> {
    let fields: Vec<_> = fields.iter().map(|(name, of_type)| (name, of_type.to_string())).collect();
    let class = py.import("typing")?.call_method1("NamedTuple", (name, fields))?;
    class.setattr("__doc__", doc.join("\n"))?;
    class.setattr("__module__", "nvcoll._nvcoll")?;
    Ok(class.unbind())
}

rows! {
    /// A registered algorithm. `order` says how it reduces: `rank`, in the order of ranks; `tree`; or `none`.
    AlgorithmRow(algorithm: &'static Algorithm) {
        collective: &'static str = algorithm.collective.name,
        name: &'static str = algorithm.name,
        order: &'static str = algorithm.order.name(),
        summary: &'static str = algorithm.summary,
        source: &'static str = algorithm.source,
    }

    /// A parameter of a registered algorithm: the values that it takes, and its default, in words.
    ParameterRow(parameter: &'static Parameter) {
        name: &'static str = parameter.name,
        choices: String = parameter.choices(),
        default: &'static str = parameter.default(),
        summary: &'static str = parameter.summary,
    }

    /// A collective. `folds` says which ranks' arrays a result reduces: `nothing`, `everyone` or `predecessors`.
    CollectiveRow(collective: &'static Collective) {
        name: &'static str = collective.name,
        summary: &'static str = collective.summary,
        has_root: bool = collective.has_root,
        can_be_in_place: bool = collective.can_be_in_place,
        folds: &'static str = match collective.folds {
            Folds::Nothing => "nothing",
            Folds::Everyone => "everyone",
            Folds::Predecessors => "predecessors",
        },
    }

    /// A dtype: the bytes of an element, its kind, and the dtype in which it is accumulated.
    DtypeRow(dtype: DType) {
        name: &'static str = dtype.name(),
        nbytes: usize = dtype.bytes(),
        kind: &'static str = dtype.kind().name(),
        accumulator: &'static str = dtype.accumulator().name(),
    }

    /// An op, and the names of the dtypes on which it is defined.
    OpRow(op: Op) {
        name: &'static str = op.name(),
        dtypes: Vec<&'static str> = DType::ALL.iter().filter(|dtype| op.is_defined_on(**dtype)).map(|dtype| dtype.name()).collect(),
    }

    /// A medium of links. `lane_gbps` is the line rate of one lane or link one way, in GB/s; `efficiency` is the part of it
    /// that a long transfer reaches; `latency_ns` passes until the first byte is across.
    MediumRow(medium: &'static Medium) {
        name: &'static str = &medium.name,
        title: &'static str = &medium.title,
        family: &'static str = medium.family.name(),
        lane_gbps: f64 = medium.lane_gbps,
        efficiency: f64 = medium.efficiency,
        latency_ns: u64 = medium.latency_ns,
        source: &'static str = &medium.source,
    }

    /// A model of GPU. `nvlink` is the medium of its NVLinks, or of its links of Infinity Fabric, or None; `pcie` is the medium
    /// of its PCIe lanes; `memory_gbps` is the bandwidth of its memory in GB/s. `sm` is its compute capability, as 90; `sms` are
    /// its streaming multiprocessors; `memory_gb` is the memory of its name, `usable_gib` what programs see of it, in GiB; `board` is
    /// the machine on which it is sold, if there is one; `names` are how the names begin that nvidia-smi and amd-smi print, without the
    /// maker's. What is not known is None.
    GpuRow(gpu: &'static Gpu) {
        name: &'static str = &gpu.name,
        title: &'static str = &gpu.title,
        nvlink: Option<&'static str> = gpu.nvlink.map(|medium| medium.name.as_str()),
        nvlinks: u32 = gpu.nvlinks,
        pcie: &'static str = &gpu.pcie.name,
        pcie_lanes: u32 = gpu.pcie_lanes,
        memory_gbps: f64 = gpu.memory_gbps,
        sm: Option<u32> = gpu.sm,
        sms: Option<u32> = gpu.compute.as_ref().map(|compute| compute.sms),
        memory_gb: Option<f64> = gpu.compute.as_ref().map(|compute| compute.memory_gb),
        usable_gib: Option<f64> = gpu.compute.as_ref().map(|compute| compute.usable_gib),
        board: Option<&'static str> = board_of(gpu).map(|board| board.name.as_str()),
        names: Vec<&'static str> = gpu.known_by.names.iter().map(String::as_str).collect(),
        source: &'static str = &gpu.source,
    }

    /// A constant of predictions. `kind` says how it is known: cited, fitted or chosen; `low` and `high` are its least and
    /// greatest value with a family of machines held out.
    ConstantRow(constant: &'static Constant) {
        name: &'static str = &constant.name,
        value: f64 = constant.value,
        unit: &'static str = &constant.unit,
        kind: &'static str = constant.kind.name(),
        low: f64 = constant.low,
        high: f64 = constant.high,
        source: &'static str = &constant.source,
    }

    /// A pattern that predictions know; `is_of_sends` says whether NCCL builds it of sends and receives.
    PatternRow(pattern: Pattern) {
        name: &'static str = pattern.name(),
        is_of_sends: bool = pattern.is_of_sends(),
    }

    /// An environment variable of NCCL that `settings=` takes. `since` is the first version that reads it, from 2.8.4; `default`
    /// is None if it depends on the machine or the version.
    SettingRow(variable: &'static Variable) {
        name: &'static str = variable.name,
        since: String = variable.since.map(|number| number.to_string()).join("."),
        values: &'static str = variable.values,
        default: Option<u64> = variable.default,
        changes: &'static str = variable.changes,
    }

    /// The time of the ranks of some stages: seconds of one micro-batch by chunk, and seconds once in a step.
    RolePrice(role: pricing::RolePrice) {
        name: String = role.name,
        stages: Vec<u32> = role.stages,
        forward_s: Vec<f64> = role.forward_s,
        backward_s: Vec<f64> = role.backward_s,
        once_s: f64 = role.once_s,
    }

    /// Memory of a GPU of some role: bytes by line, their sum in GiB, and the least and the most bytes that it may need.
    MemoryTable(table: nvcoll_step::memory::MemoryTable) {
        role: String = table.role.clone(),
        gib: f64 = table.bytes() / GIB,
        least_bytes: f64 = table.least_bytes,
        most_bytes: f64 = table.most_bytes,
        lines: ByName = ByName::of(table.lines.into_iter().map(|(line, bytes)| (word(&line), bytes))),
    }

    /// What the GPU of a recorded step loses for a line of the script, in seconds of a step. `exposed_s`, `copies_s`: its
    /// collectives and messages, and its copies, that nothing hides. `waits_s`: it waits for other ranks. `host_s`: the GPU waits
    /// for the processor to issue its operations.
    LinePrice(one: pricing::LinePrice) {
        line: String = one.line,
        exposed_s: f64 = one.exposed_s,
        copies_s: f64 = one.copies_s,
        waits_s: f64 = one.waits_s,
        host_s: f64 = one.host_s,
    }

    /// One measured step against its prediction: `ratio` as measured, `scale` as it counts for other steps, to which `scaled`
    /// applies it. A run has noise of its own (3 to 5 % between equal runs), so `scale` is nearer to 1. It holds for the same model,
    /// GPU, precision and software.
    Calibration(numbers: [f64; 2]) {
        ratio: f64 = numbers[0],
        scale: f64 = numbers[1],
    }
}
