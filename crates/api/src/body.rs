//! The body of a step: what its tasks run. It is opaque bytes to the core, and this JSON to servers and workers.

use crate::chunk_range::ChunkRange;
use crate::files::StepFiles;
use crate::session::{Session, TaskValue};
use crate::space::Space;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// Most bytes of a step's body that a worker gets, as JSON: all but the values of tasks. Every later limit on its way
/// is larger: a body between two limits would be requested, and refused, for ever.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Most bytes of one value of a task: the kernel takes no longer argument.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// The command of a step with the values of its tasks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepBody {
    /// Program and arguments, with replacement strings; no shell is involved.
    pub command: Vec<String>,
    /// The complete environment of the tasks.
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute or inside the session's.
    pub cwd: String,
    /// The umask of the tasks; `None` is that of their worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// The values of the tasks.
    pub params: Params,
    /// How many tasks in a row have the same value, because they start together.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// One process may run several tasks: its value is all of theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<ChunkedBody>,
    /// The session that a worker sets up once. With it, texts hold references instead of replacement strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The fields of a Compass CI job, for the host that runs it; then the command is only its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compass: Option<serde_json::Map<String, serde_json::Value>>,
    /// The files of its tasks. The working directory is then one inside the task's own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<StepFiles>,
}

impl Default for StepBody {
    fn default() -> Self {
        StepBody {
            command: Vec::new(),
            env: BTreeMap::new(),
            cwd: String::new(),
            umask: None,
            params: Params::None,
            nodes: 1,
            chunks: None,
            session: None,
            compass: None,
            files: None,
        }
    }
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

impl StepBody {
    /// Bytes of the part that a worker gets, as JSON.
    pub fn sent_bytes(&self) -> usize {
        let StepBody { command, env, cwd, umask, params: _, nodes: _, chunks: _, session, compass, files } =
            self;
        let mut count = Count(0);
        let sent = serde_json::to_writer(&mut count, &(command, env, cwd, umask, session, compass, files));
        sent.expect("strings and maps always serialize");
        count.0
    }

    /// The value of the task with this index in its step, as a text.
    pub fn value(&self, place: u32) -> Option<Cow<'_, str>> {
        self.params.value(place / self.nodes.max(1))
    }

    /// The values of a process that runs the tasks with these indexes in their step, in order: all in one text, the
    /// named ones, and each by itself where each is an argument of its own.
    pub fn chunk_values(&self, head: u32, others: &[u32]) -> ChunkValues {
        let mut values = ChunkValues {
            value: self.value(head).map(Cow::into_owned),
            params: self.task_values(head),
            each: Vec::new(),
        };
        let Some(chunks) = &self.chunks else { return values };
        let all = || std::iter::once(head).chain(others.iter().copied());
        match &self.params {
            Params::Values(_) => {
                values.each = all().filter_map(|place| Some(self.value(place)?.into_owned())).collect();
            }
            Params::Space(space) => {
                let name = chunks.param.as_deref().unwrap_or_default();
                let number = |place: u32| {
                    let values = space.values(place).into_iter();
                    values.filter(|(param, _)| param.name == name).find_map(|(_, value)| value.parse().ok())
                };
                let range = range_expression(all().filter_map(number), chunks.range);
                if let Some(own) = values.params.iter_mut().find(|value| value.name == name) {
                    own.value = range;
                }
            }
            _ => {
                let numbers = all().filter_map(|place| self.value(place)?.parse().ok());
                values.value = Some(range_expression(numbers, chunks.range));
            }
        }
        values
    }

    /// The named values of the task with this index in its step; empty without a parameter space.
    pub fn task_values(&self, place: u32) -> Vec<TaskValue> {
        let Params::Space(space) = &self.params else { return Vec::new() };
        let values = space.values(place / self.nodes.max(1)).into_iter().map(|(param, raw)| {
            let name = param.name.clone();
            let mapped = self.session.as_ref().filter(|_| param.path).map(|session| session.map_path(&raw));
            match mapped.map(Cow::into_owned).filter(|mapped| *mapped != raw) {
                Some(value) => TaskValue { name, value, raw: Some(raw) },
                None => TaskValue { name, value: raw, raw: None },
            }
        });
        values.collect()
    }
}

