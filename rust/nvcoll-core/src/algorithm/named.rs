//! The name of an algorithm with its arguments, such as `two_level(per_node=4)`, read and spelled.

use super::parameters::{ArgumentValue, Arguments, Parameter};
use super::registry::of;
use super::row::{Algorithm, Build};
use crate::builder::Builder;
use crate::collective::Collective;
use crate::error::{Error, Result};

/// An algorithm and its arguments, as a name such as `two_level(per_node=4)` spells them.
#[derive(Clone)]
pub struct NamedAlgorithm {
    algorithm: &'static Algorithm,
    arguments: Arguments,
}

impl NamedAlgorithm {
    /// Parses a name. `auto` is the first algorithm of the collective, because no size is known here.
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the known names. [`Error::Parameter`] if the algorithm has no such parameter, or the parameter
    /// does not accept the value.
    pub fn read(collective: &'static Collective, name: &str) -> Result<Self> {
        let (base, given) = match name.split_once('(') {
            Some((base, rest)) => (base.trim(), Some(rest)),
            None => (name, None),
        };
        let mut all = of(collective);
        let found = if base == "auto" { all.next() } else { all.find(|a| a.name == base) };
        let algorithm = found.ok_or_else(|| Error::Unknown {
            kind: format!("{} algorithm", collective.name),
            name: name.into(),
            known: of(collective).map(|a| a.name).collect::<Vec<_>>().join(", "),
        })?;
        let Some(given) = given else { return Ok(Self { algorithm, arguments: Arguments::default() }) };
        let wrong = || Error::Parameter(format!("`{name}` cannot be read: write {base}(name=value, ..)"));
        let given = given.trim_end().strip_suffix(')').ok_or_else(wrong)?;
        let mut values = vec![None; algorithm.parameters().len()];
        for argument in given.split(',').filter(|_| !given.trim().is_empty()) {
            let (parameter, value) = argument.split_once('=').ok_or_else(wrong)?;
            let at = algorithm.position_of(parameter.trim())?;
            let declared = &algorithm.parameters()[at];
            let read = declared.read(value.trim()).ok_or_else(|| {
                let (name, found, choices) = (declared.name, value.trim(), declared.choices());
                Error::Parameter(format!("`{name}` of {base} is {found}: it must be {choices}"))
            })?;
            if values[at].replace(read).is_some() {
                return Err(wrong());
            }
        }
        let is_said = |parameter: &Parameter, value| value != ArgumentValue::Word(parameter.default());
        let arguments = algorithm.parameters().iter().zip(values).filter_map(|(parameter, value)| {
            value.filter(|&value| is_said(parameter, value)).map(|value| (parameter.name, value))
        });
        Ok(Self { algorithm, arguments: Arguments(arguments.collect()) })
    }

    /// Returns the canonical spelling.
    pub fn name(&self) -> String {
        let spelled = |(name, value): &(&str, ArgumentValue)| match value {
            ArgumentValue::Whole(number) => format!("{name}={number}"),
            ArgumentValue::Word(word) => format!("{name}={word}"),
        };
        match &self.arguments.0[..] {
            [] => self.algorithm.name.to_owned(),
            given => format!("{}({})", self.algorithm.name, given.iter().map(spelled).collect::<Vec<_>>().join(",")),
        }
    }

    /// Returns the parameters that the algorithm declares.
    pub fn parameters(&self) -> &'static [Parameter] {
        self.algorithm.parameters()
    }

    /// Writes the steps of the algorithm.
    pub(crate) fn write(&self, builder: &mut Builder) {
        match self.algorithm.build {
            Build::Plain(build) => build(builder),
            Build::With(_, build) => build(builder, &self.arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::ALGORITHMS;
    use crate::collective::ALL_REDUCE;

    #[test]
    fn every_name_of_the_registry_is_spelled_as_it_is_read() {
        for algorithm in ALGORITHMS {
            assert_eq!(NamedAlgorithm::read(algorithm.collective, algorithm.name).unwrap().name(), algorithm.name);
        }
    }

    #[test]
    fn blanks_order_and_defaults_make_no_other_name() {
        for (given, name) in [
            ("two_level()", "two_level"),
            ("two_level(outer=ring)", "two_level"),
            ("two_level( per_node = 4 )", "two_level(per_node=4)"),
            ("two_level(outer=halving_doubling, per_node=4)", "two_level(per_node=4,outer=halving_doubling)"),
            ("ring()", "ring"),
        ] {
            assert_eq!(NamedAlgorithm::read(&ALL_REDUCE, given).unwrap().name(), name);
        }
    }

    #[test]
    fn a_name_that_cannot_be_parsed_is_refused_with_the_accepted_values() {
        for (given, expected) in [
            ("two_levels(per_node=4)", "no all_reduce algorithm is called `two_levels(per_node=4)`"),
            ("ring(per_node=4)", "ring has no parameter `per_node`: it takes none"),
            ("two_level(nodes=4)", "no parameter `nodes`: it takes per_node, outer"),
            ("two_level(per_node=0)", "`per_node` of two_level is 0: it must be a whole number from 1"),
            ("two_level(outer=tree)", "`outer` of two_level is tree: it must be ring or halving_doubling"),
            ("two_level(per_node=4", "cannot be read"),
            ("two_level(per_node)", "cannot be read"),
            ("two_level(per_node=4,per_node=4)", "cannot be read"),
            ("two_level(per_node=4,)", "cannot be read"),
        ] {
            let refused = NamedAlgorithm::read(&ALL_REDUCE, given).err().unwrap().to_string();
            assert!(refused.contains(expected), "`{refused}` does not say `{expected}`");
        }
    }
}
