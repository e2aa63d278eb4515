//! Calls: the part of a call on which all ranks must agree, and its form in a record.

pub(crate) mod description;

use nvcoll_core::algorithm;
use nvcoll_core::collective::{Collective, Roles, ALL_TO_ALL, BARRIER, COLLECTIVES};
use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;
use nvcoll_core::op::Op;
use nvcoll_core::schedule::{Aliasing, Path};
use std::hash::{Hash, Hasher};

use crate::sync::Record;

/// Room for a table of counts in a description. Of a longer one, the last place has the sum of the rest. Chosen.
const COUNTS: usize = 48;

/// The number in a record for the algorithm `auto`.
const AUTO: u8 = 255;

/// The number in a record for an algorithm that is not registered.
const OWN: u8 = 254;

/// The number in a record for a path on which ranks agree in the call.
const AGREED: u8 = 255;

/// The bit in a record, beside the aliasing, for parts of different lengths. The fingerprint has their table.
const BY_TABLE: u8 = 0x80;

/// The bits in a record, beside the aliasing, for the purpose.
const PURPOSE_SHIFT: u32 = 5;

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallPurpose {
    /// The call of a user.
    Itself,
    /// A split: a barrier whose records hold the color and the key of every rank.
    Split,
    /// The exchange of rows of counts before an all_to_all.
    RowsOfCounts,
    /// The agreement on the path of the calls of a group: a barrier whose records say whether every rank can reach the arrays.
    PathOfGroup,
}

impl CallPurpose {
    const ALL: [Self; 4] = [Self::Itself, Self::Split, Self::RowsOfCounts, Self::PathOfGroup];
}

/// The color and the key of a rank in a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitKey {
    /// Ranks of one color form a group; a rank without a color joins none. Less than 2^31.
    pub color: Option<u32>,
    /// Orders the ranks of a group; equal keys by rank.
    pub key: i32,
}

impl SplitKey {
    /// Returns the two words of a record that hold color and key.
    pub(crate) fn words(self) -> [u64; 2] {
        [u64::from(self.color.map_or(0, |color| color + 1)), u64::from(self.key as u32)]
    }

    /// Reads the color and the key of another rank.
    pub(crate) fn of_words([color, key]: [u64; 2]) -> Self {
        Self { color: (color as u32).checked_sub(1), key: key as u32 as i32 }
    }
}

/// A call, as every rank must make it.
#[derive(Debug, Clone)]
pub struct Call {
    /// The collective.
    pub collective: &'static Collective,
    /// The root; 0 if the collective has none.
    pub root: u32,
    /// The algorithm: a name, followed by `#` and a hash of the schedule if the user wrote it.
    pub algorithm: String,
    /// The dtype of the elements.
    pub dtype: DType,
    /// The op of a reduction.
    pub op: Op,
    /// The number of elements of each part.
    pub counts: Counts,
    /// The path by which ranks reach each other's data.
    pub path: Path,
    /// Whether the user left the path to nvcoll, and ranks agree on it in the call. Then calls that differ in path alone are alike.
    pub is_path_agreed: bool,
    /// Whether input and output are the same memory.
    pub aliasing: Aliasing,
    /// The purpose of the call.
    pub purpose: CallPurpose,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        (self.key(), self.path) == (other.key(), other.path) && self.algorithm == other.algorithm
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.key(), self.path).hash(state);
        self.algorithm.hash(state);
    }
}

impl Call {
    /// Returns the call of a collective that has no data.
    pub fn without_data(collective: &'static Collective) -> Self {
        Self {
            collective,
            root: 0,
            algorithm: "auto".into(),
            dtype: DType::F32,
            op: Op::Sum,
            counts: Counts::Even(0),
            path: Path::Mapped,
            is_path_agreed: false,
            aliasing: Aliasing::Disjoint,
            purpose: CallPurpose::Itself,
        }
    }

