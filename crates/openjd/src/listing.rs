//! The parameters of a template, as its author describes them.

use crate::error::{Source, TemplateError};
use crate::options::{Format, TEMPLATE_BYTES_MAX};
use openjd_model::template::parse;
use openjd_model::{CallerLimits, DocumentType};
use serde_json::Value;

/// A parameter that a template takes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TemplateParameter {
    /// The name, as in `-p NAME=VALUE`.
    pub name: String,
    /// The type of its values: `INT`, `FLOAT`, `STRING` or `PATH`.
    pub value_type: String,
    /// The value without another; `None`: one must be given.
    pub default: Option<String>,
    /// The only values that it takes; empty is any.
    pub allowed: Vec<String>,
    /// The least value of a number, or the least length of a text.
    pub min: Option<String>,
    /// The greatest value of a number, or the greatest length of a text.
    pub max: Option<String>,
    /// What it is for.
    pub description: Option<String>,
}

/// The parameters in the order of the template, whose text has been checked before.
pub(crate) fn list(source: &Source<'_>) -> Result<Vec<TemplateParameter>, TemplateError> {
    let limits = CallerLimits { max_template_size: Some(TEMPLATE_BYTES_MAX), ..Default::default() };
    let document = match source.format {
        Format::Yaml => DocumentType::Yaml,
        Format::Json => DocumentType::Json,
    };
    let value = parse::document_string_to_object(source.text, document, &limits)
        .map_err(|error| source.about_syntax(&error))?;
    let definitions = value["parameterDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(definitions.iter().map(parameter).collect())
}

fn parameter(definition: &Value) -> TemplateParameter {
    let text = |name: &str| definition.get(name).filter(|value| !value.is_null()).map(in_words);
    let allowed = definition["allowedValues"].as_array();
    TemplateParameter {
        name: text("name").unwrap_or_default(),
        value_type: text("type").unwrap_or_default(),
        default: text("default"),
        allowed: allowed.into_iter().flatten().map(in_words).collect(),
        min: text("minValue").or_else(|| text("minLength")),
        max: text("maxValue").or_else(|| text("maxLength")),
        description: text("description"),
    }
}

fn in_words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
