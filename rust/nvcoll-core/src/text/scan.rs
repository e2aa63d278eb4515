//! A cursor over one line of text. It takes the expected token, or returns an error with the found token and the line.

use crate::error::{Error, Result};

/// The unread rest of a line.
pub(super) struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of line number `line`, without its comment.
    pub(super) fn new(text: &'a str, line: usize) -> Self {
        let code = text.split('#').next().unwrap_or_default();
        Self { rest: code.trim(), line }
    }

    /// Skips blanks, and says whether the line ends there.
    pub(super) fn is_done(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// Skips blanks, if there are any.
    pub(super) fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Skips blanks, and requires at least one unless the line ends.
    pub(super) fn pass_blank(&mut self) -> Result<()> {
        if self.rest.starts_with(|c: char| !c.is_whitespace()) {
            return Err(self.found("a blank"));
        }
        self.skip_blanks();
        Ok(())
    }

    /// Takes `literal` if it is next.
    pub(super) fn take(&mut self, literal: &str) -> bool {
        self.rest.strip_prefix(literal).map(|rest| self.rest = rest).is_some()
    }

    /// Takes blanks and `literal` if they are next; otherwise takes nothing.
    pub(super) fn take_past_blanks(&mut self, literal: &str) -> bool {
        self.rest.trim_start().strip_prefix(literal).map(|rest| self.rest = rest).is_some()
    }

    /// Says whether `literal` is next.
    pub(super) fn is_next(&self, literal: &str) -> bool {
        self.rest.starts_with(literal)
    }

    /// Takes `literal`, which must be next.
    pub(super) fn expect(&mut self, literal: &str, what: &str) -> Result<()> {
        if self.take(literal) {
            Ok(())
        } else {
            Err(self.found(what))
        }
    }

    /// Takes the characters up to the next blank; none at the end of the line.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let (word, rest) = self.rest.split_at(self.rest.find(char::is_whitespace).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// Takes a number of at most 32 bits.
    pub(super) fn number(&mut self, what: &str) -> Result<u32> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let number = self.rest[..digits].parse().map_err(|_| self.found(what))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    /// Takes `prefix` and the number directly after it.
    pub(super) fn numbered(&mut self, prefix: &str, what: &str) -> Result<u32> {
        self.expect(prefix, what)?;
        self.number(what)
    }

    /// Returns the error that the next word is not the expected `what`.
    pub(super) fn found(&self, what: &str) -> Error {
        match self.rest.split_whitespace().next() {
            Some(word) => self.error(format!("found `{}`, expected {what}", shortened(word))),
            None => self.error(format!("the line ends, expected {what}")),
        }
    }

    /// Returns an error on this line.
    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::Text { line: self.line, message: message.into() }
    }
}

/// Returns a word, shortened for an error message.
pub(super) fn shortened(word: &str) -> String {
    const LONGEST: usize = 40; // Chosen: any view fits.
    match word.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}
