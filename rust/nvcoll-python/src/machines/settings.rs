//! NCCL's environment variables for Python: `settings=`, and the list of known variables.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyMapping};

use nvcoll_fabric::nccl::{NcclSettings, VARIABLES};

use crate::error::{invalid, of_fabric};
use crate::rows::SettingRow;

const MAPPING: &str = "settings must be a mapping from names of NCCL's environment variables to values, str or int, \
                       as {\"NCCL_ALGO\": \"Tree\"}";

/// Reads `settings=`: a mapping from names to values, as text or whole number.
pub(crate) fn settings_of(value: Option<&Bound<'_, PyAny>>) -> PyResult<NcclSettings> {
    let Some(value) = value else { return Ok(NcclSettings::default()) };
    let py = value.py();
    let items = value.cast::<PyMapping>().map_err(|_| invalid(py, MAPPING))?.items()?;
    let mut variables: Vec<(String, String)> = Vec::new();
    for item in items {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = name.extract::<String>().map_err(|_| invalid(py, MAPPING))?;
        let text = match value.cast::<PyInt>() {
            Ok(number) => number.call_method0("__index__")?.str()?.to_string(),
            Err(_) => value.extract::<String>().map_err(|_| invalid(py, MAPPING))?,
        };
        variables.push((name, text));
    }
    let variables = variables.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    NcclSettings::of(variables).map_err(|error| of_fabric(py, &error))
}

/// Returns the environment variables of NCCL that `settings=` takes.
#[pyfunction]
pub(crate) fn nccl_settings() -> Vec<SettingRow> {
    VARIABLES.iter().map(SettingRow).collect()
}
