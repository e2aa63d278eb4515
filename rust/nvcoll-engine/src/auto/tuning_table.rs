//! Tuning tables: the coefficients of the cost model, and frozen decisions if the user has frozen any. Text in TOML.
//!
//! ```text
//! format = "nvcoll.tuning/1"
//! machine = "what it was measured on"           free text
//!
//! [caches]
//! near_bytes = 2097152                           the second-level cache of one worker
//! far_bytes = 33554432                           the last-level cache
//!
//! [tile]                                         one section per mode: tile, staged, ranks
//! call_ns = 700                                  one line per coefficient, none negative
//! …
//!
//! [[decision]]                                   any number; the first that fits decides, else the estimates
//! collective = "all_reduce"
//! mode = "tile"
//! world_size = 8
//! in_place = true
//! up_to_bytes = 65536                            bytes of the longer buffer of a rank; without it: any size
//! algorithm = "nvswitch"
//! ```
//!
//! The reader checks everything: an unknown name, a missing number, a number out of range, and a decision for an algorithm that
//! does not fold in rank order are errors. Ranks that share a table choose the same algorithm.

use std::sync::{Arc, OnceLock};

use nvcoll_core::algorithm::{self, Algorithm};
use nvcoll_core::collective::Collective;
use nvcoll_core::limits::MAX_RUNNING_RANKS;
use nvcoll_core::schedule::Aliasing;

use super::estimate::{Caches, Mode, COEFFICIENTS, TERMS};
use crate::error::{Error, Result};

/// The format of tables.
pub const FORMAT: &str = "nvcoll.tuning/1";

/// The shipped table, as text.
pub const SHIPPED: &str = include_str!("tuning.toml");

/// The table by which `auto` decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// The machine on which the coefficients were measured.
    pub machine: String,
    /// The caches of that machine.
    pub caches: Caches,
    coefficients: [[f64; TERMS]; 3],
    decisions: Vec<Decision>,
}

/// A frozen decision.
#[derive(Debug, Clone, PartialEq)]
struct Decision {
    form: Form,
    up_to_bytes: u64,
    algorithm: &'static str,
}

/// The kind of call that a decision is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Form {
    /// The collective.
    pub collective: &'static Collective,
    /// The mode in which it runs.
    pub mode: Mode,
    /// The number of ranks.
    pub world_size: u32,
    /// The aliasing.
    pub aliasing: Aliasing,
}

