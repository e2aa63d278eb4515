//! The cache of a fabric: predictors and lower bounds, each computed once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nvcoll_fabric::floor::Floor;
use nvcoll_fabric::predict::Predictor;
use nvcoll_fabric::{Fabric, Result};

/// The predictors of a fabric by version of NCCL, and its lower bounds by collective.
#[derive(Default)]
pub(crate) struct FabricCache {
    predictors: Mutex<HashMap<Option<String>, Arc<Predictor>>>,
    floors: Mutex<HashMap<&'static str, Floor>>,
}

impl FabricCache {
    /// Returns the predictor of a version of NCCL, by default the newest.
    pub(crate) fn predictor(&self, fabric: &Fabric, version: Option<&str>) -> Result<Arc<Predictor>> {
        let key = version.map(str::to_owned);
        let known = self.predictors.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(predictor) = known {
            return Ok(predictor);
        }
        let made = Arc::new(Predictor::of(fabric, version)?);
        self.predictors.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
        Ok(made)
    }

    /// Returns the lower bound of a collective; `find` computes it the first time.
    pub(crate) fn floor(&self, name: &'static str, find: impl FnOnce() -> Result<Floor>) -> Result<Floor> {
        let known = self.floors.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        if let Some(floor) = known {
            return Ok(floor);
        }
        let made = find()?;
        self.floors.lock().unwrap_or_else(PoisonError::into_inner).insert(name, made);
        Ok(made)
    }
}
