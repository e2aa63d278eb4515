//! The constants of a step: the rows of `data/constants.toml`, and the same values as fields.
//!
//! Each is a physical effect with a range. The name of a row is the path of a field: `gemm.hopper` is `Constants::gemm.hopper`. A row
//! without a field, or a field without a row, is an error when the table is read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::tables;

/// A row of `constants.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Its name, as `gemm.hopper`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The least of its values with one source of runs left out.
    pub low: f64,
    /// The greatest of them.
    pub high: f64,
    /// In what.
    pub unit: String,
    /// How it is known: cited, fitted or chosen.
    pub kind: String,
    /// Where it is from.
    pub source: String,
}

/// A constant that differs between generations of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByGeneration {
    /// V100.
    pub volta: f64,
    /// A100 and its relatives.
    pub ampere: f64,
    /// H100, H200.
    pub hopper: f64,
    /// B200, GB200.
    pub blackwell: f64,
    /// B300, GB300.
    pub blackwell_ultra: f64,
    /// MI300X, MI325X; without a value they have the one of Hopper.
    pub cdna3: Option<f64>,
    /// MI350X, MI355X; likewise.
    pub cdna4: Option<f64>,
}

/// The constants of a step; units and meaning are in the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is a row of constants.toml, which documents it")]
pub struct Constants {
    pub gemm: ByGeneration,
    pub half_rate: f64,
    pub gemm_fp8: f64,
    pub gemm_fp8_cdna3: f64,
    pub gemm_fp4: f64,
    pub gemm_loss: f64,
    pub grouped: f64,
    pub quantisation: f64,
    pub attention: f64,
    pub score_bytes: f64,
    pub elementwise: ByGeneration,
    pub memory_rate: f64,
    pub tiles_exposed: f64,
    pub experts_exposed: f64,
    pub data_exposed: f64,
    pub hiding: f64,
    pub half_exposed: f64,
    pub contention: f64,
    pub network: f64,
    pub all_to_all: f64,
    pub graph_kernel: ByGeneration,
    pub graph_gemm: ByGeneration,
    pub graph_experts: ByGeneration,
    pub graph_attention: f64,
    pub weights: ByGeneration,
    pub narrow_weights: f64,
    pub widened_weights: f64,
    pub experts_skew: f64,
}

/// Returns the rows of the table.
pub fn rows() -> &'static [Constant] {
    static ROWS: LazyLock<Vec<Constant>> =
        LazyLock::new(|| tables::rows(include_str!("data/constants.toml"), "constant"));
    &ROWS
}

impl Constants {
    /// Returns the constants with some of them replaced, by name.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no row has such a name.
    pub fn with(replaced: &BTreeMap<String, f64>) -> Result<Self> {
        if let Some(name) = replaced.keys().find(|name| rows().iter().all(|row| row.name != **name)) {
            return Err(tables::named("constant", name, rows(), |row| &row.name).expect_err("no row has the name"));
        }
        let mut fields = Map::new();
        for row in rows() {
            let value = Value::from(replaced.get(&row.name).copied().unwrap_or(row.value));
            match row.name.split_once('.') {
                None => _ = fields.insert(row.name.clone(), value),
                Some((effect, generation)) => {
                    let of = fields.entry(effect).or_insert_with(|| Value::Object(Map::new()));
                    of.as_object_mut().expect("a row has one dot at most").insert(generation.to_owned(), value);
                }
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| Error::Step(error.to_string()))
    }

    /// Returns the constants that are shipped.
    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Constants> =
            LazyLock::new(|| Constants::with(&BTreeMap::new()).expect("rows and fields agree"));
        &SHIPPED
    }
}