/// The values that one process of a step with chunks gets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChunkedBody {
    /// The parameter of a space that has several values in one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// How numbers are written. Steps that were submitted without it have `1-10`, `1-9:2` and `5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<ChunkRange>,
}

/// The values of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChunkValues {
    /// The values as one text.
    pub value: Option<String>,
    /// The values by parameter name.
    pub params: Vec<TaskValue>,
    /// Each by itself; empty where they are one text.
    pub each: Vec<String>,
}

/// Rising numbers as ranges of Open Job Description: `1-10`, `1-9:2`, `1,5,7-9`. Contiguous ones are `1-10` and `5-5`.
/// Noncontiguous ones are written as its programs write them, with `7,8` for two numbers.
pub fn range_expression(numbers: impl IntoIterator<Item = i64>, range: Option<ChunkRange>) -> String {
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let is_contiguous = range == Some(ChunkRange::Contiguous);
    let is_noncontiguous = range == Some(ChunkRange::Noncontiguous);
    let mut parts: Vec<String> = Vec::new();
    let mut rest = &numbers[..];
    while let Some(first) = rest.first() {
        let second = rest.get(1).filter(|_| !is_contiguous);
        let step = second.map_or(1, |second| second.wrapping_sub(*first));
        let mut length = 1;
        while rest.get(length).is_some_and(|next| next.wrapping_sub(rest[length - 1]) == step) {
            length += 1;
        }
        // Two numbers with a gap are no range of their own: the second may begin one.
        if length == 2 && step != 1 && !is_noncontiguous {
            length = 1;
        }
        let last = rest[length - 1];
        parts.push(match (length, step) {
            (1, _) if !is_contiguous => first.to_string(),
            (2, _) if is_noncontiguous => format!("{first},{last}"),
            (_, 1) => format!("{first}-{last}"),
            _ => format!("{first}-{last}:{step}"),
        });
        rest = &rest[length..];
    }
    parts.join(",")
}

/// Counts what is written.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The values of the tasks of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Params {
    /// The step has one task.
    #[default]
    None,
    /// `start + i * step` for task i.
    Range {
        /// The value of the first task.
        start: i64,
        /// The difference from one task to the next.
        step: i64,
    },
    /// One value for each task.
    Values(Vec<String>),
    /// The cells of a parameter space.
    Space(Space),
}

impl Params {
    /// The value of the task with this index in its step; for a space, such as `Frame=3 Eye=left`.
    pub fn value(&self, place: u32) -> Option<Cow<'_, str>> {
        match self {
            Params::None => None,
            Params::Range { start, step } => Some((start + i64::from(place) * step).to_string().into()),
            Params::Values(values) => values.get(place as usize).map(|v| Cow::Borrowed(v.as_str())),
            Params::Space(space) => {
                let each =
                    space.values(place).into_iter().map(|(param, value)| format!("{}={value}", param.name));
                Some(each.collect::<Vec<_>>().join(" ").into())
            }
        }
    }
}

