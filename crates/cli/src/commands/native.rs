//! `-f` of a job in Windlass's own form: the body of `POST /api/v1/jobs` with a kind, as JSON, YAML or TOML.

use crate::commands::args::{Inherit, TaskArgs, directory_of, environment, fresh_key, match_directory};
use crate::commands::files::args::{LOCAL_FIELDS, StepInputs};
use crate::commands::toml_lines;
use crate::ui::error::CliError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::path::Path;
use windlass_api::{Param, SubmitRequest, escape_references, nearest};
use windlass_openjd::{Key, Mistake, TemplateError, line_of, show_path};

/// The kind of a file that holds a job in this form.
pub const KIND: &str = "windlass/job";
/// The field of a file by which an Open Job Description template is recognized.
const TEMPLATE_FIELD: &str = "specificationVersion";

/// A file that may hold a job.
pub struct JobFile<'a> {
    /// Its name in messages. The ending says what its syntax is.
    pub name: &'a str,
    /// The whole text of the file.
    pub text: &'a str,
}

/// A job that was read from a file.
#[derive(Clone, Debug)]
pub struct JobInFile {
    /// The request, without what is uploaded first.
    pub request: SubmitRequest,
    /// The files of this machine that its steps name.
    pub inputs: Vec<StepInputs>,
}

/// The fields of a file.
struct FileFields {
    values: Map<String, Value>,
    is_toml: bool,
}

impl JobFile<'_> {
    /// The job in this form; `None` where the file is to be read as a template.
    ///
    /// # Errors
    /// If it is of this form and has a mistake, or if it has steps and does not say of which form it is.
    pub fn read(&self) -> Result<Option<JobInFile>, CliError> {
        let Some(FileFields { mut values, is_toml }) = self.fields()? else { return Ok(None) };
        if values.contains_key(TEMPLATE_FIELD) {
            return Ok(None);
        }
        match values.remove("kind") {
            Some(kind) if kind == KIND => {}
            Some(kind) => {
                let why = format!("this release reads '{KIND}', and not {kind}");
                return Err(self.refuse(is_toml, &[Key::Field("kind".to_owned())], &why));
            }
            None if values.contains_key("steps") => {
                let why = format!(
                    "the file does not say of which form its steps are: add kind: {KIND} for a job of Windlass, or \
                     {TEMPLATE_FIELD}: jobtemplate-2023-09 for an Open Job Description template"
                );
                return Err(self.refuse(is_toml, &[], &why));
            }
            None => return Ok(None),
        }
        let inputs = self.take_inputs(&mut values, is_toml)?;
        let request: SubmitRequest = self.parse(Value::Object(values), is_toml, Vec::new())?;
        // What is wrong in itself is said with its line; the server would know none.
        if let Err(error) = request.clone().into_spec("user") {
            let why = error.to_string();
            let path = path_of_step(&request, &why);
            return Err(self.refuse(is_toml, &path, &why));
        }
        Ok(Some(JobInFile { request, inputs }))
    }

    /// Takes away what steps say of files of this machine, which the server does not know.
    fn take_inputs(
        &self,
        values: &mut Map<String, Value>,
        is_toml: bool,
    ) -> Result<Vec<StepInputs>, CliError> {
        let mut inputs = Vec::new();
        let steps = values.get_mut("steps").and_then(Value::as_array_mut);
        for (step, fields) in steps.into_iter().flatten().enumerate() {
            let Some(files) = fields.get_mut("files").and_then(Value::as_object_mut) else { continue };
            let taken: Map<String, Value> =
                LOCAL_FIELDS.iter().filter_map(|name| files.remove_entry(*name)).collect();
            if taken.is_empty() {
                continue;
            }
            let path = vec![Key::Field("steps".to_owned()), Key::Index(step), Key::Field("files".to_owned())];
            for (here, there) in [("inputs", "root"), ("stdin_file", "stdin")] {
                if taken.contains_key(here) && files.contains_key(there) {
                    let why = format!("{here} becomes {there} when it is uploaded: leave one of them out");
                    return Err(self.refuse(is_toml, &path, &why));
                }
            }
            let of_step: StepInputs = self.parse(Value::Object(taken), is_toml, path)?;
            inputs.push(StepInputs { step, ..of_step });
        }
        Ok(inputs)
    }

    /// Reads fields that stand at a path of the file.
    fn parse<T: DeserializeOwned>(
        &self,
        fields: Value,
        is_toml: bool,
        mut path: Vec<Key>,
    ) -> Result<T, CliError> {
        serde_path_to_error::deserialize(fields).map_err(|error| {
            path.extend(keys_of(error.path()));
            let (why, field) = reason_of(&error.inner().to_string());
            // Of an unknown field the path may end at the object that has it.
            if let Some(field) = field.map(Key::Field).filter(|field| path.last() != Some(field)) {
                path.push(field);
            }
            self.refuse(is_toml, &path, &why)
        })
    }

    /// The fields of the file; `None` where it cannot be read so. The reader of templates then says why.
    fn fields(&self) -> Result<Option<FileFields>, CliError> {
        let ending = Path::new(self.name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ending.eq_ignore_ascii_case("toml") {
            let values = toml::from_str(self.text).map_err(|error: toml::de::Error| {
                let line = error.span().map(|span| toml_lines::line_at(self.text, span.start));
                refusal(self.name, line, &[], &format!("this is not TOML: {}", error.message()))
            })?;
            return Ok(Some(FileFields { values, is_toml: true }));
        }
        // JSON is tried first: it is not quite a subset of YAML.
        let json = serde_json::from_str(self.text).ok();
        if let Some(Value::Object(values)) = json.or_else(|| serde_saphyr::from_str(self.text).ok()) {
            return Ok(Some(FileFields { values, is_toml: false }));
        }
        // Standard input has no ending.
        let values = if ending.is_empty() { toml::from_str(self.text).ok() } else { None };
        Ok(values.map(|values| FileFields { values, is_toml: true }))
    }

    fn refuse(&self, is_toml: bool, path: &[Key], why: &str) -> CliError {
        let line = match is_toml {
            _ if path.is_empty() => None,
            true => toml_lines::line_of_path(self.text, path),
            false => line_of(self.text, path),
        };
        refusal(self.name, line, path, why)
    }
}

