//! Sessions: what a step sets up once on a worker for all of its tasks there, in terms of the Open Job Description.
//! Commands, files and variables of such a step hold references, such as `{{Task.Param.Frame}}`, that the worker fills
//! in. `{{Brace}}` stands for a brace that would begin a reference otherwise.

use crate::space::{Space, is_identifier};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Most environments of one step.
pub const ENVIRONMENTS_MAX: usize = 64;
/// Most files of one step and its environments.
pub const FILES_MAX: usize = 256;
/// Most bytes of these files together: they travel with the step to its workers.
pub const FILES_BYTES_MAX: usize = 4 << 20;
/// Most path mapping rules of one step.
pub const RULES_MAX: usize = 256;
/// Most milliseconds from notification to kill.
pub const NOTIFY_MS_MAX: u64 = 600_000;

/// Environments and files that a step sets up once on a worker for all of its tasks there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Files that are written for each task, as `{{Task.File.NAME}}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<EmbeddedFile>,
    /// Environments, entered in this order before the first task and left in reverse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<Environment>,
    /// How a task is ended early; by default with a signal, and two seconds later by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    /// Where paths of other machines are on the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_mapping: Vec<PathRule>,
}

/// A file that is part of the job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedFile {
    /// The name in references.
    pub name: String,
    /// The name on disk; `name` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The file's text, with references.
    pub data: String,
    /// The file is executable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runnable: bool,
}

/// An environment, entered before tasks and left after them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// The environment's name, for people.
    pub name: String,
    /// Variables for tasks and for later environments, with references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Files that are written when the environment is entered, as `{{Env.File.NAME}}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<EmbeddedFile>,
    /// The command that enters it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_enter: Option<Action>,
    /// The command that leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exit: Option<Action>,
}

/// A command of an environment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Program and arguments, with references; no shell is involved.
    pub command: Vec<String>,
    /// Milliseconds that it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How it is ended early; by default like a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
}

/// How a process is ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cancel {
    /// The process is killed at once.
    Terminate,
    /// Notified by a signal and a file, and killed after this many milliseconds.
    NotifyThenTerminate(u64),
}

/// Where a path of another machine is on the workers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// How the source is written.
    #[serde(default)]
    pub source_format: PathFormat,
    /// The path on the other machine.
    pub source: String,
    /// The path on the workers.
    pub destination: String,
}

/// How a path is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum PathFormat {
    /// With slashes, as on Unix.
    #[default]
    Posix,
    /// With backslashes or slashes, and case-insensitive.
    Windows,
}

/// A named value of one task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskValue {
    /// Name of the task parameter.
    pub name: String,
    /// Its value, with path mapping rules applied.
    pub value: String,
    /// Its value as submitted, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// The fault of a session.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{what}: {is}, more than the limit of {max}")]
    TooMany { what: &'static str, is: usize, max: usize },
    #[error("the file name '{0}' is not a plain name, or is given twice")]
    BadFile(String),
    #[error("'{0}' cannot name an environment variable")]
    BadVariable(String),
    #[error("an action of the environment '{0}' has no command")]
    NoCommand(String),
    #[error("{place} refers to '{{{{{name}}}}}', which is not defined there")]
    Unknown { place: String, name: String },
    #[error("{0} holds a NUL byte")]
    Nul(String),
    #[error("the period from notification to kill is at most {NOTIFY_MS_MAX} ms, not {0}")]
    LongNotice(u64),
}

impl Session {
    /// Refuses a session that no worker could set up. `texts` are the step's own texts with the names of their places.
    pub fn check<'a>(
        &self,
        space: Option<&Space>,
        texts: impl Iterator<Item = (&'static str, &'a str)>,
    ) -> Result<(), SessionError> {
        let files = || self.files.iter().chain(self.environments.iter().flat_map(|env| &env.files));
        within("environments", self.environments.len(), ENVIRONMENTS_MAX)?;
        within("files", files().count(), FILES_MAX)?;
        within("bytes of files", files().map(|file| file.data.len()).sum(), FILES_BYTES_MAX)?;
        within("path mapping rules", self.path_mapping.len(), RULES_MAX)?;
        let mut known = Known::default();
        check_files(&self.files, "Task.File", &mut known)?;
        for param in space.iter().flat_map(|space| &space.params) {
            known.0.insert(format!("Task.Param.{}", param.name));
            known.0.insert(format!("Task.RawParam.{}", param.name));
        }
        for (place, text) in texts {
            known.check(place, text)?;
        }
        for file in &self.files {
            known.check(&format!("the file '{}'", file.name), &file.data)?;
        }
        check_cancel(self.cancel)?;
        self.environments.iter().try_for_each(Environment::check)
    }

    /// The path on the workers of a path of another machine, by the longest rule that matches.
    pub fn map_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        map_path(&self.path_mapping, path)
    }
}

