//! The conditions under which a schedule runs in virtual time: ranks that are late or slow, links that are damaged.

use pyo3::prelude::*;
use pyo3::types::PyMapping;

use nvcoll_fabric::simulate::{Damage, Ratio};
use nvcoll_fabric::units::{Ps, PS_PER_US};
use nvcoll_fabric::Fabric;

use crate::error::{invalid, of_fabric};
use crate::integers::integer;

/// The latest that a rank can be, in microseconds. Chosen: a quarter of an hour.
const LATEST_US: f64 = 1e9;

/// The slowest that a rank can be. Chosen: ratios are kept in millionths.
const SLOWEST: f64 = 1000.0;

/// The least that is left of a link that is not cut: ratios are kept in millionths.
const LEAST_LEFT: f64 = 1e-6;

/// Reads `starts=`; returns the picoseconds at which each rank enters, empty if all enter at 0.
pub(crate) fn starts_of(value: Option<&Bound<'_, PyAny>>, world_size: u32) -> PyResult<Vec<Ps>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let starts =
        of_ranks("starts", value, world_size, 0.0, |us| (0.0..=LATEST_US).contains(&us), "microseconds, 0 or more")?;
    Ok(starts.into_iter().map(|us| (us * PS_PER_US as f64).round() as Ps).collect())
}

/// Reads `slowdowns=`; returns the factor of each rank, empty if no rank is slow.
pub(crate) fn slowdowns_of(value: Option<&Bound<'_, PyAny>>, world_size: u32) -> PyResult<Vec<Ratio>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let is_slowdown = |factor| (1.0..=SLOWEST).contains(&factor);
    let factors = of_ranks("slowdowns", value, world_size, 1.0, is_slowdown, "a factor from 1 to 1000")?;
    Ok(factors.into_iter().filter_map(Ratio::nearest).collect())
}

/// Reads `damage=`: a mapping from the names of two devices to the part of the rate that their links keep. A pair holds for both
/// directions, unless the mapping has the reverse pair too.
pub(crate) fn damages_of(value: Option<&Bound<'_, PyAny>>, fabric: &Fabric) -> PyResult<Vec<Damage>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let py = value.py();
    let items = value.cast::<PyMapping>().map_err(|_| invalid(py, MAPPING))?.items()?;
    let mut named: Vec<(String, String, Ratio)> = Vec::new();
    for item in items {
        let (pair, left): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let (from, to) = pair.extract::<(String, String)>().map_err(|_| invalid(py, MAPPING))?;
        let is_part = |left: &f64| *left == 0.0 || (LEAST_LEFT..=1.0).contains(left);
        let ratio = left.extract::<f64>().ok().filter(is_part).and_then(Ratio::nearest);
        let Some(ratio) = ratio else {
            let message =
                format!("damage of {from} and {to} is {left}: pass what is left of the rate, from 0 (cut) to 1");
            return Err(invalid(py, message));
        };
        named.push((from, to, ratio));
    }
    let mut damages = Vec::new();
    for (from, to, left) in &named {
        let has_other = named.iter().any(|(other_from, other_to, _)| (other_from, other_to) == (to, from));
        let back = (!has_other).then_some((to, from));
        for (from, to) in [(from, to)].into_iter().chain(back) {
            damages.extend(Damage::between(fabric, from, to, *left).map_err(|error| of_fabric(py, &error))?);
        }
    }
    Ok(damages)
}

const MAPPING: &str =
    "damage must be a mapping from the names of two devices to what is left of the links between them, \
                       as {(\"gpu0\", \"nvswitch\"): 0.5}";

/// Reads a number per rank: a sequence, or a mapping from some ranks; the other ranks have `others`.
fn of_ranks(
    argument: &str,
    value: &Bound<'_, PyAny>,
    world_size: u32,
    others: f64,
    is_allowed: impl Fn(f64) -> bool,
    wanted: &str,
) -> PyResult<Vec<f64>> {
    let py = value.py();
    let read = |rank: u32, value: &Bound<'_, PyAny>| {
        let number = value.extract::<f64>().ok().filter(|&number| is_allowed(number));
        number.ok_or_else(|| invalid(py, format!("{argument} of rank {rank} is {value}: pass {wanted}")))
    };
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let mut all = vec![others; world_size as usize];
        for item in mapping.items()? {
            let (rank, number): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let rank = integer(&format!("a rank of {argument}"), &rank, 0..=world_size - 1)?;
            all[rank as usize] = read(rank, &number)?;
        }
        return Ok(all);
    }
    let numbers = value.try_iter().map_err(|_| {
        invalid(
            py,
            format!("{argument} is {value}: pass {wanted}, for every rank in a sequence or for some in a mapping"),
        )
    })?;
    let numbers: Vec<Bound<'_, PyAny>> = numbers.collect::<PyResult<_>>()?;
    if numbers.len() != world_size as usize {
        let message = format!("{argument} has {} numbers: the schedule is of {world_size} ranks", numbers.len());
        return Err(invalid(py, message));
    }
    numbers.iter().zip(0..).map(|(number, rank)| read(rank, number)).collect()
}