fn refusal(file: &str, line: Option<usize>, path: &[Key], why: &str) -> CliError {
    let mistake = Mistake { file: file.to_owned(), line, path: show_path(path), reason: why.to_owned() };
    CliError::Usage {
        message: TemplateError::Mistakes(vec![mistake]).to_string(),
        hint: Some("the fields are those of POST /api/v1/jobs; --dry-run checks a file".to_owned()),
    }
}

fn keys_of(path: &serde_path_to_error::Path) -> Vec<Key> {
    let keys = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(Key::Index(*index)),
        Segment::Map { key } => Some(Key::Field(key.clone())),
        Segment::Enum { variant } => Some(Key::Field(variant.clone())),
        Segment::Unknown => None,
    });
    keys.collect()
}

/// What serde says, in words for the author of the file, and the field that it does not know.
fn reason_of(said: &str) -> (String, Option<String>) {
    let what = ["field", "variant"].into_iter().find(|what| said.starts_with(&format!("unknown {what} `")));
    let Some(what) = what else { return (wrong_value(said).unwrap_or_else(|| said.replace('`', "'")), None) };
    // The unknown one and those that there are stand in backticks.
    let mut names = said.split('`').skip(1).step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    let what_shown = if what == "field" { "field" } else { "value" };
    let advice = match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known here: {}", known.join(", ")),
    };
    (format!("unknown {what_shown} '{unknown}'; {advice}"), (what == "field").then(|| unknown.to_owned()))
}

/// What serde says of a value of the wrong kind, without the names of its types; `None` if it says something else.
fn wrong_value(said: &str) -> Option<String> {
    let (what, told) = ["type: ", "value: ", "length "].iter().find_map(|what| {
        let told = said.strip_prefix("invalid ")?.strip_prefix(what)?;
        Some((*what, told))
    })?;
    let (is, expected) = told.rsplit_once(", expected ")?;
    let takes = match expected {
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "string or map" => "a word, or fields with values",
        "a map" => "fields with values",
        other if other.starts_with("struct ") => "fields with values",
        other => other,
    };
    let is = match is {
        length if what == "length " => format!("a list of {length}"),
        "sequence" => "a list".to_owned(),
        "map" => "fields with values".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        value => {
            let kinds = ["integer ", "floating point ", "boolean ", "string "];
            let value = kinds.iter().find_map(|kind| value.strip_prefix(kind)).unwrap_or(value);
            value.replace('`', "")
        }
    };
    let advice = if expected == "a string" { "; write it in quotes" } else { "" };
    Some(format!("it takes {takes}, not {is}{advice}"))
}

