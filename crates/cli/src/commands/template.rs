//! `run -f` and `submit -f`: jobs from Open Job Description templates, and from files in Windlass's own form.

use crate::commands::args::{
    Inherit, TaskArgs, absolute, environment, fresh_key, match_directory, working_directory,
};
use crate::commands::files::args::StepInputs;
use crate::commands::native::{self, JobFile};
use crate::ui::error::CliError;
use crate::ui::output::{Format, print_list};
use crate::ui::table::{Column, Grid};
use serde::Serialize;
use serde::de::IgnoredAny;
use std::io::Read;
use std::path::{Path, PathBuf};
use windlass_api::SubmitRequest;
use windlass_openjd::{Format as TemplateFormat, Options, TemplateError, TemplateParameter};

/// Bytes of a file. They travel in one request, whose size servers bound; a template may have fewer.
const FILE_BYTES_MAX: u64 = 48 << 20;

/// A job as the command line describes it.
#[derive(Debug)]
pub struct Submission {
    /// The request, without what is uploaded first.
    pub request: SubmitRequest,
    /// The files of this machine that its steps name.
    pub inputs: Vec<StepInputs>,
}

/// The job made from the command line: from the file that it names, else from its command.
pub fn submission(args: &TaskArgs, inherit: Inherit) -> Result<Submission, CliError> {
    let mut submission = match &args.template.file {
        Some(file) => of_file(file, args, inherit)?,
        None => {
            Submission { request: args.request(inherit)?, inputs: args.files.inputs().into_iter().collect() }
        }
    };
    submission.request.limit_unset_ok |= args.hints.limit_unset_ok;
    Ok(submission)
}

/// The job made from a file and the flags.
fn of_file(file: &str, args: &TaskArgs, inherit: Inherit) -> Result<Submission, CliError> {
    let (text, dir) = read(file)?;
    let name = if file == "-" { "standard input" } else { file };
    if let Some(job) = (JobFile { name, text: &text }).read()? {
        if file == "-" && job.inputs.iter().any(|of| of.stdin_file.as_deref() == Some("-")) {
            return Err(CliError::usage(
                "standard input has the job already: name another file in stdin_file",
            ));
        }
        let request = native::with_flags(job.request, args, inherit)?;
        return Ok(Submission { request, inputs: job.inputs });
    }
    let refused = |error| refuse(file, error);
    let values = windlass_openjd::parameters(&args.template.param).map_err(refused)?;
    let (mut env, _) = environment(&args.env, inherit, std::env::vars_os())?;
    let cwd = args.cwd.as_deref().map(|dir| working_directory(Some(dir))).transpose()?;
    match_directory(&mut env, cwd.as_deref());
    let rules = args.template.path_mapping.as_deref().map(windlass_openjd::path_mapping).transpose();
    let options = Options {
        file: name.to_owned(),
        template_dir: absolute(dir.as_deref())?,
        current_dir: absolute(None)?,
        env,
        path_mapping: rules.map_err(refused)?.unwrap_or_default(),
    };
    let mut request =
        windlass_openjd::submission(&text, syntax(file, &text), &values, &options).map_err(refused)?;
    for step in &mut request.steps {
        step.cwd.clone_from(&cwd);
        step.umask = args.umask();
        step.tags.extend(args.tag.iter().cloned());
        step.workers.clone_from(&args.worker);
        step.retries = args.retries;
        args.hints.put_on(step);
    }
    request.name = args.name.clone().or(request.name);
    request.queue.clone_from(&args.queue);
    request.priority = args.priority;
    request.key = Some(args.key.clone().unwrap_or_else(fresh_key));
    args.order.put_on(&mut request);
    request.on_end = args.told.addresses();
    request.max_running = args.max_running;
    // In a session files are not handed over so.
    Ok(Submission { request, inputs: Vec::new() })
}

/// The syntax of a template, by the end of its name. Other names say nothing: a text that begins with a brace and is not
/// JSON may be YAML in flow style.
fn syntax(file: &str, text: &str) -> TemplateFormat {
    let ending = Path::new(file).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_json = match ending.to_ascii_lowercase().as_str() {
        "json" => true,
        "yaml" | "yml" => false,
        _ => serde_json::from_str::<IgnoredAny>(text).is_ok(),
    };
    if is_json { TemplateFormat::Json } else { TemplateFormat::Yaml }
}

