//! The tasks of a step as a space of named parameters. It is stored as it was written, in ranges, and the values of one
//! task are computed from its index. So a million tasks take a few bytes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Most parameters of one space.
pub const PARAMS_PER_SPACE_MAX: usize = 16;

/// The values of the tasks of a step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Param {
    /// A task for each number.
    Range(Range),
    /// A task for each value.
    Values(Vec<String>),
    /// A task for each cell of a parameter space.
    Space(Space),
}

/// Numbers from `start` to `end`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The first number of the range.
    pub start: i64,
    /// The upper end; the last number if the step meets it.
    pub end: i64,
    /// The difference from one number to the next, which may be negative; 1 by default.
    #[serde(default = "one")]
    pub step: i64,
}

fn one() -> i64 {
    1
}

impl Range {
    /// Number of numbers in the range; `None` if it is empty or the step is 0.
    pub fn count(&self) -> Option<u128> {
        let (start, end, step) = (i128::from(self.start), i128::from(self.end), i128::from(self.step));
        if step == 0 || (end - start) * step.signum() < 0 {
            return None;
        }
        Some(((end - start) / step) as u128 + 1)
    }
}

/// Named task parameters and how their values combine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The parameters, in the order in which they are shown.
    pub params: Vec<TaskParam>,
    /// How their values combine; by default each with each, the last parameter varying fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combination: Option<Combination>,
}

/// A named parameter of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskParam {
    /// The parameter's name: `{{Task.Param.NAME}}` stands for its value.
    pub name: String,
    /// Its values are paths: path mapping rules apply to `Task.Param`, and not to `Task.RawParam`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path: bool,
    /// The values that it takes.
    pub values: Values,
}

/// The values of a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// The numbers of these ranges, one range after the other.
    Ranges(Vec<Range>),
    /// A list of values.
    List(Vec<String>),
}

/// How the values of parameters combine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combination {
    /// The values of one parameter.
    Param(String),
    /// Each with each, the last varying fastest.
    Product(Vec<Combination>),
    /// The first with the first, the second with the second; all have equally many.
    Association(Vec<Combination>),
}

/// An object with one of three fields, which is the same as a choice of three objects. Generators of clients do not read
/// a choice of objects that contain the type itself.
impl PartialSchema for Combination {
    fn schema() -> RefOr<Schema> {
        let param = ObjectBuilder::new().schema_type(Type::String);
        let several = || ArrayBuilder::new().items(Ref::from_schema_name("Combination"));
        let product = several().description(Some("Each with each, the last varying fastest."));
        let association = several().description(Some(
            "The first with the first, the second with the second; all have equally many.",
        ));
        ObjectBuilder::new()
            .description(Some("How the values of parameters combine: one of these fields."))
            .property("param", param.description(Some("The values of one parameter.")))
            .property("product", product)
            .property("association", association)
            .min_properties(Some(1))
            .max_properties(Some(1))
            .into()
    }
}

impl ToSchema for Combination {}

/// The fault of a space.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("a parameter space has 1 to {PARAMS_PER_SPACE_MAX} parameters, not {0}")]
    BadSize(usize),
    #[error("the parameter name '{0}' is empty, given twice, or not an identifier")]
    BadName(String),
    #[error("the parameter '{0}' has no value, or an empty range")]
    NoValue(String),
    #[error("the combination names '{0}', which is not a parameter or is named twice")]
    Unknown(String),
    #[error("the combination leaves out the parameter '{0}'")]
    LeftOut(String),
    #[error("the parts of an association must have equally many values, not {0} and {1}")]
    Uneven(u128, u128),
}

impl Space {
    /// Number of tasks, saturating; refuses an invalid space.
    pub fn count(&self) -> Result<u128, SpaceError> {
        if !(1..=PARAMS_PER_SPACE_MAX).contains(&self.params.len()) {
            return Err(SpaceError::BadSize(self.params.len()));
        }
        let mut names = BTreeSet::new();
        for param in &self.params {
            if !is_identifier(&param.name) || !names.insert(param.name.as_str()) {
                return Err(SpaceError::BadName(param.name.clone()));
            }
            if param.values.count().is_none_or(|n| n == 0) {
                return Err(SpaceError::NoValue(param.name.clone()));
            }
        }
        let Some(combination) = &self.combination else {
            return Ok(self.params.iter().fold(1, |n, param| n.saturating_mul(param.values.len())));
        };
        let count = self.count_of(combination, &mut names)?;
        match names.first() {
            Some(left) => Err(SpaceError::LeftOut((*left).to_owned())),
            None => Ok(count),
        }
    }

