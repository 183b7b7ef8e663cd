//! Conversion of a checked job of the model's library into a submission. Each step becomes a step with a
//! session, each parameter space a [`Space`]. References to the job's parameters are filled in; others stay
//! for the worker. Chunks and a deferred cancelation mode are errors, with their path. The maximum of an
//! amount other than cpus has no effect.

use crate::library_faults::shown;
use crate::locate::Key;
use crate::options::Options;
use openjd_model::job::{self, Job, ResolvedChunks, TaskParamRange, TaskParameter};
use openjd_model::template::RangeConstraint;
use openjd_model::{FormatString, JobParameterType, JobParameterValues};
use std::borrow::Cow;
use std::collections::BTreeMap;
use windlass_api::{
    Action, By, Cancel, ChunkRange, ChunksRequest, Combination, Depends, EmbeddedFile, Environment, Param,
    Range, Resources, Session, Space, StepRequest, SubmitRequest, TaskParam, Values, escape_references,
    fill_references, map_path,
};

/// Milliseconds from notification to kill of a task, where the template names none. The specification's default.
const NOTIFY_TASK_MS: u64 = 120_000;
/// The same for an action of an environment.
const NOTIFY_ENVIRONMENT_MS: u64 = 30_000;
const MIB: f64 = 1_048_576.0;

/// A part of the job that Windlass cannot express: its path, and the reason.
type Unsaid = (Vec<Key>, String);

/// The submission of a job with these values of its parameters.
pub fn request(job: &Job, values: &JobParameterValues, options: &Options) -> Result<SubmitRequest, Unsaid> {
    let mut known = BTreeMap::new();
    for (name, value) in values {
        let raw = value.value.to_display_string();
        let mapped = match value.param_type {
            JobParameterType::Path => map_path(&options.path_mapping, &raw).into_owned(),
            _ => raw.clone(),
        };
        known.insert(format!("Param.{name}"), mapped);
        known.insert(format!("RawParam.{name}"), raw);
    }
    let converter = Converter { known, job, options };
    let steps = job.steps.iter().enumerate().map(|(n, step)| converter.step(n, step));
    Ok(SubmitRequest {
        name: Some(job.name.clone()),
        steps: steps.collect::<Result<_, _>>()?,
        ..Default::default()
    })
}

struct Converter<'a> {
    /// Values of references to the job's parameters, by `Param.NAME` and `RawParam.NAME`.
    known: BTreeMap<String, String>,
    job: &'a Job,
    options: &'a Options,
}

