//! What can go wrong between a description of hardware and a time. Each variant is one Python exception.
//!
//! Names that the caller gave are shortened in messages, and the nearest known name is offered where one is close.

use std::borrow::Cow;

/// An error of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that no table knows.
    #[error("no {kind} is called `{}`: {}choose from {known}", shortened(name), suggestion(name, known))]
    Unknown {
        /// What kind of thing was named.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A description that is no fabric.
    #[error("{}: {}", shortened(origin), bounded(message))]
    Description {
        /// The file or text.
        origin: String,
        /// What was found and expected.
        message: String,
    },
    /// Two devices between which nothing passes.
    #[error("{}: no path from {} to {}: {reason}", shortened(fabric), shortened(from), shortened(to))]
    NoPath {
        /// The fabric.
        fabric: String,
        /// Where it should begin.
        from: String,
        /// Where it should end.
        to: String,
        /// Why there is none.
        reason: String,
    },
    /// A schedule that asks for what the fabric cannot do.
    #[error("{}: {}", shortened(fabric), bounded(message))]
    Unable {
        /// The fabric.
        fabric: String,
        /// What was asked, and what there is instead.
        message: String,
    },
    /// A setting of NCCL with a value that cannot be honoured.
    #[error("{variable}: {}", bounded(message))]
    Setting {
        /// The variable of the environment.
        variable: &'static str,
        /// What was found, and what to pass.
        message: String,
    },
    /// A schedule that cannot run anywhere: the verifier refuses it too.
    #[error("{schedule} cannot run: {message}")]
    Schedule {
        /// What it is called.
        schedule: String,
        /// What was found.
        message: String,
    },
    /// Its caller stopped it.
    #[error("it was interrupted")]
    Interrupted,
}

impl Error {
    /// Returns the error about what the caller calls it.
    pub(crate) fn called(self, called: &str) -> Self {
        match self {
            Error::Unknown { kind, known, .. } => Error::Unknown { kind, name: called.to_owned(), known },
            Error::Description { message, .. } => Error::Description { origin: called.to_owned(), message },
            other => other,
        }
    }
}

/// The result of anything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A message shows no more letters of a name. Chosen: longer than any name that nvcoll gives.
const SHOWN: usize = 80;

/// The most letters of a message. Chosen: some screens; messages that nvcoll writes about names of usual lengths have fewer.
const LONGEST: usize = 4000;

/// Returns a name as messages show it: cut off where it is too long.
pub(crate) fn shortened(name: &str) -> Cow<'_, str> {
    cut_off(name, SHOWN)
}

/// Returns a message, cut off where names of the caller make it too long.
fn bounded(message: &str) -> Cow<'_, str> {
    cut_off(message, LONGEST)
}

fn cut_off(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}… ({} letters)", &text[..end], text.chars().count()).into(),
        None => text.into(),
    }
}

/// Says which of the known names may be meant: one that is at most a third of its letters away.
fn suggestion(name: &str, known: &str) -> String {
    let wanted = name.to_ascii_lowercase();
    let nearest = known.split(", ").map(|known| (edits(&wanted, &known.to_ascii_lowercase()), known)).min();
    let is_near = |(edits, known): &(usize, &str)| *edits > 0 && 3 * edits <= known.len();
    nearest.filter(is_near).map_or_else(String::new, |(_, known)| format!("did you mean {known}? "))
}

/// Returns the number of letters to insert, remove or replace to get from one word to the other (Levenshtein, 1965). A
/// word that is too long for any name is as far away as it can be: the work grows with the product of the lengths.
pub(crate) fn edits(from: &str, to: &str) -> usize {
    if from.len() > SHOWN || to.len() > SHOWN {
        return usize::MAX / 4;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, a) in from.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], at + 1);
        for (column, b) in to.bytes().enumerate() {
            let least = (corner + usize::from(a != b)).min(row[column] + 1).min(row[column + 1] + 1);
            corner = std::mem::replace(&mut row[column + 1], least);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::{edits, Error};

    #[test]
    fn a_name_that_is_close_is_offered_and_a_long_one_is_cut_off() {
        let unknown =
            |name: &str| Error::Unknown { kind: "GPU", name: name.to_owned(), known: "t4, rtx4090".to_owned() };
        let near = "no GPU is called `rtx409`: did you mean rtx4090? choose from t4, rtx4090";
        assert_eq!(unknown("rtx409").to_string(), near);
        assert_eq!(unknown("voodoo").to_string(), "no GPU is called `voodoo`: choose from t4, rtx4090");
        let long = unknown(&"r".repeat(1_000_000)).to_string();
        assert!(long.len() < 200 && long.contains("(1000000 letters)"), "{long}");
        let (origin, message) = ("text".to_owned(), format!("no medium is called `{}`", "m".repeat(4 << 20)));
        let long = Error::Description { origin, message }.to_string();
        assert!(long.len() < 5000 && long.ends_with("letters)"), "{}", long.len());
        assert_eq!((edits("rtx409", "rtx4090"), edits("", "t4")), (1, 2));
    }
}