    /// Returns a barrier in whose records ranks tell each other two words, for this purpose.
    pub(crate) fn of_words(purpose: CallPurpose) -> Self {
        Self { purpose, ..Self::without_data(&BARRIER) }
    }

    /// Returns all parts but the path and the algorithm.
    fn key(&self) -> (&str, u32, DType, Op, &Counts, bool, Aliasing, CallPurpose) {
        let Self { collective, root, dtype, op, counts, is_path_agreed, aliasing, purpose, .. } = self;
        (collective.name, *root, *dtype, *op, counts, *is_path_agreed, *aliasing, *purpose)
    }

    /// Returns the path on which ranks must be alike; `None` if they agree on it in the call.
    fn fixed_path(&self) -> Option<Path> {
        (!self.is_path_agreed).then_some(self.path)
    }

    /// Returns the roles in a world of `world_size` ranks.
    pub fn roles(&self, world_size: u32) -> Roles {
        Roles { world_size, root: self.root }
    }

    /// Returns advice for the error message, if this call and that of another rank differ in the lengths of their
    /// parts.
    pub(crate) fn advice_beside(&self, other: &Self) -> &'static str {
        let is_all_to_all = |call: &Self| match call.purpose {
            CallPurpose::Itself => call.collective == &ALL_TO_ALL,
            CallPurpose::Split | CallPurpose::PathOfGroup => false,
            CallPurpose::RowsOfCounts => true,
        };
        if self.purpose != other.purpose {
            let is_same = is_all_to_all(self) && is_all_to_all(other);
            return if is_same { ", with a row of `counts` on every rank or on none" } else { "" };
        }
        let have_parts = self.collective == other.collective && !self.collective.folds() && self.collective.has_parts();
        match (&self.counts, &other.counts) {
            (Counts::Even(a), Counts::Even(b)) if have_parts && a != b => {
                "; where parts differ in length, every rank passes the same `counts=`"
            }
            (Counts::Even(_), Counts::Table(_)) | (Counts::Table(_), Counts::Even(_)) if have_parts => {
                ", with the same `counts=` or none"
            }
            _ => "",
        }
    }

    /// Says how this call and that of another rank differ, if both read alike.
    pub(crate) fn difference(&self, other: &Self) -> String {
        match (&self.counts, &other.counts) {
            (Counts::Table(own), Counts::Table(others)) if own != others => {
                let at = own.iter().zip(others.iter()).take_while(|(a, b)| a == b).count();
                if at + 1 >= COUNTS {
                    return format!(": their tables differ after part {}", COUNTS - 2);
                }
                format!(": their tables differ first in part {at}, {} and {} elements", own[at], others[at])
            }
            _ if self.algorithm != other.algorithm && self.algorithm_words() == other.algorithm_words() => {
                format!(": two algorithms are called {}, and their steps differ", self.algorithm_words())
            }
            _ => String::new(),
        }
    }

    /// Returns the algorithm as its user names it, without the hash of the schedule.
    fn algorithm_words(&self) -> &str {
        self.algorithm.split_once('#').map_or(&self.algorithm, |(name, _)| name)
    }

    /// Returns the call as three words: a fingerprint, the parts that are small numbers, and the count.
    pub fn fingerprint(&self) -> [u64; 3] {
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        (self.key(), self.fixed_path(), &self.algorithm).hash(&mut hasher);
        let collective = self.collective.kind;
        // An algorithm with parameters is registered under what comes before them.
        let base = self.algorithm.split_once('(').map_or(&*self.algorithm, |(base, _)| base);
        let registered = algorithm::of(self.collective).position(|a| a.name == base);
        let algorithm = if self.algorithm == "auto" { AUTO } else { registered.map_or(OWN, |at| at as u8) };
        let [dtype, op, path] = [self.dtype as u8, self.op as u8, self.fixed_path().map_or(AGREED, |path| path as u8)];
        let (count, by_table) = match &self.counts {
            Counts::Even(count) => (*count, 0),
            Counts::Table(counts) => (counts.iter().sum(), BY_TABLE),
        };
        let [root_low, root_high] = (self.root as u16).to_le_bytes();
        let aliasing = self.aliasing as u8 | by_table | (self.purpose as u8) << PURPOSE_SHIFT;
        let small = [collective as u8, dtype, op, path, aliasing, algorithm, root_low, root_high];
        [hasher.finish(), u64::from_le_bytes(small), count as u64]
    }

    /// Reads a call from the words of another rank. They lack a user's algorithm, which is in the fingerprint only,
    /// and of a table of counts they hold the sum.
    pub(crate) fn from_record(record: &Record) -> Self {
        let [collective, dtype, op, path, aliasing, algorithm, root_low, root_high] = record[1].to_le_bytes();
        let pick = |index: u8, length: usize| usize::from(index).min(length - 1);
        let collective = COLLECTIVES[pick(collective, COLLECTIVES.len())];
        let name = match algorithm {
            AUTO => "auto",
            at => algorithm::of(collective).nth(at.into()).map_or("an algorithm of its own", |a| a.name),
        };
        let count = record[2] as usize;
        let is_by_table = aliasing & BY_TABLE != 0;
        let purpose = (aliasing & !BY_TABLE) >> PURPOSE_SHIFT;
        let aliasing = aliasing & !(u8::MAX << PURPOSE_SHIFT);
        Self {
            collective,
            root: u16::from_le_bytes([root_low, root_high]).into(),
            algorithm: name.into(),
            dtype: DType::ALL[pick(dtype, DType::ALL.len())],
            op: Op::ALL[pick(op, Op::ALL.len())],
            counts: if is_by_table { Counts::Table([count].into()) } else { Counts::Even(count) },
            path: Path::ALL[pick(path, Path::ALL.len())],
            is_path_agreed: path == AGREED,
            aliasing: Aliasing::ALL[pick(aliasing, Aliasing::ALL.len())],
            purpose: CallPurpose::ALL[pick(purpose, CallPurpose::ALL.len())],
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { collective, root, dtype, op, counts, path, is_path_agreed, aliasing, purpose, .. } = self;
        match purpose {
            CallPurpose::Itself => {}
            CallPurpose::Split => return f.write_str("split"),
            CallPurpose::PathOfGroup => return f.write_str("group"),
            CallPurpose::RowsOfCounts => return f.write_str("all_to_all with a row of counts"),
        }
        if collective.is_without_data() {
            return f.write_str(collective.name);
        }
        match counts {
            Counts::Even(count) => write!(f, "{} of {count} {dtype}", collective.name)?,
            Counts::Table(table) => {
                // Words of another process may be scribbled on.
                let sum = table.iter().fold(0_usize, |sum, &count| sum.saturating_add(count));
                write!(f, "{} of {sum} {dtype} by a table of counts", collective.name)?
            }
        }
        if collective.has_root {
            write!(f, ", root {root}")?;
        }
        if collective.folds() {
            write!(f, ", {op}")?;
        }
        write!(f, ", {}", aliasing.words())?;
        if !is_path_agreed {
            write!(f, ", {}", path.name())?;
        }
        match self.algorithm_words() {
            "" => Ok(()),
            algorithm => write!(f, ", {algorithm}"),
        }
    }
}

/// A call and its position in its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedCall {
    /// The call.
    pub call: Box<Call>,
    /// The position, from 0, and the number of calls.
    pub place: (usize, usize),
}

impl From<Call> for PositionedCall {
    fn from(call: Call) -> Self {
        Self { call: call.into(), place: (0, 1) }
    }
}

impl std::fmt::Display for PositionedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.call)?;
        match self.place {
            (_, 1) => Ok(()),
            (nth, of) => write!(f, " (call {} of {of} in a group)", nth + 1),
        }
    }
}