    /// The values of the task with this index, in the order of the parameters. The space must be valid, and the index
    /// less than [`Space::count`].
    pub fn values(&self, place: u32) -> Vec<(&TaskParam, String)> {
        let mut places = vec![0; self.params.len()];
        match &self.combination {
            Some(combination) => self.locate(combination, u128::from(place), &mut places),
            None => {
                let mut rest = u128::from(place);
                for (param, place) in self.params.iter().zip(&mut places).rev() {
                    let n = param.values.len().max(1);
                    (*place, rest) = (rest % n, rest / n);
                }
            }
        }
        let all = self.params.iter().zip(places);
        all.map(|(param, place)| (param, param.values.get(place).unwrap_or_default())).collect()
    }

    /// The values of a parameter of whole numbers, and how many, if it varies fastest: tasks in a row then differ in
    /// nothing else.
    pub fn fastest(&self, name: &str) -> Option<(&Values, u32)> {
        let last = match &self.combination {
            None => self.params.last()?.name.as_str(),
            Some(Combination::Param(name)) => name.as_str(),
            Some(Combination::Product(parts)) => match parts.last()? {
                Combination::Param(name) => name.as_str(),
                _ => return None,
            },
            Some(Combination::Association(_)) => return None,
        };
        let values = &self.params.get(self.param(name)?)?.values;
        let whole = match values {
            Values::Ranges(_) => true,
            Values::List(list) => list.iter().all(|value| value.parse::<i64>().is_ok()),
        };
        let count = u32::try_from(values.len()).ok()?;
        (last == name && whole).then_some((values, count))
    }

    fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// Counts the values, and removes from `left` the parameters that are named.
    fn count_of(&self, node: &Combination, left: &mut BTreeSet<&str>) -> Result<u128, SpaceError> {
        match node {
            Combination::Param(name) => match self.param(name).filter(|_| left.remove(name.as_str())) {
                Some(at) => Ok(self.params[at].values.len()),
                None => Err(SpaceError::Unknown(name.clone())),
            },
            Combination::Product(parts) => {
                parts.iter().try_fold(1u128, |n, part| Ok(n.saturating_mul(self.count_of(part, left)?)))
            }
            Combination::Association(parts) => {
                let counts = parts.iter().map(|part| self.count_of(part, left));
                let counts = counts.collect::<Result<Vec<u128>, _>>()?;
                let first = *counts.first().ok_or(SpaceError::Uneven(0, 0))?;
                match counts.iter().find(|n| **n != first) {
                    Some(other) => Err(SpaceError::Uneven(first, *other)),
                    None => Ok(first),
                }
            }
        }
    }

    fn len_of(&self, node: &Combination) -> u128 {
        match node {
            Combination::Param(name) => self.param(name).map_or(1, |at| self.params[at].values.len()),
            Combination::Product(parts) => {
                parts.iter().fold(1, |n, part| n.saturating_mul(self.len_of(part)))
            }
            Combination::Association(parts) => parts.first().map_or(1, |part| self.len_of(part)),
        }
    }

    fn locate(&self, node: &Combination, mut place: u128, into: &mut [u128]) {
        match node {
            Combination::Param(name) => {
                if let Some(at) = self.param(name) {
                    into[at] = place;
                }
            }
            Combination::Product(parts) => {
                for part in parts.iter().rev() {
                    let n = self.len_of(part).max(1);
                    self.locate(part, place % n, into);
                    place /= n;
                }
            }
            Combination::Association(parts) => parts.iter().for_each(|part| self.locate(part, place, into)),
        }
    }
}

impl Values {
    /// Number of values; `None` if a range is empty.
    fn count(&self) -> Option<u128> {
        match self {
            Values::List(values) => Some(values.len() as u128),
            Values::Ranges(ranges) => {
                ranges.iter().try_fold(0u128, |n, range| Some(n.saturating_add(range.count()?)))
            }
        }
    }

    /// The values of a list; `None` for ranges.
    pub(crate) fn list(&self) -> Option<&Vec<String>> {
        match self {
            Values::List(values) => Some(values),
            Values::Ranges(_) => None,
        }
    }