impl Environment {
    fn check(&self) -> Result<(), SessionError> {
        let mut known = Known::default();
        check_files(&self.files, "Env.File", &mut known)?;
        let place = |what: &str| format!("{what} of the environment '{}'", self.name);
        for (name, value) in &self.variables {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(SessionError::BadVariable(name.clone()));
            }
            known.check(&place("a variable"), value)?;
        }
        for file in &self.files {
            known.check(&place("a file"), &file.data)?;
        }
        for action in [&self.on_enter, &self.on_exit].into_iter().flatten() {
            if action.command.first().is_none_or(String::is_empty) {
                return Err(SessionError::NoCommand(self.name.clone()));
            }
            action.command.iter().try_for_each(|text| known.check(&place("an action"), text))?;
            check_cancel(action.cancel)?;
        }
        Ok(())
    }
}

/// Names that references may use.
struct Known(BTreeSet<String>);

impl Default for Known {
    fn default() -> Self {
        let names = ["WorkingDirectory", "HasPathMappingRules", "PathMappingRulesFile"];
        Known(names.iter().map(|name| format!("Session.{name}")).collect())
    }
}

impl Known {
    fn check(&self, place: &str, text: &str) -> Result<(), SessionError> {
        if text.contains('\0') {
            return Err(SessionError::Nul(place.to_owned()));
        }
        let unknown = references(text).find(|name| *name != BRACE && !self.0.contains(*name));
        match unknown {
            Some(name) => Err(SessionError::Unknown { place: place.to_owned(), name: name.to_owned() }),
            None => Ok(()),
        }
    }
}

fn within(what: &'static str, is: usize, max: usize) -> Result<(), SessionError> {
    if is > max { Err(SessionError::TooMany { what, is, max }) } else { Ok(()) }
}

fn check_cancel(cancel: Option<Cancel>) -> Result<(), SessionError> {
    match cancel {
        Some(Cancel::NotifyThenTerminate(ms)) if ms > NOTIFY_MS_MAX => Err(SessionError::LongNotice(ms)),
        _ => Ok(()),
    }
}

fn check_files(files: &[EmbeddedFile], prefix: &str, known: &mut Known) -> Result<(), SessionError> {
    let mut on_disk = BTreeSet::new();
    for file in files {
        let name = file.on_disk();
        let plain = !name.contains(['/', '\0']) && !["", ".", ".."].contains(&name) && name.len() <= 255;
        let new = on_disk.insert(name) && known.0.insert(format!("{prefix}.{}", file.name));
        if !plain || !new || !is_identifier(&file.name) {
            return Err(SessionError::BadFile(file.name.clone()));
        }
    }
    Ok(())
}

impl EmbeddedFile {
    /// Its name on disk.
    pub fn on_disk(&self) -> &str {
        self.filename.as_deref().unwrap_or(&self.name)
    }
}

/// Maps a path by the longest rule that matches; returns it unchanged if none does.
pub fn map_path<'a>(rules: &[PathRule], path: &'a str) -> Cow<'a, str> {
    let matching = rules.iter().filter_map(|rule| rule.rest_of(path).map(|rest| (rule, rest)));
    match matching.max_by_key(|(rule, _)| rule.source.len()) {
        None => path.into(),
        Some((rule, "")) => rule.destination.clone().into(),
        Some((rule, rest)) => {
            let rest = match rule.source_format {
                PathFormat::Posix => Cow::Borrowed(rest),
                PathFormat::Windows => rest.replace('\\', "/").into(),
            };
            format!("{}/{rest}", rule.destination.trim_end_matches('/')).into()
        }
    }
}

impl PathRule {
    /// The rest of the path after the source; `None` if the path is not below the source.
    fn rest_of<'a>(&self, path: &'a str) -> Option<&'a str> {
        let slash = |c: char| c == '/' || (c == '\\' && self.source_format == PathFormat::Windows);
        let source = self.source.trim_end_matches(slash);
        let head = path.get(..source.len())?;
        let same = match self.source_format {
            PathFormat::Posix => head == source,
            PathFormat::Windows => head.replace('\\', "/").eq_ignore_ascii_case(&source.replace('\\', "/")),
        };
        let rest = &path[source.len()..];
        (same && (rest.is_empty() || rest.starts_with(slash))).then(|| rest.trim_start_matches(slash))
    }
}

