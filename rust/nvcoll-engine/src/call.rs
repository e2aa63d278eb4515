//! What is called: the part of a call on which all ranks must agree, and its form in a call record.

use nvcoll_core::algorithm;
use nvcoll_core::collective::{Collective, COLLECTIVES};
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::{Aliasing, Path};
use std::hash::{Hash, Hasher};

use crate::sync::Record;

/// In a record: the algorithm that `auto` chooses.
const AUTO: u8 = 255;

/// In a record: an algorithm that is not registered.
const OWN: u8 = 254;

/// A call, as every rank must make it.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which collective.
    pub collective: &'static Collective,
    /// By which algorithm: a name, with `#` and a hash of the schedule if its user wrote it.
    pub algorithm: String,
    /// Of what elements.
    pub dtype: DType,
    /// Folded how.
    pub op: Op,
    /// How many elements each part has, per rank.
    pub count: usize,
    /// How ranks reach each other.
    pub path: Path,
    /// Whether input and output are the same memory.
    pub aliasing: Aliasing,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key() && self.algorithm == other.algorithm
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
        self.algorithm.hash(state);
    }
}

impl Call {
    fn key(&self) -> (&str, DType, Op, usize, Path, Aliasing) {
        (self.collective.name, self.dtype, self.op, self.count, self.path, self.aliasing)
    }

    /// Returns the algorithm as its user calls it: without the hash that tells a schedule of its user's from another.
    fn algorithm_words(&self) -> &str {
        self.algorithm.split_once('#').map_or(&self.algorithm, |(name, _)| name)
    }

    /// Returns the call as three words: a fingerprint, the parts of it that are small numbers, and the count.
    pub fn fingerprint(&self) -> [u64; 3] {
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        self.hash(&mut hasher);
        let collective = COLLECTIVES.iter().position(|c| *c == self.collective).unwrap_or(0);
        let registered = algorithm::of(self.collective).position(|a| a.name == self.algorithm);
        let algorithm = if self.algorithm == "auto" { AUTO } else { registered.map_or(OWN, |at| at as u8) };
        let [dtype, op, path, aliasing] = [self.dtype as u8, self.op as u8, self.path as u8, self.aliasing as u8];
        let small = [collective as u8, dtype, op, path, aliasing, algorithm, 0, 0];
        [hasher.finish(), u64::from_le_bytes(small), self.count as u64]
    }

    /// Reads back what the words of another rank tell. An algorithm that its user wrote is in the fingerprint only.
    pub(crate) fn from_record(record: &Record) -> Self {
        let [collective, dtype, op, path, aliasing, algorithm, ..] = record[1].to_le_bytes();
        let pick = |index: u8, length: usize| usize::from(index).min(length - 1);
        let collective = COLLECTIVES[pick(collective, COLLECTIVES.len())];
        let name = match algorithm {
            AUTO => "auto",
            at => algorithm::of(collective).nth(at.into()).map_or("an algorithm of its own", |a| a.name),
        };
        Self {
            collective,
            algorithm: name.into(),
            dtype: DType::ALL[pick(dtype, DType::ALL.len())],
            op: Op::ALL[pick(op, Op::ALL.len())],
            count: record[2] as usize,
            path: Path::ALL[pick(path, Path::ALL.len())],
            aliasing: Aliasing::ALL[pick(aliasing, Aliasing::ALL.len())],
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.collective.parts(1) == 0 {
            return f.write_str(self.collective.name);
        }
        let Self { collective, dtype, op, count, path, aliasing, .. } = self;
        write!(f, "{} of {count} {dtype}", collective.name)?;
        if collective.folds() {
            write!(f, ", {op}")?;
        }
        write!(f, ", {}, {}", aliasing.words(), path.name())?;
        match self.algorithm_words() {
            "" => Ok(()),
            algorithm => write!(f, ", {algorithm}"),
        }
    }
}
