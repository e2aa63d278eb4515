//! Parameters of registered algorithms: their declaration, their arguments and the spelling of both in a name.
//!
//! ```text
//! two_level                                       no arguments: every parameter has its default
//! two_level(per_node=4,outer=halving_doubling)    the canonical spelling: declared order, no defaults, no blanks
//! ```
//!
//! A caller may write blanks, defaults and any order. Two names are the same algorithm if their canonical spellings are equal.
//! The registry lists an algorithm under its name. It lists the algorithm again with an argument if tests and tables should
//! include that program too. Algorithms written in Python declare their own parameters (`nvcoll/authoring/parameters.py`).

/// The values that a parameter accepts.
#[derive(Debug, Clone, Copy)]
pub enum ParameterValues {
    /// A whole number from 1; the text describes the default.
    Whole(&'static str),
    /// One of these words; the first is the default.
    OneOf(&'static [&'static str]),
}

/// A parameter that an algorithm declares.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: &'static str,
    /// The values that it accepts.
    pub values: ParameterValues,
    /// A short description.
    pub summary: &'static str,
}

impl Parameter {
    /// Returns the default, in words.
    pub fn default(&self) -> &'static str {
        match self.values {
            ParameterValues::Whole(default) => default,
            ParameterValues::OneOf(words) => words[0],
        }
    }

    /// Returns the accepted values, in words.
    pub fn choices(&self) -> String {
        match self.values {
            ParameterValues::Whole(_) => "a whole number from 1".to_owned(),
            ParameterValues::OneOf(words) => words.join(" or "),
        }
    }

    pub(super) fn read(&self, text: &str) -> Option<ArgumentValue> {
        match self.values {
            ParameterValues::Whole(_) => text.parse().ok().filter(|&number| number > 0).map(ArgumentValue::Whole),
            ParameterValues::OneOf(words) => {
                words.iter().find(|word| **word == text).map(|word| ArgumentValue::Word(word))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentValue {
    Whole(u32),
    Word(&'static str),
}

/// The arguments of an algorithm that differ from the defaults, in declared order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arguments(pub(super) Vec<(&'static str, ArgumentValue)>);

impl Arguments {
    /// Returns the whole number that a parameter was given, if it was given one.
    pub(super) fn whole(&self, parameter: &str) -> Option<u32> {
        self.0.iter().find_map(|&(name, value)| match value {
            ArgumentValue::Whole(number) if name == parameter => Some(number),
            _ => None,
        })
    }

    /// Returns the word that a parameter was given, if it is not the default.
    pub(super) fn word(&self, parameter: &str) -> Option<&'static str> {
        self.0.iter().find_map(|&(name, value)| match value {
            ArgumentValue::Word(word) if name == parameter => Some(word),
            _ => None,
        })
    }
}
