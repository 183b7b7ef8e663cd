//! Values of a job's parameters and path mapping rules, as users give them on the command line or in files.
//! The values are text here. The model's library checks them against the template. A file of parameters may have at
//! most [`TEMPLATE_BYTES_MAX`] bytes.

use crate::error::TemplateError;
use crate::options::TEMPLATE_BYTES_MAX;
use openjd_model::template::parse;
use openjd_model::{CallerLimits, DocumentType};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use windlass_api::{PathFormat, PathRule};

/// Parses arguments of the form `NAME=VALUE`, `file://PATH` or `@PATH`, where the file has names and values
/// in YAML or JSON. A later value replaces an earlier one of the same name.
///
/// # Errors
/// If an argument is malformed, or a file cannot be read or has a value that is not text, a number or a boolean.
pub fn parameters(given: &[String]) -> Result<BTreeMap<String, String>, TemplateError> {
    let mut values = BTreeMap::new();
    for text in given {
        let bad = |reason: &str| TemplateError::Parameter { text: text.clone(), reason: reason.to_owned() };
        if let Some(path) = text.strip_prefix("file://").or_else(|| text.strip_prefix('@')) {
            values.extend(from_file(Path::new(path), &bad)?);
            continue;
        }
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => values.insert(name.to_owned(), value.to_owned()),
            _ => return Err(bad("parameters look like NAME=VALUE, file://PATH or @PATH")),
        };
    }
    Ok(values)
}

fn from_file(
    path: &Path,
    bad: &impl Fn(&str) -> TemplateError,
) -> Result<BTreeMap<String, String>, TemplateError> {
    let text = read(path)?;
    let limits = CallerLimits { max_template_size: Some(TEMPLATE_BYTES_MAX), ..Default::default() };
    let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let format = if json { DocumentType::Json } else { DocumentType::Yaml };
    let document = parse::document_string_to_object(&text, format, &limits);
    let document = document.map_err(|e| bad(e.to_string().lines().next().unwrap_or_default()))?;
    let fields = document.as_object().into_iter().flatten();
    let values = fields.map(|(name, value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
        _ => Err(bad(&format!("the value of '{name}' is neither a text nor a number"))),
    });
    values.collect()
}

/// Reads path mapping rules in the JSON of the specification, version `pathmapping-1.0`.
///
/// # Errors
/// If the file cannot be read or does not have that form.
pub fn path_mapping(path: &Path) -> Result<Vec<PathRule>, TemplateError> {
    let text = read(path)?;
    let bad = |reason: &str| TemplateError::Parameter {
        text: path.display().to_string(),
        reason: format!("these are no path mapping rules: {reason}"),
    };
    let document: Value = serde_json::from_str(&text).map_err(|e| bad(&e.to_string()))?;
    if document["version"] != "pathmapping-1.0" {
        return Err(bad("the version is not pathmapping-1.0"));
    }
    let rules =
        document["path_mapping_rules"].as_array().ok_or_else(|| bad("path_mapping_rules is not a list"))?;
    let rules = rules.iter().map(|rule| {
        let text = |name: &str| {
            let text = rule[name].as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| bad(&format!("a rule has no {name}")))
        };
        let source_format = match rule["source_path_format"].as_str() {
            Some("POSIX") => PathFormat::Posix,
            Some("WINDOWS") => PathFormat::Windows,
            _ => return Err(bad("source_path_format is POSIX or WINDOWS")),
        };
        Ok(PathRule { source_format, source: text("source_path")?, destination: text("destination_path")? })
    });
    rules.collect()
}

fn read(path: &Path) -> Result<String, TemplateError> {
    fs::read_to_string(path)
        .map_err(|source| TemplateError::File { path: path.display().to_string(), source })
}