/// Replaces GNU parallel's replacement strings: `{}` is the value, `{.}` the value without its extension, `{/}` its
/// base name, `{//}` its directory, `{/.}` its base name without extension.
pub fn fill_in(argument: &str, value: &str) -> String {
    let path = Path::new(value);
    let base = path.file_name().map_or(value, |name| name.to_str().unwrap_or(value));
    let mut rest = argument;
    let mut filled = String::with_capacity(argument.len() + value.len());
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let replacements: [(&str, Cow<'_, str>); 5] = [
            ("{}", value.into()),
            ("{.}", without_extension(value).into()),
            ("{/}", base.into()),
            (
                "{//}",
                path.parent().map_or(".", |p| p.to_str().filter(|p| !p.is_empty()).unwrap_or(".")).into(),
            ),
            ("{/.}", without_extension(base).into()),
        ];
        match replacements.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, with)) => {
                filled.push_str(with);
                rest = &rest[name.len()..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Up to the last dot of the last component; a name that starts with its only dot has no extension.
fn without_extension(value: &str) -> &str {
    let name_at = value.rfind('/').map_or(0, |slash| slash + 1);
    match value[name_at..].rfind('.') {
        Some(dot) if dot > 0 => &value[..name_at + dot],
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replacement_strings_are_those_of_gnu_parallel() {
        let all = "{}|{.}|{/}|{//}|{/.}";
        assert_eq!(fill_in(all, "a/b.tar.gz"), "a/b.tar.gz|a/b.tar|b.tar.gz|a|b.tar");
        assert_eq!(fill_in(all, "plain"), "plain|plain|plain|.|plain");
        assert_eq!(fill_in(all, "/x/.rc"), "/x/.rc|/x/.rc|.rc|/x|.rc");
        assert_eq!(fill_in(all, "d.x/f"), "d.x/f|d.x/f|f|d.x|f");
        assert_eq!(fill_in("-o{/.}.o {3} {", "s/m.c"), "-om.o {3} {");
    }

    #[test]
    fn numbers_are_ranges() {
        for (numbers, text) in [
            (vec![], ""),
            (vec![7], "7"),
            (vec![1, 2, 3], "1-3"),
            (vec![1, 3, 5, 7], "1-7:2"),
            (vec![1, 5, 7, 8, 9], "1,5,7-9"),
            (vec![5, 4, 3], "5-3:-1"),
            (vec![-2, -1, 0], "-2-0"),
        ] {
            assert_eq!(range_expression(numbers, None), text);
        }
        for (numbers, contiguous, noncontiguous) in [
            (vec![5], "5-5", "5"),
            (vec![9, 10], "9-10", "9,10"),
            (vec![1, 2, 3], "1-3", "1-3"),
            (vec![-2, -1], "-2--1", "-2,-1"),
            (vec![1, 3, 5, 6], "1-1,3-3,5-6", "1-5:2,6"),
            (vec![4, 8, 9, 10], "4-4,8-10", "4,8,9,10"),
        ] {
            assert_eq!(range_expression(numbers.clone(), Some(ChunkRange::Contiguous)), contiguous);
            assert_eq!(range_expression(numbers, Some(ChunkRange::Noncontiguous)), noncontiguous);
        }
    }

    #[test]
    fn a_chunk_has_the_values_of_all_its_tasks() {
        let chunks = Some(ChunkedBody::default());
        let body = StepBody {
            params: Params::Range { start: 10, step: 1 },
            chunks: chunks.clone(),
            ..StepBody::default()
        };
        assert_eq!(body.chunk_values(2, &[3, 4]).value.as_deref(), Some("12-14"));
        let values = Params::Values(["a", "b", "c"].map(str::to_owned).into());
        let body = StepBody { params: values, chunks, ..StepBody::default() };
        assert_eq!(body.chunk_values(1, &[2]).each, ["b", "c"]);
    }

    #[test]
    fn a_contiguous_chunk_of_one_number_is_a_range_and_older_steps_keep_their_form() {
        let of = |chunks: &str| {
            let space =
                r#"{"space": {"params": [{"name": "F", "values": {"ranges": [{"start": 4, "end": 6}]}}]}}"#;
            let body = format!(
                r#"{{"command": [], "env": {{}}, "cwd": "/", "params": {space}, "chunks": {chunks}}}"#
            );
            let body: StepBody = serde_json::from_str(&body).unwrap();
            body.chunk_values(1, &[]).params.remove(0).value
        };
        assert_eq!(of(r#"{"param": "F", "range": "contiguous"}"#), "5-5");
        assert_eq!(of(r#"{"param": "F"}"#), "5");
    }

    #[test]
    fn a_range_has_values() {
        let params = Params::Range { start: 10, step: 5 };
        assert_eq!(params.value(3).as_deref(), Some("25"));
        assert_eq!(Params::Values(vec!["a".into()]).value(1), None);
    }

    proptest! {
        #[test]
        fn text_without_braces_stays(text in "[^{]*", value in ".*") {
            prop_assert_eq!(fill_in(&text, &value), text);
        }

        #[test]
        fn a_value_is_not_filled_in_again(value in ".*") {
            prop_assert_eq!(fill_in("{}", &value), value);
        }
    }
}