impl Tuning {
    /// Returns the shipped table.
    pub fn shipped() -> Arc<Tuning> {
        static TABLE: OnceLock<Arc<Tuning>> = OnceLock::new();
        TABLE.get_or_init(|| Arc::new(Tuning::parse(SHIPPED).expect("a test reads the shipped table"))).clone()
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Error::Tuning`] says what was found and what was expected.
    pub fn parse(text: &str) -> Result<Tuning> {
        let root: toml::Table = text.parse().map_err(|error: toml::de::Error| Error::Tuning(error.message().into()))?;
        let root = Section { name: "the table", entries: &root };
        let sections = Mode::ALL.iter().map(|mode| mode.name());
        root.allow(&["format", "machine", "caches", "decision"].into_iter().chain(sections).collect::<Vec<_>>())?;
        let format = root.text("format")?;
        if format != FORMAT {
            return Err(Error::Tuning(format!("`format` is \"{format}\": this version reads \"{FORMAT}\"")));
        }
        let caches = root.section("caches")?;
        caches.allow(&["near_bytes", "far_bytes"])?;
        let caches = Caches { near_bytes: caches.number("near_bytes")?, far_bytes: caches.number("far_bytes")? };
        let mut coefficients = [[0.0; TERMS]; 3];
        for (mode, of_mode) in Mode::ALL.iter().zip(&mut coefficients) {
            let section = root.section(mode.name())?;
            section.allow(&COEFFICIENTS.map(|(name, _)| name))?;
            for ((name, _), value) in COEFFICIENTS.iter().zip(of_mode) {
                *value = section.number(name)?;
            }
        }
        let decisions = match root.entries.get("decision") {
            None => Vec::new(),
            Some(toml::Value::Array(all)) => all.iter().map(Decision::of).collect::<Result<_>>()?,
            Some(_) => {
                return Err(Error::Tuning("`decision` is not a list: begin each decision with [[decision]]".into()))
            }
        };
        Ok(Tuning { machine: root.text("machine")?.into(), caches, coefficients, decisions })
    }

    /// Returns the coefficients of a mode, in the units of [`COEFFICIENTS`].
    pub fn coefficients(&self, mode: Mode) -> &[f64; TERMS] {
        &self.coefficients[mode as usize]
    }

    /// Returns the frozen algorithm for a call whose longest buffer of a rank has `bytes` bytes, if there is one.
    pub fn decision(&self, form: &Form, bytes: u64) -> Option<&'static str> {
        let fits = |decision: &&Decision| decision.form == *form && bytes <= decision.up_to_bytes;
        self.decisions.iter().find(fits).map(|decision| decision.algorithm)
    }
}

impl Decision {
    fn of(value: &toml::Value) -> Result<Self> {
        let Some(entries) = value.as_table() else {
            return Err(Error::Tuning("a decision is not a table: begin it with [[decision]]".into()));
        };
        let section = Section { name: "a decision", entries };
        section.allow(&["collective", "mode", "world_size", "in_place", "up_to_bytes", "algorithm"])?;
        let collective = section.text("collective")?;
        let collective = Collective::named(collective)
            .ok_or_else(|| Error::Tuning(format!("no collective is called `{collective}`: a decision names one")))?;
        let mode = section.text("mode")?;
        let known = || Mode::ALL.iter().map(|mode| mode.name()).collect::<Vec<_>>().join(", ");
        let mode = Mode::ALL
            .iter()
            .find(|known| known.name() == mode)
            .ok_or_else(|| Error::Tuning(format!("no mode is called `{mode}`: choose from {}", known())))?;
        let world_size = section.number("world_size")?;
        if world_size.fract() != 0.0 || !(1.0..=f64::from(MAX_RUNNING_RANKS)).contains(&world_size) {
            return Err(Error::Tuning(format!(
                "`world_size` is {world_size}: a decision is for 1 to {MAX_RUNNING_RANKS}"
            )));
        }
        let aliasing = if section.truth("in_place")? { Aliasing::InPlace } else { Aliasing::Disjoint };
        let up_to_bytes = match section.entries.contains_key("up_to_bytes") {
            true => section.number("up_to_bytes")? as u64,
            false => u64::MAX,
        };
        let name = section.text("algorithm")?;
        let candidates: Vec<_> = candidates(collective).map(|algorithm| algorithm.name).collect();
        let Some(&algorithm) = candidates.iter().find(|candidate| **candidate == name) else {
            let (collective, known) = (collective.name, candidates.join(", "));
            return Err(Error::Tuning(format!("auto does not choose `{name}` for {collective}: choose from {known}")));
        };
        let world_size = world_size as u32;
        Ok(Self { form: Form { collective, mode: *mode, world_size, aliasing }, up_to_bytes, algorithm })
    }
}

/// Returns the candidates of `auto`, the default first: the algorithms that fold in the order of ranks, or all algorithms of a
/// collective that does not fold.
pub fn candidates(collective: &'static Collective) -> impl Iterator<Item = &'static Algorithm> {
    algorithm::of(collective)
        .filter(|algorithm| matches!(algorithm.order, algorithm::Order::Rank | algorithm::Order::None))
}

/// A table of the text, and its name in messages.
struct Section<'a> {
    name: &'a str,
    entries: &'a toml::Table,
}

impl<'a> Section<'a> {
    fn missing(&self, key: &str, what: &str) -> Error {
        Error::Tuning(format!("{} has no {what} `{key}`", self.name))
    }

    fn allow(&self, known: &[&str]) -> Result<()> {
        match self.entries.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Error::Tuning(format!("{} has `{key}`: it takes {}", self.name, known.join(", ")))),
            None => Ok(()),
        }
    }

    fn section(&self, key: &'a str) -> Result<Section<'a>> {
        let entries = self.entries.get(key).and_then(toml::Value::as_table);
        entries.map(|entries| Section { name: key, entries }).ok_or_else(|| self.missing(key, "section"))
    }

    fn text(&self, key: &str) -> Result<&'a str> {
        self.entries.get(key).and_then(toml::Value::as_str).ok_or_else(|| self.missing(key, "text"))
    }

    fn truth(&self, key: &str) -> Result<bool> {
        self.entries.get(key).and_then(toml::Value::as_bool).ok_or_else(|| self.missing(key, "true or false"))
    }

    /// A number that is finite and not negative.
    fn number(&self, key: &str) -> Result<f64> {
        let value = match self.entries.get(key) {
            Some(toml::Value::Integer(value)) => *value as f64,
            Some(toml::Value::Float(value)) => *value,
            _ => return Err(self.missing(key, "number")),
        };
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(Error::Tuning(format!("`{key}` of {} is {value}: it must be 0 or more", self.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvcoll_core::collective::{ALL_GATHER, ALL_REDUCE};

    const DECISION: &str = "[[decision]]\ncollective = \"all_reduce\"\nmode = \"tile\"\nworld_size = 8\n\
         in_place = true\nup_to_bytes = 1024\nalgorithm = \"one_shot\"\n";

    fn with(more: &str) -> Result<Tuning> {
        Tuning::parse(&format!("{SHIPPED}\n{more}"))
    }

    #[test]
    fn the_table_that_is_shipped_is_read_and_has_no_decisions() {
        let shipped = Tuning::shipped();
        assert!(shipped.decisions.is_empty());
        for &mode in Mode::ALL {
            assert!(shipped.coefficients(mode).iter().sum::<f64>() > 0.0, "{}", mode.name());
        }
    }

    #[test]
    fn a_decision_is_for_its_kind_of_call_up_to_its_size() {
        let tuning = with(DECISION).unwrap();
        let form = Form { collective: &ALL_REDUCE, mode: Mode::Tile, world_size: 8, aliasing: Aliasing::InPlace };
        assert_eq!(tuning.decision(&form, 1024), Some("one_shot"));
        assert_eq!(tuning.decision(&form, 1025), None);
        for other in [
            Form { collective: &ALL_GATHER, ..form },
            Form { mode: Mode::Ranks, ..form },
            Form { world_size: 7, ..form },
            Form { aliasing: Aliasing::Disjoint, ..form },
        ] {
            assert_eq!(tuning.decision(&other, 1), None, "{other:?}");
        }
        let tuning = with(&DECISION.replace("up_to_bytes = 1024\n", "")).unwrap();
        assert_eq!(tuning.decision(&form, u64::MAX), Some("one_shot"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let refused = |text: &str, words: &str| match Tuning::parse(text) {
            Err(Error::Tuning(message)) => assert!(message.contains(words), "{message}"),
            other => panic!("{other:?}"),
        };
        refused("", "no text `format`");
        refused("format = ", "");
        refused(&SHIPPED.replace("tuning/1", "tuning/9"), "this version reads");
        refused(&SHIPPED.replace("[staged]", "[stage]"), "has `stage`");
        refused(&SHIPPED.replace("near_bytes", "bytes"), "it takes near_bytes, far_bytes");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = -1 #"), "0 or more");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = nan #"), "0 or more");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = \"1\" #"), "no number `wait_ns`");
        refused(&format!("{SHIPPED}\n[decision]\n"), "[[decision]]");
        for (from, to, words) in [
            ("all_reduce", "all_produce", "no collective is called `all_produce`"),
            ("one_shot", "ring", "auto does not choose `ring` for all_reduce: choose from nvswitch, one_shot"),
            ("one_shot", "none", "auto does not choose `none`"),
            ("\"tile\"", "\"tiles\"", "no mode is called `tiles`: choose from tile, staged, ranks"),
            ("= 8", "= 0", "1 to 1024"),
            ("= true", "= 1", "no true or false `in_place`"),
            ("up_to_bytes", "bytes", "a decision has `bytes`"),
        ] {
            refused(&format!("{SHIPPED}\n{}", DECISION.replace(from, to)), words);
        }
    }
}