/// The path of the step that a message names first.
fn path_of_step(request: &SubmitRequest, said: &str) -> Vec<Key> {
    let Some(name) = said.strip_prefix("step '").and_then(|rest| rest.split('\'').next()) else {
        return Vec::new();
    };
    let place = request.steps.iter().position(|step| step.name.as_deref().unwrap_or("main") == name);
    let path = place.map(|place| vec![Key::Field("steps".to_owned()), Key::Index(place)]);
    path.unwrap_or_default()
}

/// The job with the flags of the command line, which stand over the fields of the file. What neither says is as for a
/// command: a step runs in the current directory, with the environment of a command.
pub fn with_flags(
    mut request: SubmitRequest,
    args: &TaskArgs,
    inherit: Inherit,
) -> Result<SubmitRequest, CliError> {
    if let Some(param) = args.template.param.first() {
        let why =
            format!("-p {param}: only templates have parameters, and this file is a job (kind: {KIND})");
        return Err(CliError::usage(why));
    }
    if args.template.path_mapping.is_some() {
        return Err(CliError::usage("--path-mapping is for templates, and this file is a job"));
    }
    let (env, _) = environment(&args.env, inherit, std::env::vars_os())?;
    let is_set =
        |name: &str| args.env.iter().any(|choice| choice.split_once('=').is_some_and(|(set, _)| set == name));
    let chosen = args.cwd.as_deref();
    for step in &mut request.steps {
        let has_session = step.session.is_some() || matches!(step.param, Some(Param::Space(_)));
        for (name, value) in &env {
            if is_set(name) || !step.env.contains_key(name) {
                // In a session the texts of a step hold references, and what is inherited has none.
                let value = if has_session { escape_references(value).into_owned() } else { value.clone() };
                step.env.insert(name.clone(), value);
            }
        }
        let has_files = step.files.is_some();
        if chosen.is_some() || (step.cwd.is_none() && !has_session) {
            step.cwd = Some(directory_of(chosen, has_files)?);
        }
        match_directory(&mut step.env, step.cwd.as_deref().filter(|_| !has_files));
        if args.umask.is_some() || step.umask.is_none() {
            step.umask = args.umask();
        }
        step.tags.extend(args.tag.iter().cloned());
        if !args.worker.is_empty() {
            step.workers.clone_from(&args.worker);
        }
        if args.retries > 0 {
            step.retries = args.retries;
        }
        args.hints.put_on(step);
    }
    request.name = args.name.clone().or(request.name);
    request.queue = args.queue.clone().or(request.queue);
    if args.priority != 0 {
        request.priority = args.priority;
    }
    request.key = Some(args.key.clone().or(request.key).unwrap_or_else(fresh_key));
    args.order.put_on(&mut request);
    request.on_end.extend(args.told.addresses());
    request.max_running = args.max_running.or(request.max_running);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::By;

    const YAML: &str = "# a job\nkind: windlass/job\nname: film\nsteps:\n- name: render\n  command: [render, '{}']\n  \
                        param: {range: {start: 1, end: 9}}\n  resources:\n    cpus: 2\n- name: join\n  command: [join]\n  \
                        depends:\n  - on: render\n";
    const TOML: &str = "kind = \"windlass/job\"\nname = \"film\"\n\n[[steps]]\nname = \"render\"\ncommand = [\"render\", \
                        \"{}\"]\nparam.range = { start = 1, end = 9 }\n\n[steps.resources]\ncpus = 2\n\n[[steps]]\nname = \
                        \"join\"\ncommand = [\"join\"]\ndepends = [{ on = \"render\" }]\n";
    const JSON: &str = r#"{"kind": "windlass/job", "name": "film",
 "steps": [
  {"name": "render", "command": ["render", "{}"], "param": {"range": {"start": 1, "end": 9}},
   "resources": {"cpus": 2}},
  {"name": "join", "command": ["join"], "depends": [{"on": "render"}]}]}"#;

    fn read(name: &str, text: &str) -> Result<Option<SubmitRequest>, String> {
        read_all(name, text).map(|job| job.map(|job| job.request))
    }

    fn read_all(name: &str, text: &str) -> Result<Option<JobInFile>, String> {
        JobFile { name, text }.read().map_err(|error| error.message())
    }

    #[test]
    fn the_three_syntaxes_say_the_same() {
        let files = [
            ("a.yaml", YAML),
            ("a.toml", TOML),
            ("a.json", JSON),
            ("standard input", YAML),
            ("standard input", TOML),
        ];
        let read: Vec<SubmitRequest> =
            files.iter().map(|(name, text)| read(name, text).unwrap().unwrap()).collect();
        let first = serde_json::to_value(&read[0]).unwrap();
        for (request, (name, _)) in read.iter().zip(files) {
            assert_eq!(serde_json::to_value(request).unwrap(), first, "{name}");
        }
        assert_eq!((read[0].name.as_deref(), read[0].steps.len()), (Some("film"), 2));
        assert_eq!(read[0].steps[1].depends[0].by, By::Step);
        assert_eq!(read[0].steps[0].resources.as_ref().map(|amounts| amounts.cpus), Some(2.0));
    }

    #[test]
    fn a_mistake_is_said_with_its_file_line_and_path() {
        for (name, text, says) in [
            (
                "a.yaml",
                YAML.replace("  command: [j", "  commnd: [j"),
                "a.yaml:11: steps[1] -> commnd: unknown field",
            ),
            ("a.yaml", YAML.replace("  command: [j", "  commnd: [j"), "did you mean 'command'?"),
            (
                "a.toml",
                TOML.replace("command = [\"j", "commnd = [\"j"),
                "a.toml:14: steps[1] -> commnd: unknown",
            ),
            (
                "a.json",
                JSON.replace("\"cpus\": 2", "\"cpu\": 2"),
                "a.json:4: steps[0] -> resources -> cpu: unknown",
            ),
            ("a.json", JSON.replace("\"cpus\": 2", "\"cpu\": 2"), "did you mean 'cpus'?"),
            (
                "a.yaml",
                YAML.replace("cpus: 2", "cpus: two"),
                "a.yaml:9: steps[0] -> resources -> cpus: it takes a number, not \"two\"",
            ),
            (
                "a.yaml",
                YAML.replace("[join]", "[1]"),
                "a.yaml:11: steps[1] -> command[0]: it takes a text, not 1",
            ),
            ("a.yaml", YAML.replace("[join]", "[1]"), "write it in quotes"),
            (
                "a.yaml",
                YAML.replace("on: render", "on: rendr"),
                "a.yaml:10: steps[1]: step 'join' depends on 'rendr'",
            ),
            (
                "a.toml",
                TOML.replace("cpus = 2", "cpus = -1"),
                "a.toml:4: steps[0]: step 'render': cpus must be",
            ),
            ("a.yaml", YAML.replace("windlass/job", "windlass/jobs"), "a.yaml:2: kind: this release reads"),
            ("a.toml", TOML.replace("cpus = 2", "cpus = = 2"), "a.toml:10: this is not TOML"),
            (
                "a.yaml",
                YAML.replace("steps:", "stps:"),
                "a.yaml:4: stps: unknown field 'stps'; did you mean 'steps'?",
            ),
        ] {
            let said = read(name, &text).unwrap_err();
            assert!(said.contains(says), "{said}\nlacks {says}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_said_without_names_of_types() {
        let cases = [
            ("invalid type: integer `3`, expected struct StepRequest", "it takes fields with values, not 3"),
            (
                "invalid length 0, expected struct SubmitRequest with 17 elements",
                "it takes fields with values, not a list of 0",
            ),
            ("invalid value: integer `-1`, expected u32", "it takes a whole number, 0 or more, not -1"),
            (
                "invalid type: string \"ls, expected x\", expected a sequence",
                "it takes a list, not \"ls, expected x\"",
            ),
            ("invalid type: map, expected a boolean", "it takes true or false, not fields with values"),
        ];
        for (said, shown) in cases {
            assert_eq!(wrong_value(said).as_deref(), Some(shown));
        }
        assert_eq!(reason_of("missing field `command`").0, "missing field 'command'");
    }

    #[test]
    fn a_file_says_of_which_form_it_is() {
        let said = read("a.yaml", &YAML.replace("kind: windlass/job\n", "")).unwrap_err();
        assert!(said.contains("add kind: windlass/job") && said.contains("specificationVersion"), "{said}");
        assert!(
            read("a.yaml", "specificationVersion: jobtemplate-2023-09\nkind: x\nsteps: []\n")
                .unwrap()
                .is_none()
        );
        for other in ["", "name: x\n", "[a, b]", "a: [", "suite: x\n"] {
            assert!(read("a.yaml", other).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn steps_name_files_of_this_machine() {
        let text = "kind: windlass/job\nsteps:\n- command: [x]\n- name: link\n  command: [cc]\n  files:\n    \
                    inputs: [src, 'lib=../lib']\n    stdin_file: params\n    outputs: [app]\n";
        let job = read_all("a.yaml", text).unwrap().unwrap();
        let files = job.request.steps[1].files.clone().unwrap();
        assert_eq!(
            (files.outputs, files.root, &job.request.steps[0].files),
            (vec!["app".to_owned()], None, &None)
        );
        let expected = StepInputs {
            step: 1,
            inputs: vec!["src".to_owned(), "lib=../lib".to_owned()],
            no_ignore: false,
            stdin_file: Some("params".to_owned()),
        };
        assert_eq!(job.inputs, [expected]);
        let plain = with_flags(job.request, &TaskArgs::default(), Inherit::Nothing).unwrap();
        assert_eq!(plain.steps[1].cwd.as_deref(), Some("."));
        for (from, to, says) in [
            ("[src,", "[1,", "a.yaml:7: steps[1] -> files -> inputs[0]: it takes a text, not 1"),
            (
                "stdin_file: params",
                "stdin_fil: params",
                "a.yaml:8: steps[1] -> files -> stdin_fil: unknown field",
            ),
            ("stdin_file: params", "root: x", "a.yaml:6: steps[1] -> files: inputs becomes root when"),
        ] {
            let said = read_all("a.yaml", &text.replace(from, to)).unwrap_err();
            assert!(said.contains(says), "{said}\nlacks {says}");
        }
    }

    #[test]
    fn flags_stand_over_the_file() {
        let text = "kind: windlass/job\nqueue: film\npriority: 3\nsteps:\n- command: [x]\n  env: {A: file, B: file}\n  \
                    cwd: /film\n  limits: [maya]\n- command: [z]\n  session: {}\n";
        let request = read("a.yaml", text).unwrap().unwrap();
        let plain = with_flags(request.clone(), &TaskArgs::default(), Inherit::Nothing).unwrap();
        assert_eq!((plain.queue.as_deref(), plain.priority), (Some("film"), 3));
        assert_eq!((plain.steps[0].cwd.as_deref(), &plain.steps[1].cwd), (Some("/film"), &None));
        assert!(plain.key.is_some() && plain.steps[0].limits == ["maya"]);
        let args = TaskArgs {
            queue: Some("other".to_owned()),
            env: vec!["A=flag".to_owned()],
            cwd: Some("/tmp".into()),
            retries: 2,
            ..TaskArgs::default()
        };
        let flagged = with_flags(request.clone(), &args, Inherit::Nothing).unwrap();
        let step = &flagged.steps[0];
        assert_eq!(
            (flagged.queue.as_deref(), step.cwd.as_deref(), step.retries),
            (Some("other"), Some("/tmp"), 2)
        );
        assert_eq!((step.env["A"].as_str(), step.env["B"].as_str()), ("flag", "file"));
        let mut with_param = TaskArgs::default();
        with_param.template.param.push("Frames=1".to_owned());
        assert!(
            with_flags(request, &with_param, Inherit::Nothing).unwrap_err().message().contains("templates")
        );
    }
}