/// The reference that stands for one opening brace.
const BRACE: &str = "Brace";

/// The names that a text refers to.
pub fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, name, after) = next_reference(rest)?;
        rest = after;
        Some(name)
    })
}

/// The text with each reference replaced by its `value`; references without a value stay.
pub fn fill_references<'a>(text: &str, value: impl Fn(&str) -> Option<Cow<'a, str>>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, name, after)) = next_reference(rest) {
        filled.push_str(before);
        match value(name) {
            Some(value) => filled.push_str(&value),
            None if name == BRACE => filled.push('{'),
            None => filled.push_str(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}

/// Escapes text, so that no reference is read in it, whatever is before and after it.
pub fn escape_references(text: &str) -> Cow<'_, str> {
    if !text.contains("{{") && !text.ends_with('{') {
        return text.into();
    }
    let mut escaped = text.replace("{{", "{{Brace}}{{Brace}}");
    if escaped.ends_with('{') {
        escaped.pop();
        escaped.push_str("{{Brace}}");
    }
    escaped.into()
}

/// The text before the next reference, its name, and the text after it.
fn next_reference(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name.trim(), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(source_format: PathFormat, source: &str, destination: &str) -> PathRule {
        PathRule { source_format, source: source.to_owned(), destination: destination.to_owned() }
    }

    #[test]
    fn references_are_filled_in() {
        let value = |name: &str| (name == "Task.Param.F").then_some(Cow::Borrowed("{{7}}"));
        assert_eq!(fill_references("a{{Task.Param.F}}b{{ Task.Param.F }}", value), "a{{7}}b{{7}}");
        assert_eq!(fill_references("{{Other}} {{", value), "{{Other}} {{");
    }

    #[test]
    fn the_longest_rule_counts() {
        let rules = [
            rule(PathFormat::Posix, "/mnt/a", "/x"),
            rule(PathFormat::Posix, "/mnt/a/b/", "/y/"),
            rule(PathFormat::Windows, r"C:\Show", "/show"),
        ];
        let of = |path| map_path(&rules, path).into_owned();
        assert_eq!(of("/mnt/a/c"), "/x/c");
        assert_eq!(of("/mnt/a/b/c"), "/y/c");
        assert_eq!(of("/mnt/a"), "/x");
        assert_eq!(of("/mnt/ab"), "/mnt/ab");
        assert_eq!(of(r"c:\show\scenes\a.pov"), "/show/scenes/a.pov");
        assert_eq!(of("é"), "é");
    }

    #[test]
    fn what_no_worker_could_set_up_is_refused() {
        let file = |name: &str| EmbeddedFile { name: name.to_owned(), ..Default::default() };
        let check = |session: Session| session.check(None, std::iter::empty());
        let bad = Session { files: vec![file("a"), file("a")], ..Default::default() };
        assert_eq!(check(bad), Err(SessionError::BadFile("a".into())));
        let mut up = file("a");
        up.filename = Some("../x".into());
        assert_eq!(
            check(Session { files: vec![up], ..Default::default() }),
            Err(SessionError::BadFile("a".into()))
        );
        let action = Action { command: vec!["{{Task.File.a}}".into()], ..Default::default() };
        let env = Environment { name: "E".into(), on_enter: Some(action), ..Default::default() };
        let error = check(Session { files: vec![file("a")], environments: vec![env], ..Default::default() });
        assert_eq!(
            error.unwrap_err().to_string(),
            "an action of the environment 'E' refers to '{{Task.File.a}}', which is not defined there"
        );
        let long = Session { cancel: Some(Cancel::NotifyThenTerminate(600_001)), ..Default::default() };
        assert_eq!(check(long), Err(SessionError::LongNotice(600_001)));
    }

    proptest! {
        /// Escaped text is restored unchanged, and does not hide references beside it.
        #[test]
        fn escaped_text_stays(text in "[{}aB.]{0,12}") {
            let around = format!("{}{{{{X}}}}{}", escape_references(&text), escape_references(&text));
            let value = |name: &str| (name == "X").then_some(Cow::Borrowed("|"));
            prop_assert_eq!(fill_references(&around, value), format!("{text}|{text}"));
        }
    }
}