impl Converter<'_> {
    fn step(&self, n: usize, step: &job::Step) -> Result<StepRequest, Unsaid> {
        let at = |fields: &[&str]| {
            let fields = fields.iter().map(|field| Key::Field((*field).to_owned()));
            [Key::Field("steps".to_owned()), Key::Index(n)].into_iter().chain(fields).collect::<Vec<_>>()
        };
        let run = &step.script.actions.on_run;
        let action =
            self.action(run, NOTIFY_TASK_MS).map_err(|why| (at(&["script", "actions", "onRun"]), why))?;
        let environments = |list: &Option<Vec<job::Environment>>, path: Vec<Key>| {
            let each =
                list.iter().flatten().map(|one| self.environment(one).map_err(|why| (path.clone(), why)));
            each.collect::<Result<Vec<_>, _>>()
        };
        let job_environments = vec![Key::Field("jobEnvironments".to_owned())];
        let mut entered = environments(&self.job.job_environments, job_environments)?;
        entered.extend(environments(&step.step_environments, at(&["stepEnvironments"]))?);
        let session = Session {
            files: self.files(&step.script.embedded_files),
            environments: entered,
            cancel: action.cancel,
            path_mapping: self.options.path_mapping.clone(),
        };
        let space = step.parameter_space.as_ref().map(space).transpose();
        let space = space.map_err(|why| (at(&["parameterSpace"]), why))?;
        let chunks = step.parameter_space.as_ref().and_then(chunks);
        let depends = step.dependencies.iter().flatten();
        let (resources, cpus_max) = resources(step.host_requirements.as_ref());
        Ok(StepRequest {
            name: Some(shown(&step.name)),
            command: action.command,
            env: self.options.env.clone(),
            param: space.map(Param::Space),
            chunks,
            resources: Some(resources),
            cpus_max,
            tags: tags(step.host_requirements.as_ref()),
            time_limit_ms: action.timeout_ms,
            depends: depends.map(|d| Depends { on: shown(&d.depends_on), by: By::Step }).collect(),
            session: Some(session),
            ..Default::default()
        })
    }

    fn environment(&self, from: &job::Environment) -> Result<Environment, String> {
        let variables = from.variables.iter().flatten();
        let action = |action: Option<&job::Action>| {
            action.map(|action| self.action(action, NOTIFY_ENVIRONMENT_MS)).transpose()
        };
        let actions = from.script.as_ref().map(|script| &script.actions);
        Ok(Environment {
            name: from.name.clone(),
            variables: variables.map(|(name, value)| (name.clone(), self.text(value))).collect(),
            files: from.script.as_ref().map(|script| self.files(&script.embedded_files)).unwrap_or_default(),
            on_enter: action(actions.and_then(|actions| actions.on_enter.as_ref()))?,
            on_exit: action(actions.and_then(|actions| actions.on_exit.as_ref()))?,
        })
    }

    fn action(&self, from: &job::Action, notify_ms: u64) -> Result<Action, String> {
        let seconds = |text: &FormatString| {
            let text = self.text(text);
            text.parse::<u64>().map_err(|_| format!("'{text}' is not a number of seconds"))
        };
        let cancel = match &from.cancelation {
            None | Some(job::CancelationMode::Terminate) => Cancel::Terminate,
            Some(job::CancelationMode::NotifyThenTerminate { notify_period_in_seconds }) => {
                Cancel::NotifyThenTerminate(match notify_period_in_seconds {
                    Some(text) => seconds(text)?.saturating_mul(1000),
                    None => notify_ms,
                })
            }
            Some(job::CancelationMode::DeferredMode { mode, .. }) => {
                return Err(format!(
                    "the cancelation mode '{}' is not known before the action runs",
                    mode.raw()
                ));
            }
        };
        let timeout = from.timeout.as_ref().map(seconds).transpose()?;
        let arguments = from.args.iter().flatten();
        Ok(Action {
            command: std::iter::once(&from.command).chain(arguments).map(|text| self.text(text)).collect(),
            timeout_ms: timeout.map(|s| s.saturating_mul(1000)),
            cancel: Some(cancel),
        })
    }

    fn files(&self, from: &Option<Vec<job::EmbeddedFile>>) -> Vec<EmbeddedFile> {
        let each = from.iter().flatten().map(|file| EmbeddedFile {
            name: file.name.clone(),
            filename: file.filename.clone(),
            data: file.data.as_ref().map(|data| self.text(data)).unwrap_or_default(),
            runnable: file.runnable.unwrap_or(false),
        });
        each.collect()
    }

    /// The text with the job's parameters filled in. Values are escaped, so that none is read as a reference.
    fn text(&self, from: &FormatString) -> String {
        fill_references(from.raw(), |name| {
            self.known.get(name).map(|value| Cow::Owned(escape_references(value).into_owned()))
        })
    }
}

/// The parameter space of a step, with ranges as the template has them.
pub fn space(from: &job::StepParameterSpace) -> Result<Space, String> {
    let params = from.task_parameter_definitions.iter().map(|(name, param)| {
        let path = matches!(param, TaskParameter::Path { .. });
        let values = match param {
            TaskParameter::Int { range: TaskParamRange::RangeExpr(range), .. }
            | TaskParameter::ChunkInt { range: TaskParamRange::RangeExpr(range), .. } => {
                let ranges = range.ranges().iter();
                let ranges = ranges.map(|r| Range { start: r.start(), end: r.end(), step: r.step() });
                Values::Ranges(ranges.collect())
            }
            TaskParameter::Int { range: TaskParamRange::List(range), .. }
            | TaskParameter::ChunkInt { range: TaskParamRange::List(range), .. } => {
                Values::List(range.iter().map(ToString::to_string).collect())
            }
            TaskParameter::Float { range } => {
                Values::List(range.iter().map(|value| value.to_display_string()).collect())
            }
            TaskParameter::String { range } | TaskParameter::Path { range } => Values::List(range.clone()),
        };
        Ok(TaskParam { name: name.clone(), path, values })
    });
    let mut params = params.collect::<Result<Vec<_>, String>>()?;
    let mut combination = from.combination.as_deref().map(combination).transpose()?;
    if let Some((name, _)) = chunked(from) {
        // Tasks of one chunk follow each other: its parameter varies fastest.
        params.sort_by_key(|param| param.name == name);
        if let Some(Combination::Product(parts)) = &mut combination {
            parts.sort_by_key(|part| matches!(part, Combination::Param(param) if param == name));
        }
    }
    Ok(Space { params, combination })
}

/// The parameter that is in chunks, and how.
fn chunked(from: &job::StepParameterSpace) -> Option<(&str, &ResolvedChunks)> {
    from.task_parameter_definitions.iter().find_map(|(name, param)| match param {
        TaskParameter::ChunkInt { chunks, .. } | TaskParameter::Int { chunks: Some(chunks), .. } => {
            Some((name.as_str(), chunks))
        }
        _ => None,
    })
}

