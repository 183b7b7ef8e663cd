//! Open Job Description templates, 2023-09, as submissions.
//!
//! Reading, checking and all that depends on the job's parameters alone is done here, by the model's own
//! library. What depends on a task or a session stays a reference, which the worker fills in.

mod convert;
mod error;
mod locate;
mod parameters;

pub use convert::space;
pub use error::{Mistake, TemplateError};
pub use parameters::{parameters, path_mapping};

use error::Source;
use openjd_model::template::{JobTemplate, parse};
use openjd_model::{
    CallerLimits, DocumentType, JobParameterInputValues, ModelError, PathParameterOptions,
    SpecificationRevision, ValidationContext, create_job, preprocess_job_parameters,
};
use std::collections::BTreeMap;
use windlass_api::{PathRule, SubmitRequest};

/// Bytes of a template, or of a file of parameters.
pub const TEMPLATE_BYTES_MAX: usize = 4 << 20;

/// How a template is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

/// What a template does not say itself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The template's name in messages.
    pub file: String,
    /// The template's own directory, absolute: defaults of PATH parameters are relative to it.
    pub template_dir: String,
    /// The caller's directory, absolute: given values of PATH parameters are relative to it.
    pub current_dir: String,
    /// The environment in which environments are entered and tasks run.
    pub env: BTreeMap<String, String>,
    /// Where paths of other machines are on the workers.
    pub path_mapping: Vec<PathRule>,
}

/// The submission that a template asks for, with these values for its parameters.
pub fn submission(
    text: &str,
    format: Format,
    parameters: &BTreeMap<String, String>,
    options: &Options,
) -> Result<SubmitRequest, TemplateError> {
    let source = Source { file: &options.file, text, format };
    let template = read(&source)?;
    let inputs: JobParameterInputValues =
        parameters.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let paths = PathParameterOptions::new(&options.template_dir, &options.current_dir);
    let about_values = |e| source.about_values(&e, &template);
    let values = preprocess_job_parameters(&template, &inputs, &[], &paths).map_err(about_values)?;
    let context = ValidationContext::new(SpecificationRevision::V2023_09);
    let job = create_job(&template, &values, &context).map_err(about_values)?;
    convert::request(&job, &values, options).map_err(|(path, reason)| source.mistake(&path, &reason))
}

/// The template, every rule of its specification checked.
fn read(source: &Source<'_>) -> Result<JobTemplate, TemplateError> {
    let limits = CallerLimits { max_template_size: Some(TEMPLATE_BYTES_MAX), ..Default::default() };
    let document = match source.format {
        Format::Yaml => DocumentType::Yaml,
        Format::Json => DocumentType::Json,
    };
    let value = parse::document_string_to_object(source.text, document, &limits);
    let value = value.map_err(|e| match e {
        ModelError::ModelValidation(_) => source.about_model(&e),
        _ => source.about_syntax(&e),
    })?;
    parse::decode_job_template(value.clone(), None, &limits).map_err(|e| match e {
        ModelError::DecodeValidation(message) => {
            // Where it stands, which the library does not say.
            match serde_path_to_error::deserialize::<_, JobTemplate>(value) {
                Err(e) if message.contains("failed checks") => source.about_shape(&e),
                _ => source.about_model(&ModelError::DecodeValidation(message)),
            }
        }
        other => source.about_model(&other),
    })
}
