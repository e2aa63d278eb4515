//! The door to machines: what `on` is everywhere, a text of the grammar, a file, a fabric, or several of them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use nvcoll_fabric::hardware::gpus;
use nvcoll_fabric::machines::{machines as listed, other_names, split, takes_gpu};
use nvcoll_fabric::preset::rows;
use nvcoll_fabric::topology::cluster;
use nvcoll_fabric::Error;

use crate::error::{invalid, of_fabric};
use crate::integers::integer;
use crate::machines::fabric::{described, read, Fabric};
use crate::rows::GpuRow;

/// Returns machines: what `on` names in every function, and ``--on`` in every command.
///
/// Args:
///     on: names, files, or a `Fabric`; or a sequence of them. A text is a list with commas. Each machine is the name of a preset
///         (``hgx-h100``); some of its GPUs (``hgx-h100[0,3]``); a number of GPUs (``8xH100``, ``4x rtx4090``); a file that ends in
///         ``.toml``, ``.txt`` or ``.xml``; or nodes and a network (``hgx-h100x4+ib-ndr-8``, ``mine.tomlx3+net.toml``). Changes may
///         follow: ``hgx-h100 with nvlink x2, pcie x2``.
///     gpu: the model of the GPUs of files that do not name it.
///
/// Raises:
///     InvalidArgument: the name is unknown (the message has the nearest names); a file is wrong; ``gpu`` is given and no file needs it.
///     OSError: a file cannot be read.
///
/// Example:
///     >>> import nvcoll
///     >>> [machine.world_size for machine in nvcoll.machines("hgx-h100,dgx2")]
///     [8, 16]
#[pyfunction]
#[pyo3(signature = (
    on: "str | PathLike[str] | Fabric | Sequence[str | PathLike[str] | Fabric]", *, gpu=None
))]
pub(crate) fn machines(py: Python<'_>, on: &Bound<'_, PyAny>, gpu: Option<&str>) -> PyResult<Vec<Py<Fabric>>> {
    let gpu = gpu.map(gpus::named).transpose().map_err(|error| of_fabric(py, &error))?;
    let each: Vec<Bound<'_, PyAny>> = match is_one(on) {
        true => vec![on.clone()],
        false => {
            let wrong = |_| invalid(py, format!("`on` is a {}: {PASS}", type_name(on)));
            on.try_iter().map_err(wrong)?.collect::<PyResult<_>>()?
        }
    };
    let wants = |one: &Bound<'_, PyAny>| one.extract::<PathBuf>().is_ok_and(|text| takes_gpu(&text.to_string_lossy()));
    let is_wanted = each.iter().any(wants);
    let mut found = Vec::new();
    for one in &each {
        if let Ok(fabric) = one.cast::<Fabric>() {
            found.push(fabric.clone().unbind());
        } else if let Ok(text) = one.extract::<String>() {
            let gpu = gpu.filter(|_| !is_wanted || takes_gpu(&text));
            let made = with_files(py, |read| listed(&text, gpu, read))?;
            found.extend(made.into_iter().map(|one| Py::new(py, Fabric::from(one))).collect::<PyResult<Vec<_>>>()?);
        } else if is_one(one) {
            let path: PathBuf = one.extract()?;
            let gpu = gpu.filter(|_| takes_gpu(&path.to_string_lossy())).map(|gpu| gpu.name.as_str());
            found.push(Py::new(py, Fabric::of_file(py, &path, gpu)?)?);
        } else {
            return Err(invalid(py, format!("`on` is a {}: {PASS}", type_name(one))));
        }
    }
    match found.is_empty() || gpu.is_some() && !is_wanted {
        true => Err(invalid(
            py,
            if found.is_empty() { format!("`on` names no machine: {PASS}") } else { UNWANTED.to_owned() },
        )),
        false => Ok(found),
    }
}

const PASS: &str = "pass the name of a machine, as hgx-h100, a file, a Fabric, or several of them";
const UNWANTED: &str = "`gpu` is for files that do not name their GPUs, and `on` names none";

