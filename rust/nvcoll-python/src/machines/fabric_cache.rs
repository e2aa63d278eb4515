//! The cache of a fabric: predictors and lower bounds, each computed once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nvcoll_fabric::floor::Floor;
use nvcoll_fabric::nccl::NcclSettings;
use nvcoll_fabric::predict::Predictor;
use nvcoll_fabric::{Fabric, Result};

/// The version of NCCL, by default the newest, and its settings.
type PredictorKey = (Option<String>, NcclSettings);

/// The predictors of a fabric by version and settings of NCCL, and its lower bounds by collective and settings.
#[derive(Default)]
pub(crate) struct FabricCache {
    predictors: Mutex<HashMap<PredictorKey, Arc<Predictor>>>,
    floors: Mutex<HashMap<(&'static str, NcclSettings), Floor>>,
}

impl FabricCache {
    /// Returns the predictor of a version of NCCL, by default the newest, and of settings.
    pub(crate) fn predictor(
        &self,
        fabric: &Fabric,
        version: Option<&str>,
        settings: &NcclSettings,
    ) -> Result<Arc<Predictor>> {
        let key = (version.map(str::to_owned), settings.clone());
        let known = self.predictors.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(predictor) = known {
            return Ok(predictor);
        }
        let made = Arc::new(Predictor::with_settings(fabric, version, settings)?);
        self.predictors.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
        Ok(made)
    }

    /// Returns the lower bound of a collective under settings; `find` computes it the first time.
    pub(crate) fn floor(
        &self,
        name: &'static str,
        settings: &NcclSettings,
        find: impl FnOnce() -> Result<Floor>,
    ) -> Result<Floor> {
        let key = (name, settings.clone());
        let known = self.floors.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(floor) = known {
            return Ok(floor);
        }
        let made = find()?;
        self.floors.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made);
        Ok(made)
    }
}
