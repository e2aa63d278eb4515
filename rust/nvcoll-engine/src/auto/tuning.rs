//! The tuning table of a node: a file of the user, or the shipped table.

use std::path::Path;
use std::sync::Arc;

pub use super::tuning_table::{candidates, Tuning, FORMAT, SHIPPED};

use crate::error::{Error, Result};

/// The environment variable that names the default tuning file.
pub const VARIABLE: &str = "NVCOLL_TUNING";

/// Reads a table from a file.
///
/// # Errors
/// [`Error::Invalid`] names the file and its error.
pub fn read(file: &Path) -> Result<Arc<Tuning>> {
    let refuse = |problem: String| Error::Invalid(format!("{}: {problem}", file.display()));
    let text =
        std::fs::read_to_string(file).map_err(|error| refuse(format!("the tuning table cannot be read: {error}")))?;
    Tuning::parse(&text).map(Arc::new).map_err(|error| refuse(error.to_string()))
}

/// Reads the table that the environment names; without one, returns the shipped table.
///
/// # Errors
/// As [`read`].
pub fn of_environment() -> Result<Arc<Tuning>> {
    match std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) {
        Some(file) => read(Path::new(&file)),
        None => Ok(Tuning::shipped()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let file = std::env::temp_dir().join(format!("nvcoll-tuning-{}.toml", std::process::id()));
        let refused = |words: &str| {
            let message = read(&file).unwrap_err().to_string();
            assert!(message.contains(words) && message.contains("nvcoll-tuning"), "{message}");
        };
        refused("cannot be read");
        std::fs::write(&file, "format = 1").unwrap();
        refused("no text `format`");
        std::fs::write(&file, SHIPPED).unwrap();
        assert_eq!(read(&file).unwrap(), Tuning::shipped());
        std::fs::remove_file(&file).unwrap();
    }
}