/// Returns a machine: what `machines` returns for a text, a file or a `Fabric` that is one machine.
///
/// Args:
///     on: the machine, as in :func:`machines`.
///     gpu: the model of the GPUs of a file that does not name it.
///
/// Raises:
///     InvalidArgument: as :func:`machines`; these are several machines.
///     OSError: a file cannot be read.
///
/// Example:
///     >>> import nvcoll
///     >>> nvcoll.fabric("hgx-h100x2+ib-ndr-8").world_size
///     16
#[pyfunction]
#[pyo3(signature = (on: "str | PathLike[str] | Fabric", *, gpu=None))]
pub(crate) fn fabric(py: Python<'_>, on: &Bound<'_, PyAny>, gpu: Option<&str>) -> PyResult<Py<Fabric>> {
    let mut found = machines(py, on, gpu)?;
    let count = found.len();
    found.pop().filter(|_| count == 1).ok_or_else(|| {
        let names = on.str().map_or_else(|_| String::new(), |names| names.to_string());
        invalid(
            py,
            format!(
                "`on` is {count} machines, `{names}`, and this takes one: pass one, or each of nvcoll.machines(on)"
            ),
        )
    })
}

/// Returns the texts of the machines of a list: what each of `machines` was made of.
#[pyfunction]
pub(crate) fn machine_texts(list: &str) -> Vec<String> {
    split(list)
}

/// Returns the names of every preset machine, and their other names.
#[pyfunction]
pub(crate) fn machine_names() -> Vec<&'static str> {
    rows().iter().map(|row| row.fabric.name.as_str()).chain(other_names()).collect()
}

/// Returns the models of GPU that a text may mean: a name of the table, the name that a driver prints, or what people type. None if it
/// names no model, several if it does not tell them apart.
#[pyfunction]
pub(crate) fn gpus_called(text: &str) -> Vec<GpuRow> {
    gpus::gpus_called(text).into_iter().map(GpuRow).collect()
}

fn is_one(on: &Bound<'_, PyAny>) -> bool {
    on.cast::<Fabric>().is_ok() || !on.is_instance_of::<PyBytes>() && on.extract::<PathBuf>().is_ok()
}

fn type_name(of: &Bound<'_, PyAny>) -> String {
    of.get_type().name().map_or_else(|_| "thing".to_owned(), |name| name.to_string())
}

/// Makes something of texts in files; an exception of a file is kept, which the core's error cannot hold.
pub(crate) fn with_files<T>(
    py: Python<'_>,
    make: impl FnOnce(&dyn Fn(&str) -> nvcoll_fabric::Result<String>) -> nvcoll_fabric::Result<T>,
) -> PyResult<T> {
    let kept = RefCell::new(None);
    let read_text = |path: &str| {
        read(py, Path::new(path)).map(|(text, _)| text).map_err(|error| {
            kept.replace(Some(error));
            Error::Interrupted
        })
    };
    make(&read_text).map_err(|error| match error {
        Error::Interrupted => kept.take().unwrap_or_else(|| of_fabric(py, &error)),
        error => of_fabric(py, &error),
    })
}

/// Returns a machine of equal nodes and a network.
///
/// Args:
///     node: a machine of one node, as in :func:`machines`.
///     nodes: the number of nodes, from 1.
///     network: the name of a network, as ``ib-ndr-8``: eight ports of InfiniBand NDR per node; a `Network`; or a file that
///         describes one, as a path or as a name that ends in ``.toml``.
///
/// Raises:
///     InvalidArgument: a name is unknown, no NIC can be attached to the node, or the description of the network is wrong or
///         holds fewer nodes.
///     OSError: the file cannot be read.
///
/// Example:
///     >>> import nvcoll
///     >>> nvcoll.cluster("hgx-h100", nodes=4, network="ib-ndr-8").world_size
///     32
#[pyfunction]
#[pyo3(
    name = "cluster",
    signature = (node: "str | PathLike[str] | Fabric", *, nodes: "int", network: "str | PathLike[str] | Network")
)]
pub(crate) fn make_cluster(
    py: Python<'_>,
    node: &Bound<'_, PyAny>,
    nodes: &Bound<'_, PyAny>,
    network: &Bound<'_, PyAny>,
) -> PyResult<Fabric> {
    let nodes = integer("nodes", nodes, 1..=u32::MAX)?;
    let node = match node.cast::<Fabric>() {
        Ok(fabric) => fabric.get().hardware().clone(),
        Err(_) => fabric(py, node, None)?.get().hardware().clone(),
    };
    let between = described(network)?;
    py.detach(|| cluster::cluster(&node, nodes, &between)).map(Fabric::from).map_err(|error| of_fabric(py, &error))
}