/// A parameter of a template, as it is listed.
#[derive(Serialize)]
struct ListedParameter {
    name: String,
    #[serde(rename = "type")]
    value_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// Prints the parameters of the template that the command line names.
pub fn list_parameters(format: Format, args: &TaskArgs) -> Result<(), CliError> {
    let file = args.template.file.as_deref().unwrap_or("-");
    let (text, _) = read(file)?;
    let name = if file == "-" { "standard input" } else { file };
    if (JobFile { name, text: &text }).read()?.is_some() {
        return Err(CliError::usage(format!("{name} is a job, and only templates have parameters")));
    }
    let listed = windlass_openjd::template_parameters(&text, syntax(file, &text), name);
    let listed = listed.map_err(|error| refuse(file, error))?.into_iter().map(|parameter| {
        let TemplateParameter { name, value_type, default, allowed, min, max, description } = parameter;
        ListedParameter { name, value_type, default, allowed, min, max, description }
    });
    let listed: Vec<ListedParameter> = listed.collect();
    print_list(format, &listed, |parameter| parameter.name.clone(), parameter_grid)
}

fn parameter_grid(parameters: &[ListedParameter]) -> Grid {
    let row = |parameter: &ListedParameter| {
        let bounds = match (&parameter.min, &parameter.max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("from {min}"),
            (None, Some(max)) => format!("up to {max}"),
            (None, None) => parameter.allowed.join(", "),
        };
        vec![
            parameter.name.as_str().into(),
            parameter.value_type.as_str().into(),
            parameter.default.as_deref().into(),
            Some(bounds.as_str()).filter(|bounds| !bounds.is_empty()).into(),
            parameter.description.as_deref().into(),
        ]
    };
    Grid {
        columns: vec![
            Column::text("NAME", 0, 12),
            Column::whole("TYPE", 2),
            Column::text("DEFAULT", 1, 10),
            Column::text("VALUES", 1, 12),
            Column::text("DESCRIPTION", 3, 16),
        ],
        rows: parameters.iter().map(row).collect(),
        empty: "the template has no parameters",
    }
}

/// The file's text, and its directory; `None` for standard input and for the current directory.
fn read(file: &str) -> Result<(String, Option<PathBuf>), CliError> {
    let bad = |why: std::io::Error| CliError::usage(format!("cannot read {file}: {why}"));
    let mut text = String::new();
    // One byte over the limit is enough to be refused.
    let limit = FILE_BYTES_MAX + 1;
    if file == "-" {
        std::io::stdin().take(limit).read_to_string(&mut text).map_err(bad)?;
    } else {
        std::fs::File::open(file).map_err(bad)?.take(limit).read_to_string(&mut text).map_err(bad)?;
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        let why = format!("{file} is larger than {} MiB; submit it in parts", FILE_BYTES_MAX >> 20);
        return Err(CliError::usage(why));
    }
    if file == "-" {
        return Ok((text, None));
    }
    let dir = Path::new(file).parent().filter(|dir| !dir.as_os_str().is_empty());
    Ok((text, dir.map(Path::to_path_buf)))
}

fn refuse(file: &str, error: TemplateError) -> CliError {
    let hint = match &error {
        TemplateError::Values(_) => {
            Some(format!("'windlass submit -f {file} --parameters' lists the parameters"))
        }
        TemplateError::Mistakes(_) | TemplateError::Parameter { .. } | TemplateError::File { .. } => None,
    };
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(&error) {
        message = format!("{message}: {source}");
    }
    CliError::Usage { message, hint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::hints::HintArgs;

    const TEMPLATE: &str = "specificationVersion: jobtemplate-2023-09\nname: T\nsteps:\n- name: S\n  script:\n    \
                            actions: {onRun: {command: 'true'}}\n";

    #[test]
    fn flags_add_to_the_template() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.yaml");
        std::fs::write(&path, TEMPLATE).unwrap();
        let hints = HintArgs { limit: vec!["maya".to_owned()], ..Default::default() };
        let args =
            TaskArgs { retries: 2, tag: vec!["x".to_owned()], priority: 3, hints, ..Default::default() };
        let request = super::of_file(path.to_str().unwrap(), &args, Inherit::All).unwrap().request;
        assert_eq!((request.name.as_deref(), request.priority), (Some("T"), 3));
        assert_eq!((request.steps[0].retries, &request.steps[0].tags[..]), (2, &["x".to_owned()][..]));
        assert_eq!(request.steps[0].limits, ["maya"]);
        assert!(request.key.is_some());
        let named = TaskArgs { name: Some("other".to_owned()), ..Default::default() };
        assert_eq!(
            super::of_file(path.to_str().unwrap(), &named, Inherit::All).unwrap().request.name.as_deref(),
            Some("other")
        );
    }

    #[test]
    fn a_template_in_flow_style_is_yaml() {
        let flow = "{\n  # a comment, and commas before brackets\n  specificationVersion: jobtemplate-2023-09, name: T,\n  \
                    steps: [{name: S, script: {actions: {onRun: {command: 'true'},},},},],\n}\n";
        let json = r#"{"specificationVersion": "jobtemplate-2023-09", "name": "T",
            "steps": [{"name": "S", "script": {"actions": {"onRun": {"command": "true"}}}}]}"#;
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [("a.yaml", flow), ("b.template", flow), ("c.yaml", json), ("d", json), ("e.JSON", json)]
        {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            let read = of_file(path.to_str().unwrap(), &TaskArgs::default(), Inherit::All);
            assert_eq!(read.unwrap().request.name.as_deref(), Some("T"), "{name}");
        }
        let path = dir.path().join("f.json");
        std::fs::write(&path, flow).unwrap();
        let error = of_file(path.to_str().unwrap(), &TaskArgs::default(), Inherit::All).unwrap_err();
        assert!(error.message().contains("this is not JSON"), "{}", error.message());
    }

    #[test]
    fn a_mistake_is_a_usage_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.yaml");
        std::fs::write(&path, TEMPLATE.replace("onRun", "onRum")).unwrap();
        let error = of_file(path.to_str().unwrap(), &TaskArgs::default(), Inherit::All).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message().contains("job.yaml:6: steps[0]"), "{}", error.message());
        assert!(of_file("/no/such/file", &TaskArgs::default(), Inherit::All).is_err());
    }
}
