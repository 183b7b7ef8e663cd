//! The arguments of the tools. What they mean is decided where the flags of the commands are read.

use crate::commands::args::TaskArgs;
use crate::commands::array::parse_array;
use crate::commands::builds::{JobserverArg, JobserverArgs};
use crate::commands::hints::{HintArgs, parse_cpus_or_auto};
use crate::commands::order::OrderArgs;
use crate::commands::select::Jobs;
use crate::ui::error::CliError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_api::quantity::{parse_duration, parse_size};

/// Entries of a page, by default and at most.
const PAGE_DEFAULT: usize = 20;
const PAGE_MAX: usize = 100;
/// Lines of a stream, by default and at most.
const LINES_DEFAULT: u32 = 100;
const LINES_MAX: u32 = 1_000;
/// Seconds of a wait, by default and at most. Many clients give a call 60 s.
const WAIT_DEFAULT_S: u64 = 45;
const WAIT_MAX_S: u64 = 3_600;

/// What to run, and what it needs: the arguments of `submit` and `preview`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkArguments {
    command: Vec<String>,
    script: Option<String>,
    cwd: Option<PathBuf>,
    name: Option<String>,
    cpus: Option<Amount>,
    memory: Option<String>,
    gpus: u32,
    jobserver: Option<bool>,
    time_limit: Option<Amount>,
    each: Option<Vec<String>>,
    array: Option<Amount>,
    max_running: Option<NonZeroU32>,
    retries: u32,
    queue: Option<String>,
    priority: i32,
    env: BTreeMap<String, String>,
    after: Vec<GivenId>,
    after_any: Vec<GivenId>,
    tags: Vec<String>,
    limits: Vec<String>,
    key: Option<String>,
}

/// The arguments of `wait`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitArguments {
    pub job: GivenId,
    seconds: Option<u64>,
}

/// The arguments of `why`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyArguments {
    pub id: GivenId,
}

/// The arguments of `logs`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsArguments {
    pub id: GivenId,
    lines: Option<u32>,
    stream: Option<WantedStream>,
    pub attempt: Option<u32>,
}

/// The streams that `logs` reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WantedStream {
    Both,
    Stdout,
    Stderr,
}

/// The arguments of `cancel`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelArguments {
    pub job: GivenId,
    pub tasks: Option<GivenId>,
}

/// The arguments of `list`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListArguments {
    pub state: Vec<String>,
    pub user: Option<String>,
    pub queue: Option<String>,
    pub name: Option<String>,
    pub limit: PageLimit,
    pub cursor: Option<String>,
}

/// The arguments of `tasks`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TasksArguments {
    pub job: GivenId,
    #[serde(default)]
    pub state: Vec<String>,
    #[serde(default)]
    pub limit: PageLimit,
    pub cursor: Option<String>,
}

/// The arguments of `show`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowArguments {
    pub job: GivenId,
}

/// The arguments of `workers`, which has none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// A job, a task or a set of tasks. A model may write the number of a job as a number. A task is a text: the number
/// 12.30 would be task 3.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, such as \"12\" or \"12.3\"")]
pub enum GivenId {
    Text(String),
    Number(u64),
}

/// An amount, as a text or as a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, such as \"2\" or \"1h\"")]
enum Amount {
    Text(String),
    Number(f64),
}

/// The number of entries of a page that is asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct PageLimit(Option<usize>);

/// Reads the arguments of a call.
pub fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, CliError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| CliError::Usage {
        message: format!("these arguments are not those of the tool: {error}"),
        hint: Some("tools/list has the schema of its arguments".to_owned()),
    })
}

impl WorkArguments {
    /// The same as flags of `windlass submit`.
    pub fn task_args(self) -> Result<TaskArgs, CliError> {
        if self.each.is_some() && self.array.is_some() {
            return Err(CliError::usage(
                "each and array both name the values of the tasks: give one of them",
            ));
        }
        let command = match (self.command.is_empty(), self.script) {
            (false, None) => self.command,
            (true, Some(script)) => {
                let mut command = vec!["sh".to_owned(), "-c".to_owned(), script];
                // The value of a task comes after the name that the script has, and is its first argument.
                command.extend(self.each.is_some().then(|| "sh".to_owned()));
                command
            }
            _ => return Err(CliError::usage("give either command, a list of texts, or script, a text")),
        };
        let sets = |(name, value): (&String, &String)| match name.contains('=') || name.is_empty() {
            true => Err(CliError::usage(format!("env: '{name}' is not a name of a variable"))),
            false => Ok(format!("{name}={value}")),
        };
        Ok(TaskArgs {
            command,
            cwd: self.cwd,
            name: self.name,
            cpus: amount("cpus", self.cpus, parse_cpus_or_auto)?,
            memory: self.memory.map(|text| parse_size(&text).map_err(|e| bad("memory", e))).transpose()?,
            gpus: self.gpus,
            jobserver: JobserverArgs {
                jobserver: self.jobserver.filter(|wanted| *wanted).map(|_| JobserverArg::Auto),
                no_jobserver: self.jobserver == Some(false),
            },
            time_limit: amount("time_limit", self.time_limit, parse_duration)?,
            each: self.each,
            array: amount("array", self.array, parse_array)?,
            max_running: self.max_running.map(NonZeroU32::get),
            retries: self.retries,
            queue: self.queue,
            priority: self.priority,
            env: self.env.iter().map(sets).collect::<Result<_, _>>()?,
            after: self.after.iter().map(|id| id.parsed::<Jobs>("after")).collect::<Result<_, _>>()?,
            order: OrderArgs {
                after_any: self
                    .after_any
                    .iter()
                    .map(|id| id.parsed::<Jobs>("after_any"))
                    .collect::<Result<_, _>>()?,
                ..OrderArgs::default()
            },
            tag: self.tags,
            hints: HintArgs { limit: self.limits, ..HintArgs::default() },
            key: self.key,
            ..TaskArgs::default()
        })
    }
}

