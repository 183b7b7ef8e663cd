//! Open Job Description templates, revision 2023-09, as submissions. `windlass run -f` calls [`submission`].
//!
//! The model's own library reads and checks a template and resolves everything that depends only on the job's
//! parameters. References to a task or a session stay in the texts, and the worker's keeper fills them in.
//! Every mistake is reported with its file and, where it can be found, its line. Nothing here submits a job.

mod convert;
mod error;
mod library_faults;
mod listing;
mod locate;
mod options;
mod parameters;

pub use convert::space;
pub use error::{Mistake, TemplateError};
pub use listing::TemplateParameter;
pub use locate::{Key, line_of, show_path};
pub use options::{Format, Options, TEMPLATE_BYTES_MAX};
pub use parameters::{parameters, path_mapping};

use error::Source;
use library_faults::ReferringNumber;
use openjd_model::template::{JobTemplate, parse};
use openjd_model::{
    CallerLimits, DocumentType, JobParameterInputValues, ModelError, PathParameterOptions,
    SpecificationRevision, ValidationContext, create_job, preprocess_job_parameters,
};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_api::SubmitRequest;

/// The extensions that templates may use.
const EXTENSIONS: [&str; 1] = ["TASK_CHUNKING"];

/// The submission of a template with these values of its parameters.
///
/// # Errors
/// All mistakes of the template or of the values, or the first part that Windlass cannot express.
pub fn submission(
    text: &str,
    format: Format,
    parameters: &BTreeMap<String, String>,
    options: &Options,
) -> Result<SubmitRequest, TemplateError> {
    let source = Source { file: &options.file, text, format };
    let CheckedTemplate { mut template, mut document, numbers } = read(&source)?;
    let inputs: JobParameterInputValues =
        parameters.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let paths = PathParameterOptions::new(&options.template_dir, &options.current_dir);
    let values = preprocess_job_parameters(&template, &inputs, &[], &paths);
    let values = values.map_err(|e| source.about_values(&e, &template))?;
    let mistake = |(path, reason): (Vec<Key>, String)| source.mistake(&path, &reason);
    if !numbers.is_empty() {
        let texts: BTreeMap<&str, String> =
            values.iter().map(|(name, value)| (name.as_str(), value.value.to_display_string())).collect();
        let value_of = |name: &str| texts.get(name).map(String::as_str);
        library_faults::fill_numbers(&mut document, &numbers, value_of).map_err(mistake)?;
        template = decode(&source, document)?;
    }
    let context = ValidationContext::new(SpecificationRevision::V2023_09);
    let job = create_job(&template, &values, &context).map_err(|e| source.about_values(&e, &template))?;
    convert::request(&job, &values, options).map_err(mistake)
}

/// The parameters that a template takes, in its order. `file` is its name in messages.
///
/// # Errors
/// All mistakes of the template.
pub fn template_parameters(
    text: &str,
    format: Format,
    file: &str,
) -> Result<Vec<TemplateParameter>, TemplateError> {
    let source = Source { file, text, format };
    read(&source)?;
    listing::list(&source)
}

/// A template that keeps all rules of the specification.
struct CheckedTemplate {
    template: JobTemplate,
    /// What the library got.
    document: Value,
    /// What is still to be filled in there.
    numbers: Vec<ReferringNumber>,
}

/// The template, checked against all rules of the specification.
fn read(source: &Source<'_>) -> Result<CheckedTemplate, TemplateError> {
    let syntax = match source.format {
        Format::Yaml => DocumentType::Yaml,
        Format::Json => DocumentType::Json,
    };
    let document = parse::document_string_to_object(source.text, syntax, &limits());
    let mut document = document.map_err(|e| match e {
        ModelError::ModelValidation(_) => source.about_model(&e),
        _ => source.about_syntax(&e),
    })?;
    let numbers = library_faults::put_right(&mut document);
    let template = decode(source, document.clone())?;
    let definitions = template.parameter_definitions_list();
    let parameters: Vec<&str> = definitions.iter().map(|definition| definition.name()).collect();
    library_faults::check_numbers(&numbers, &parameters)
        .map_err(|(path, reason)| source.mistake(&path, &reason))?;
    Ok(CheckedTemplate { template, document, numbers })
}

fn limits() -> CallerLimits {
    CallerLimits { max_template_size: Some(TEMPLATE_BYTES_MAX), ..Default::default() }
}

fn decode(source: &Source<'_>, document: Value) -> Result<JobTemplate, TemplateError> {
    parse::decode_job_template(document.clone(), Some(&EXTENSIONS), &limits()).map_err(|e| match e {
        ModelError::DecodeValidation(message) => {
            // The library does not report where the mistake is, so the value is decoded once more with its path.
            match serde_path_to_error::deserialize::<_, JobTemplate>(document) {
                Err(e) if message.contains("failed checks") => source.about_shape(&e),
                _ => source.about_model(&ModelError::DecodeValidation(message)),
            }
        }
        other => source.about_model(&other),
    })
}
