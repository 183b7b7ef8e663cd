//! Mistakes in templates, as messages with file, line, path and reason. The library's errors have several
//! forms, and some are only text, so paths are read back out of messages where needed. Each constructor is
//! for one kind of error. No message is lost: what cannot be located is reported without a line.

use crate::library_faults::shown;
use crate::locate::{Key, line_of, line_of_key, parse_path, show_path};
use crate::options::Format;
use openjd_model::template::JobTemplate;
use openjd_model::{ModelError, PathElement};
use std::fmt;
use std::io;
use windlass_api::nearest;

/// Mistakes that one message lists; of the others it has the number.
const MISTAKES_MAX: usize = 20;
/// How the library says that the template has no parameters of these names.
const UNDEFINED: &str = "Job parameter values provided for parameters that are not defined in the template: ";

/// Why a template cannot be submitted.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("{}", show(.0))]
    Mistakes(Vec<Mistake>),
    /// The template is right, and values of its parameters are not.
    #[error("{}", show(.0))]
    Values(Vec<Mistake>),
    #[error("-p {text}: {reason}")]
    Parameter { text: String, reason: String },
    #[error("cannot read {path}")]
    File { path: String, source: io::Error },
}

/// A mistake in a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// Name of the template.
    pub file: String,
    /// Line in the file, from 1; `None` if it could not be found.
    pub line: Option<usize>,
    /// Path in the template, such as `steps[0] -> script`; empty for the whole template.
    pub path: String,
    /// The mistake, in words for the author of the template.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.reason)
    }
}

fn show(mistakes: &[Mistake]) -> String {
    let mut lines: Vec<String> = mistakes.iter().take(MISTAKES_MAX).map(Mistake::to_string).collect();
    if mistakes.len() > MISTAKES_MAX {
        lines.push(format!("and {} more", mistakes.len() - MISTAKES_MAX));
    }
    lines.join("\n")
}

/// The text of a template, its name and its syntax.
pub struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub format: Format,
}

impl Source<'_> {
    /// One mistake at a path.
    pub fn mistake(&self, path: &[Key], reason: &str) -> TemplateError {
        TemplateError::Mistakes(vec![self.at(path, reason)])
    }

    /// The text is not YAML or JSON.
    pub fn about_syntax(&self, error: &ModelError) -> TemplateError {
        let text = plain(error);
        let mut reason = text.lines().next().unwrap_or_default().trim().to_owned();
        let line = number_after(&text, "line ").or_else(|| number_after(&text, "--> <input>:"));
        for prefix in ["YAML", "JSON"] {
            let long =
                format!("The document is not a valid {prefix} document consisting of key-value pairs. ");
            if let Some(rest) = reason.strip_prefix(&long) {
                reason = format!("this is not {prefix}: {rest}");
            }
        }
        // The parser's words for programs that call it.
        if reason.contains("budget breached") {
            reason = "it has more values, levels or repetitions by anchors than are read".to_owned();
        }
        if let Some((twice, _)) = reason.split_once(", set DuplicateKeyPolicy") {
            reason = twice.replace("duplicate mapping key:", "this field is there twice:");
        }
        let mistake = Mistake { file: self.file.to_owned(), line, path: String::new(), reason };
        TemplateError::Mistakes(vec![mistake])
    }

    /// A field is missing, unknown, or of the wrong type.
    pub fn about_shape(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> TemplateError {
        use serde_path_to_error::Segment;
        let keys = error.path().iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Key::Index(*index)),
            Segment::Map { key } => Some(Key::Field(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let keys: Vec<Key> = keys.collect();
        let reason = error.inner().to_string();
        let mut mistake = self.at(&keys, &reason);
        // For an unknown field the library's path ends at the object that has it, or earlier.
        if let Some(field) = reason.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next())
            && keys.last() != Some(&Key::Field(field.to_owned()))
        {
            mistake.line = line_of_key(self.text, field, mistake.line.unwrap_or(1)).or(mistake.line);
        }
        TemplateError::Mistakes(vec![mistake])
    }

    /// A rule of the specification is broken.
    pub fn about_model(&self, error: &ModelError) -> TemplateError {
        let ModelError::ModelValidation(errors) = error else {
            let text = plain(error);
            return TemplateError::Mistakes(text.lines().map(|line| self.in_words(line)).collect());
        };
        let mistakes = errors.errors.iter().map(|error| {
            let keys = error.path.iter().map(|element| match element {
                PathElement::Field(name) => Key::Field(name.clone()),
                PathElement::Index(n) => Key::Index(*n),
            });
            // The message also draws pointers below its sentence; the summary is the sentence alone.
            let reason = error.detail.as_ref().map_or(&error.message, |detail| &detail.summary);
            self.at(&keys.collect::<Vec<_>>(), reason)
        });
        TemplateError::Mistakes(mistakes.collect())
    }

    /// A rule about values of parameters is broken. Each line of the error is about one parameter.
    pub fn about_values(&self, error: &ModelError, template: &JobTemplate) -> TemplateError {
        if matches!(error, ModelError::ModelValidation(_)) {
            return self.about_model(error);
        }
        let text = plain(error);
        let known: Vec<&str> =
            template.parameter_definitions_list().iter().map(|definition| definition.name()).collect();
        let (unknown, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with(UNDEFINED));
        let unknown = unknown.into_iter().flat_map(|line| line[UNDEFINED.len()..].split(", "));
        let unknown = unknown.map(|name| self.at(&[], &no_parameter(name, &known)));
        let mistakes = others.into_iter().map(|line| {
            let name = line.strip_prefix("Parameter '").and_then(|rest| rest.split('\'').next());
            let place = name.and_then(|name| known.iter().position(|known| *known == name));
            match place {
                Some(n) => self.at(&[Key::Field("parameterDefinitions".to_owned()), Key::Index(n)], line),
                None => self.in_words(line),
            }
        });
        TemplateError::Values(mistakes.chain(unknown).collect())
    }

    /// A mistake from a sentence that may begin with a path.
    fn in_words(&self, sentence: &str) -> Mistake {
        let (path, reason) = parse_path(sentence);
        self.at(&path, reason)
    }

    fn at(&self, path: &[Key], reason: &str) -> Mistake {
        let reason = shown(&reason.split_whitespace().collect::<Vec<_>>().join(" "));
        let line = if path.is_empty() { None } else { line_of(self.text, path) };
        Mistake { file: self.file.to_owned(), line, path: show_path(path), reason }
    }
}

fn no_parameter(name: &str, known: &[&str]) -> String {
    let meant = nearest(name, known.iter().copied()).map(|near| format!("; did you mean '{near}'?"));
    let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    match meant {
        Some(meant) => format!("the template has no parameter '{name}'{meant} It has {has}"),
        None => format!("the template has no parameter '{name}'; it has {has}"),
    }
}

/// The text of an error, without its kind, which the library puts in front.
fn plain(error: &ModelError) -> String {
    match error {
        ModelError::DecodeValidation(text)
        | ModelError::Compatibility(text)
        | ModelError::UnsupportedSchema(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number_after(text: &str, words: &str) -> Option<usize> {
    let rest = text.split_once(words)?.1;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}
