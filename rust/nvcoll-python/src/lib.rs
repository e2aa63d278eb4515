//! The Python binding. It reads arguments, releases the GIL, lets Ctrl-C in and turns errors into exceptions. The docstrings of its
//! classes and functions are here. The rooms of `python/nvcoll` stand on it.
//!
//! | room, from the bottom | what it holds |
//! |---|---|
//! | `error`, `refuted`, `gil`, `integers`, `interpreter`, `sizes`, `units`, `counts`, `rows`, `pickled` | what every class needs: exceptions, the GIL during a call, numbers, rows of tables, pickles |
//! | `engine`, `without_engine` | what calls of the engine need: its errors, proofs, facts of this machine; or what stands in for it |
//! | `arrays` | objects as operands of calls: all unsafe code but one call in `interpreter` |
//! | `schedules` | the builder, schedules and their proofs, registries |
//! | `machines` | machines, predictions, NCCL's choice, simulation |
//! | `training` | steps of training: planned, read, priced |
//! | `calls` | who calls, with what arguments, and works in flight |
//!
//! A build without the engine (`build.rs` says when) leaves out `arrays`, `calls` and `engine`. This file is the seam: `without_engine`
//! stands in for `engine`, and Python gets stand-ins for the names that are left out.

#![deny(unsafe_code)]
// Numbers, rows and proofs of calls stand among those of all; the full build says what is unused.
#![cfg_attr(not(engine), allow(dead_code, unused_imports))]

#[cfg(engine)]
#[allow(unsafe_code)]
mod arrays;
#[cfg(engine)]
mod calls;
mod counts;
#[cfg_attr(not(engine), path = "without_engine.rs")]
mod engine;
mod error;
mod gil;
mod integers;
#[allow(unsafe_code)]
mod interpreter;
mod machines;
mod pickled;
mod refuted;
mod rows;
mod schedules;
mod sizes;
mod training;
mod units;

use pyo3::prelude::*;

#[pymodule]
mod _nvcoll {
    use nvcoll_core::limits;
    use pyo3::prelude::*;

    use crate::{engine, error, interpreter, rows};

    #[pymodule_export]
    use crate::machines::{
        door::{fabric, gpus_called, machine_names, machine_texts, machines, make_cluster},
        fabric::{all_gpus, all_media, all_networks, fabrics, text_formats, Fabric, Network, TextFormat},
        nccl::{nccl_versions, NcclCandidate, NcclEstimate},
        prediction::{constants_of_predictions, launch_named, launches, model_servers, patterns, Prediction, Trial},
        settings::nccl_settings,
        timeline::{CriticalPiece, Timeline},
    };
    #[pymodule_export]
    use crate::schedules::{
        builder::{Builder, View},
        registries::{algorithm_parameters, algorithms, bus_factor, collective_spelled, collectives, dtypes, ops},
        schedule::{schedule, verify, why, Proof, Schedule, Step},
    };
    #[pymodule_export]
    use crate::sizes::parse_size;
    #[pymodule_export]
    use crate::training::builder::{group_word, IssueOf, RankBuilder, StepBuilder};
    #[pymodule_export]
    use crate::training::prediction::{PricedCollective, StepPrediction};
    #[pymodule_export]
    use crate::training::pricer::StepPricer;
    #[pymodule_export]
    use crate::training::serving::ServingPrediction;
    #[pymodule_export]
    use crate::training::{
        precisions, serving_software, step_words, training_constants, training_models, training_software, WorkStep,
    };
    #[cfg(engine)]
    #[pymodule_export]
    use crate::{
        arrays::{roofline::roofline, PassedArrays},
        calls::{
            call_counts::{CallCounts, Calls},
            choices::{premul_sum, PremulSum},
            communicator::{Communicator, Message},
            faults::arm,
            group::Group,
            job::Job,
            left_fold::fold,
            node::Node,
            passed::read,
            plan::Plan,
            recorder::Recorder,
            team::Team,
            tuning::{auto_candidates, cost_model},
            work::Work,
        },
        engine::{
            facts::{handoff_ns, machine, memory},
            gil::end_attaching,
        },
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreter::require_main(module.py())?;
        error::register(module)?;
        rows::register(module)?;
        engine::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("HAS_ENGINE", cfg!(engine))?;
        module.add("MAX_WORLD_SIZE", limits::MAX_WORLD_SIZE)?;
        module.add("MAX_RUNNING_RANKS", limits::MAX_RUNNING_RANKS)?;
        // The package, not the extension, says which names are public.
        module.delattr("__all__")
    }
}