/// The chunks of a step, if it has some. With a target run time their size is learned; without, it is fixed.
fn chunks(from: &job::StepParameterSpace) -> Option<ChunksRequest> {
    let (name, chunks) = chunked(from)?;
    let target_s = chunks.target_runtime_seconds.filter(|seconds| *seconds > 0);
    Some(ChunksRequest {
        tasks: Some(u32::try_from(chunks.default_task_count).unwrap_or(u32::MAX)),
        target_ms: target_s.map(|seconds| (seconds as u64).saturating_mul(1_000)),
        param: Some(name.to_owned()),
        range: Some(match chunks.range_constraint {
            RangeConstraint::Contiguous => ChunkRange::Contiguous,
            RangeConstraint::Noncontiguous => ChunkRange::Noncontiguous,
        }),
        ..ChunksRequest::default()
    })
}

/// Parses a combination such as `A * (B, C)`, which the library has already checked.
fn combination(text: &str) -> Result<Combination, String> {
    let mut rest = text;
    let whole = product(&mut rest)?;
    if rest.trim().is_empty() { Ok(whole) } else { Err(format!("'{rest}' is left over in '{text}'")) }
}

fn product(rest: &mut &str) -> Result<Combination, String> {
    let mut parts = vec![element(rest)?];
    while take(rest, '*') {
        parts.push(element(rest)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Combination::Product(parts) })
}

fn element(rest: &mut &str) -> Result<Combination, String> {
    if take(rest, '(') {
        let mut parts = vec![product(rest)?];
        while take(rest, ',') {
            parts.push(product(rest)?);
        }
        return if take(rest, ')') {
            Ok(Combination::Association(parts))
        } else {
            Err("a ')' is missing".to_owned())
        };
    }
    let text = rest.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    *rest = after;
    if name.is_empty() {
        Err("a parameter is missing".to_owned())
    } else {
        Ok(Combination::Param(name.to_owned()))
    }
}

fn take(rest: &mut &str, c: char) -> bool {
    let after = rest.trim_start().strip_prefix(c);
    after.inspect(|after| *rest = after).is_some()
}

/// The request of a task: the minimum of each amount in the template, and one cpu if it names none. Memory is
/// in MiB there and in bytes here. Besides, the most cpus, if it names more than the least.
fn resources(from: Option<&job::HostRequirements>) -> (Resources, Option<f64>) {
    let mut resources = Resources { cpus: 1.0, ..Default::default() };
    let mut cpus_max = None;
    for amount in from.and_then(|from| from.amounts.as_ref()).into_iter().flatten() {
        let name = amount.name.to_lowercase();
        if name == "amount.worker.vcpu" {
            cpus_max = amount.max;
            // A maximum alone leaves one cpu as the least, or less if it is less.
            resources.cpus = amount.min.or(amount.max.map(|max| max.min(1.0))).unwrap_or(1.0);
            continue;
        }
        let Some(min) = amount.min else { continue };
        match name.as_str() {
            "amount.worker.memory" => resources.memory = (min * MIB).ceil() as u64,
            "amount.worker.gpu" => resources.gpus = min.ceil() as u32,
            "amount.worker.gpu.memory" => resources.gpu_memory = (min * MIB).ceil() as u64,
            other => {
                let own = other.strip_prefix("amount.").unwrap_or(other);
                let own = own.strip_prefix("worker.").unwrap_or(own);
                resources.custom.insert(own.to_owned(), min.ceil() as u64);
            }
        }
    }
    let cpus_max = cpus_max.filter(|max| *max > resources.cpus);
    (resources, cpus_max)
}

/// The attributes that a worker must have, in Windlass's names: `os`, `arch`, and others without their prefix.
fn tags(from: Option<&job::HostRequirements>) -> Vec<String> {
    let mut tags = Vec::new();
    for attribute in from.and_then(|from| from.attributes.as_ref()).into_iter().flatten() {
        let name = attribute.name.to_lowercase();
        let own = match name.as_str() {
            "attr.worker.os.family" => "os",
            "attr.worker.cpu.arch" => "arch",
            other => {
                let own = other.strip_prefix("attr.").unwrap_or(other);
                own.strip_prefix("worker.").unwrap_or(own)
            }
        };
        let value = |value: &String| match (own, value.as_str()) {
            ("arch", "arm64") => "aarch64".to_owned(),
            _ => value.clone(),
        };
        if let Some(any) = &attribute.any_of {
            tags.push(format!("{own}={}", any.iter().map(value).collect::<Vec<_>>().join("|")));
        }
        tags.extend(attribute.all_of.iter().flatten().map(|one| format!("{own}={}", value(one))));
    }
    tags
}
