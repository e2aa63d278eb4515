//! Rows of the registries as Python sees them: named tuples, whose fields have the names of the fields here.

use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Makes a struct of each row, and a named tuple of each struct.
macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $row:ident { $($field:ident: $type:ty,)+ })+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) struct $row {
                $(pub(crate) $field: $type,)+
            }

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
                    Self::class(py)?.call1(($(self.$field,)+))
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

fn class(py: Python<'_>, name: &str, fields: &[(&str, PyStaticExpr)], doc: &[&str]) -> PyResult<Py<PyAny>> {
    let fields: Vec<_> = fields.iter().map(|(name, of_type)| (name, of_type.to_string())).collect();
    let class = py.import("typing")?.call_method1("NamedTuple", (name, fields))?;
    class.setattr("__doc__", doc.join("\n"))?;
    class.setattr("__module__", "nvcoll._nvcoll")?;
    Ok(class.unbind())
}

rows! {
    /// A registered algorithm. `order` says how it reduces: `rank`, in the order of ranks; `tree`; or `none`.
    AlgorithmRow {
        collective: &'static str,
        name: &'static str,
        order: &'static str,
        summary: &'static str,
        source: &'static str,
    }

    /// A parameter of a registered algorithm: the values that it takes, and its default, in words.
    ParameterRow {
        name: &'static str,
        choices: String,
        default: &'static str,
        summary: &'static str,
    }

    /// A collective. `folds` says which ranks' arrays a result reduces: `nothing`, `everyone` or `predecessors`.
    CollectiveRow {
        name: &'static str,
        summary: &'static str,
        has_root: bool,
        can_be_in_place: bool,
        folds: &'static str,
    }

    /// A dtype: the bytes of an element, its kind, and the dtype in which it is accumulated.
    DtypeRow {
        name: &'static str,
        nbytes: usize,
        kind: &'static str,
        accumulator: &'static str,
    }

    /// An op, and the names of the dtypes on which it is defined.
    OpRow {
        name: &'static str,
        dtypes: Vec<&'static str>,
    }

    /// A medium of links. `lane_gbps` is the line rate of one lane or link one way, in GB/s; `efficiency` is the part of it
    /// that a long transfer reaches; `latency_ns` passes until the first byte is across.
    MediumRow {
        name: &'static str,
        title: &'static str,
        family: &'static str,
        lane_gbps: f64,
        efficiency: f64,
        latency_ns: u64,
        source: &'static str,
    }

    /// A model of GPU. `nvlink` is the medium of its NVLinks, or of its links of Infinity Fabric, or None; `pcie` is the medium
    /// of its PCIe lanes; `memory_gbps` is the bandwidth of its memory in GB/s.
    GpuRow {
        name: &'static str,
        title: &'static str,
        nvlink: Option<&'static str>,
        nvlinks: u32,
        pcie: &'static str,
        pcie_lanes: u32,
        memory_gbps: f64,
        source: &'static str,
    }

    /// A constant of predictions. `kind` says how it is known: cited, fitted or chosen; `low` and `high` are its least and
    /// greatest value with a family of machines held out.
    ConstantRow {
        name: &'static str,
        value: f64,
        unit: &'static str,
        kind: &'static str,
        low: f64,
        high: f64,
        source: &'static str,
    }

    /// A pattern that predictions know; `is_of_sends` says whether NCCL builds it of sends and receives.
    PatternRow {
        name: &'static str,
        is_of_sends: bool,
    }

    /// An environment variable of NCCL that `settings=` takes. `since` is the first version that reads it, from 2.8.4; `default`
    /// is None if it depends on the machine or the version.
    SettingRow {
        name: &'static str,
        since: String,
        values: &'static str,
        default: Option<u64>,
        changes: &'static str,
    }

    /// A coefficient of the cost model; `per_second` of its units are a second.
    CoefficientRow {
        name: &'static str,
        per_second: f64,
    }

    /// The model by which `auto` chooses: its modes, its coefficients, and the most ranks for which it estimates candidates.
    CostModel {
        modes: Vec<&'static str>,
        coefficients: Vec<CoefficientRow>,
        most_ranks: u32,
    }

    /// What `auto` expects of one algorithm: bytes that all ranks read and write, waits and steps of the longest chain, the
    /// factor of each coefficient, and seconds.
    CandidateRow {
        algorithm: &'static str,
        moved_bytes: f64,
        waits: u32,
        steps: u64,
        terms: Vec<f64>,
        seconds: f64,
    }

    /// What `auto` chooses for a call, why, and what it expects of each candidate.
    AutoChoice {
        algorithm: &'static str,
        why: &'static str,
        candidates: Vec<CandidateRow>,
    }
}