    pub(crate) fn len(&self) -> u128 {
        self.count().unwrap_or(0)
    }

    fn get(&self, mut place: u128) -> Option<String> {
        match self {
            Values::List(values) => values.get(usize::try_from(place).ok()?).cloned(),
            Values::Ranges(ranges) => {
                for range in ranges {
                    let n = range.count()?;
                    if place < n {
                        let value = i128::from(range.start) + place as i128 * i128::from(range.step);
                        return Some(value.to_string());
                    }
                    place -= n;
                }
                None
            }
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Values::List(Vec::new())
    }
}

/// True for an identifier: a letter or `_`, then letters, digits and `_`.
pub fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str, values: &[&str]) -> TaskParam {
        let values = Values::List(values.iter().map(|v| (*v).to_owned()).collect());
        TaskParam { name: name.to_owned(), path: false, values }
    }

    fn frames(ranges: &[(i64, i64, i64)]) -> TaskParam {
        let ranges = ranges.iter().map(|&(start, end, step)| Range { start, end, step }).collect();
        TaskParam { name: "Frame".to_owned(), path: false, values: Values::Ranges(ranges) }
    }

    fn shown(space: &Space) -> Vec<String> {
        let n = u32::try_from(space.count().unwrap()).unwrap();
        let one = |i| space.values(i).iter().map(|(p, v)| format!("{}={v}", p.name)).collect::<Vec<_>>();
        (0..n).map(|i| one(i).join(" ")).collect()
    }

    #[test]
    fn the_last_parameter_moves_fastest() {
        let space = Space {
            params: vec![frames(&[(1, 2, 1), (9, 7, -2)]), param("Eye", &["l", "r"])],
            combination: None,
        };
        assert_eq!(
            shown(&space).join(", "),
            "Frame=1 Eye=l, Frame=1 Eye=r, Frame=2 Eye=l, Frame=2 Eye=r, Frame=9 Eye=l, Frame=9 Eye=r, \
             Frame=7 Eye=l, Frame=7 Eye=r"
        );
    }

    #[test]
    fn what_is_associated_moves_together() {
        let one = |name: &str| Combination::Param(name.to_owned());
        let pair = Combination::Association(vec![one("A"), one("B")]);
        let params = vec![param("A", &["1", "2"]), param("B", &["x", "y"]), param("C", &["-", "+"])];
        let space = Space { params, combination: Some(Combination::Product(vec![one("C"), pair])) };
        assert_eq!(shown(&space), ["A=1 B=x C=-", "A=2 B=y C=-", "A=1 B=x C=+", "A=2 B=y C=+"]);
    }

    #[test]
    fn a_space_that_makes_no_sense_is_refused() {
        let one = |name: &str| Combination::Param(name.to_owned());
        let of = |params: &[TaskParam], combination| Space { params: params.to_vec(), combination }.count();
        let (a, b) = (param("A", &["1"]), param("B", &["1", "2"]));
        assert_eq!(of(&[], None), Err(SpaceError::BadSize(0)));
        assert_eq!(of(&[a.clone(), a.clone()], None), Err(SpaceError::BadName("A".into())));
        assert_eq!(of(&[param("a b", &["1"])], None), Err(SpaceError::BadName("a b".into())));
        assert_eq!(of(&[frames(&[(1, 0, 1)])], None), Err(SpaceError::NoValue("Frame".into())));
        let two = [a, b];
        assert_eq!(of(&two, Some(one("A"))), Err(SpaceError::LeftOut("B".into())));
        assert_eq!(of(&two, Some(one("C"))), Err(SpaceError::Unknown("C".into())));
        let uneven = Combination::Association(vec![one("A"), one("B")]);
        assert_eq!(of(&two, Some(uneven)), Err(SpaceError::Uneven(1, 2)));
        let nothing = Combination::Association(Vec::new());
        assert_eq!(of(&two, Some(nothing)), Err(SpaceError::Uneven(0, 0)));
    }

    #[test]
    fn a_large_space_is_small() {
        let space = Space { params: vec![frames(&[(1, 1_000_000, 1)])], combination: None };
        assert_eq!(space.count(), Ok(1_000_000));
        assert_eq!(space.values(999_999)[0].1, "1000000");
        assert!(serde_json::to_string(&space).unwrap().len() < 100);
    }
}