impl WaitArguments {
    /// How long to wait at most.
    pub fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(WAIT_DEFAULT_S).min(WAIT_MAX_S)
    }
}

impl LogsArguments {
    /// The number of last lines of each stream.
    pub fn lines(&self) -> u32 {
        self.lines.unwrap_or(LINES_DEFAULT).clamp(1, LINES_MAX)
    }

    /// True if the stream of this name is wanted.
    pub fn wants(&self, stream: &str) -> bool {
        match self.stream.unwrap_or(WantedStream::Both) {
            WantedStream::Both => true,
            WantedStream::Stdout => stream == "stdout",
            WantedStream::Stderr => stream == "stderr",
        }
    }
}

impl PageLimit {
    /// The number of entries to ask for first.
    pub fn entries(self) -> usize {
        self.0.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX)
    }
}

impl GivenId {
    /// What it names; `argument` is where it was given.
    pub fn parsed<T: FromStr>(&self, argument: &str) -> Result<T, CliError>
    where
        T::Err: Display,
    {
        let text = match self {
            GivenId::Text(text) => text.clone(),
            GivenId::Number(number) => number.to_string(),
        };
        text.parse().map_err(|error| bad(argument, error))
    }
}

fn amount<T, E: Display>(
    argument: &str,
    given: Option<Amount>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, CliError> {
    let text = match given {
        None => return Ok(None),
        Some(Amount::Text(text)) => text,
        Some(Amount::Number(number)) => number.to_string(),
    };
    parse(&text).map(Some).map_err(|error| bad(argument, error))
}

fn bad(argument: &str, error: impl Display) -> CliError {
    CliError::usage(format!("{argument}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::args::Inherit;
    use crate::commands::mcp::answer::fields_of;
    use crate::commands::mcp::tools::Tool;
    use serde_json::json;
    use windlass_api::{JobserverRequest, SubmitRequest};

    fn request(arguments: Value) -> Result<SubmitRequest, String> {
        let work: WorkArguments = read(fields_of(arguments)).map_err(|error| error.message())?;
        let tasks = work.task_args().map_err(|error| error.message())?;
        tasks.request(Inherit::Nothing).map_err(|error| error.message())
    }

    /// The names that a refusal of an unknown argument lists.
    fn known(tool: Tool) -> Vec<String> {
        let odd = || fields_of(json!({"zz": 1}));
        let said = match tool {
            Tool::Submit | Tool::Preview => read::<WorkArguments>(odd()).map(|_| ()),
            Tool::Wait => read::<WaitArguments>(odd()).map(|_| ()),
            Tool::Why => read::<WhyArguments>(odd()).map(|_| ()),
            Tool::Logs => read::<LogsArguments>(odd()).map(|_| ()),
            Tool::Cancel => read::<CancelArguments>(odd()).map(|_| ()),
            Tool::List => read::<ListArguments>(odd()).map(|_| ()),
            Tool::Tasks => read::<TasksArguments>(odd()).map(|_| ()),
            Tool::Show => read::<ShowArguments>(odd()).map(|_| ()),
            Tool::Workers => read::<NoArguments>(odd()).map(|_| ()),
        };
        let said = said.unwrap_err().message();
        let quoted = said.split('`').skip(1).step_by(2).filter(|name| *name != "zz");
        let mut names: Vec<String> = quoted.map(str::to_owned).collect();
        names.sort();
        names
    }

    #[test]
    fn the_schemas_have_the_arguments_that_are_read() {
        for tool in Tool::ALL {
            let schema = tool.input();
            let names: Vec<String> = schema["properties"].as_object().unwrap().keys().cloned().collect();
            assert_eq!(names, known(tool), "{}", tool.name());
        }
    }

    #[test]
    fn work_is_what_the_flags_of_submit_say() {
        let full = json!({
            "command": ["cc", "-c"], "each": ["a.c", "-b.c"], "cwd": "/films", "name": "n", "cpus": "2-16",
            "memory": "2GiB", "gpus": 1, "time_limit": 90, "max_running": 3, "retries": 2, "queue": "q",
            "priority": -1, "env": {"A": "x=y"}, "tags": ["linux"], "limits": ["maya"], "key": "k",
        });
        let request = request(full).unwrap();
        assert_eq!((request.name.as_deref(), request.queue.as_deref()), (Some("n"), Some("q")));
        assert_eq!((request.key.as_deref(), request.priority, request.max_running), (Some("k"), -1, Some(3)));
        let step = &request.steps[0];
        assert_eq!(step.command, ["cc", "-c", "{}"]);
        assert_eq!((step.cwd.as_deref(), step.retries), (Some("/films"), 2));
        let resources = step.resources.clone().unwrap();
        assert_eq!((resources.cpus, resources.memory, resources.gpus), (2.0, 2 << 30, 1));
        assert_eq!((step.cpus_max, step.time_limit_ms), (Some(16.0), Some(90_000)));
        assert_eq!(step.env.get("A").map(String::as_str), Some("x=y"));
        assert_eq!((&step.tags[..], &step.limits[..]), (&["linux".to_owned()][..], &["maya".to_owned()][..]));
    }

    #[test]
    fn builds_have_a_jobserver_as_on_the_command_line() {
        let of = |arguments| request(arguments).unwrap().steps.remove(0).jobserver;
        assert_eq!(of(json!({"command": ["./build"], "jobserver": true})), Some(JobserverRequest::Auto));
        assert_eq!(of(json!({"command": ["./build"]})), None);
        assert_eq!(of(json!({"command": ["ninja"], "jobserver": false})), Some(JobserverRequest::None));
    }

    #[test]
    fn a_script_gets_its_value_as_its_first_argument() {
        let of = |arguments| request(arguments).unwrap().steps.remove(0).command;
        assert_eq!(of(json!({"script": "make && make test"})), ["sh", "-c", "make && make test"]);
        assert_eq!(of(json!({"script": "cc $1", "each": ["a"]})), ["sh", "-c", "cc $1", "sh", "{}"]);
        assert_eq!(of(json!({"command": ["--help"]})), ["--help"], "a command is never read as flags");
    }

    #[test]
    fn mistakes_name_the_argument() {
        for (arguments, said) in [
            (json!({}), "give either command"),
            (json!({"command": ["a"], "script": "b"}), "give either command"),
            (json!({"command": "make"}), "command: invalid type"),
            (json!({"command": ["a"], "each": [], "array": "1"}), "give one of them"),
            (json!({"command": ["a"], "cpus": "many"}), "cpus: "),
            (json!({"command": ["a"], "cpus": true}), "expected a text"),
            (json!({"command": ["a"], "memory": 5}), "memory: invalid type"),
            (json!({"command": ["a"], "memory": "much"}), "memory: "),
            (json!({"command": ["a"], "array": "x"}), "array: "),
            (json!({"command": ["a"], "max_running": 0}), "max_running: "),
            (json!({"command": ["a"], "env": {"A=B": "1"}}), "env: 'A=B'"),
            (json!({"command": ["a"], "after": ["x"]}), "after: "),
            (json!({"command": ["a"], "comand": 1}), "unknown field `comand`"),
        ] {
            let error = request(arguments.clone()).unwrap_err();
            assert!(error.contains(said), "{arguments}: {error}");
        }
    }

    #[test]
    fn ids_are_texts_and_jobs_may_be_numbers() {
        let id = |id: Value| read::<WhyArguments>(fields_of(json!({"id": id})));
        let parsed = |value: Value| id(value).unwrap().id.parsed::<u64>("id").ok();
        assert_eq!((parsed(json!("12")), parsed(json!(12)), parsed(json!("x"))), (Some(12), Some(12), None));
        assert!(id(json!(12.3)).unwrap_err().message().contains("expected a text"));
    }

    #[test]
    fn amounts_have_bounds() {
        let wait = |seconds: Value| {
            read::<WaitArguments>(fields_of(json!({"job": "1", "seconds": seconds}))).unwrap()
        };
        assert_eq!(wait(json!(null)).seconds(), WAIT_DEFAULT_S);
        assert_eq!((wait(json!(0)).seconds(), wait(json!(1_000_000)).seconds()), (0, WAIT_MAX_S));
        let limit =
            |limit: Value| read::<ListArguments>(fields_of(json!({"limit": limit}))).unwrap().limit.entries();
        assert_eq!((limit(json!(null)), limit(json!(0)), limit(json!(9_999))), (PAGE_DEFAULT, 1, PAGE_MAX));
        let logs = |fields: Value| read::<LogsArguments>(fields_of(fields)).unwrap();
        assert_eq!(logs(json!({"id": "1", "lines": 5000})).lines(), LINES_MAX);
        let err = logs(json!({"id": "1", "stream": "stderr"}));
        assert!(err.wants("stderr") && !err.wants("stdout") && err.lines() == LINES_DEFAULT);
    }
}
