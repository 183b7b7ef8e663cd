//! The flags that `run` and `submit` share, and the request made from them.

use crate::client::user::user_on;
use crate::commands::array::{ArrayArg, parse_array};
use crate::commands::builds::{JobserverArgs, leave_out_jobserver};
use crate::commands::files::args::{FileArgs, directory_inside};
use crate::commands::hints::{CpusArg, HintArgs, parse_cpus_or_auto};
use crate::commands::on_end::OnEndArgs;
use crate::commands::order::OrderArgs;
use crate::commands::select::{Jobs, resolve_all};
use crate::commands::tips;
use crate::system;
use crate::ui::error::{CliError, Doing};
use crate::ui::lines::{self, Separator};
use crate::ui::message::message;
use clap::Args;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use windlass_api::client::{Address, Client};
use windlass_api::quantity::{parse_duration, parse_size, parse_umask, umask_text};
use windlass_api::{Addresses, ChunksRequest, Param, Resources, StepRequest, SubmitRequest};
use windlass_core::TaskId;
use windlass_core::job::BUILD_CPU;

/// Replacement strings for the task's value in a command, as in GNU parallel.
const REPLACEMENTS: [&str; 5] = ["{}", "{.}", "{/}", "{//}", "{/.}"];

/// What to run, how often, and what it needs.
#[derive(Args, Clone, Debug, Default)]
pub struct TaskArgs {
    /// Run the command once for each of these values, up to `--`; may be repeated. Write a value that starts with a
    /// dash as --each=-x
    #[arg(
        long, value_name = "VALUE", num_args = 0.., conflicts_with_all = ["each_line", "array"], help_heading = "Work"
    )]
    pub each: Option<Vec<String>>,
    /// Run the command once for each line of this file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "array", help_heading = "Work")]
    pub each_line: Option<String>,
    /// The values of --each-line end with NUL bytes instead of newlines, as 'find -print0' writes them
    #[arg(long, short = '0', requires = "each_line", conflicts_with = "array", help_heading = "Work")]
    pub null: bool,
    /// Run the command once for each number: 1-100, 1-100:2 for every second one, 1,3,7-9 or, with leading zeros,
    /// 001-100
    #[arg(long, value_name = "RANGE", value_parser = parse_array, allow_hyphen_values = true, help_heading = "Work")]
    pub array: Option<ArrayArg>,
    /// Cpus of each task; auto starts with 1 and learns from earlier tasks [default: 1, or 0.1 with a jobserver]
    #[arg(long, value_name = "N|N-M|auto", value_parser = parse_cpus_or_auto, help_heading = "Resources")]
    pub cpus: Option<CpusArg>,
    /// Memory of each task, and its limit, or more if earlier tasks like it needed more: 500M, 2GiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Resources")]
    pub memory: Option<u64>,
    /// Gpus of each task
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Resources")]
    pub gpus: u32,
    /// Kill a task that runs longer than this: 90s, 1h30m, 00:10:00, or seconds
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub time_limit: Option<u64>,
    /// How many of its tasks may run at a time [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Placement")]
    pub max_running: Option<u32>,
    /// Run the command as N tasks that start together, each on another worker; WINDLASS_NODE_FILE names the workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Placement")]
    pub nodes: Option<u32>,
    /// Let one process run several of the values: `{}` is then a range such as 1-250, or one argument for each. How many
    /// is learned, or is N
    #[arg(
        long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        help_heading = "Work"
    )]
    pub chunks: Option<u32>,
    /// Queue to submit to [default: your own]
    #[arg(long, value_name = "NAME", help_heading = "Placement")]
    pub queue: Option<String>,
    /// Priority inside the queue; higher goes first
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_hyphen_values = true,
        help_heading = "Placement"
    )]
    pub priority: i32,
    /// Name of the job
    #[arg(long, value_name = "NAME", help_heading = "Work")]
    pub name: Option<String>,
    /// Tag that the worker must have: key, key=value or key=a|b; may be repeated
    #[arg(long, value_name = "TAG", help_heading = "Placement")]
    pub tag: Vec<String>,
    /// Run only on this worker; may be repeated to allow several
    #[arg(long, value_name = "NAME", help_heading = "Placement")]
    pub worker: Vec<String>,
    /// Start when this job has succeeded: 12, 3,4 or last; may be repeated
    #[arg(long, value_name = "JOB", help_heading = "Work")]
    pub after: Vec<Jobs>,
    /// Run a failed task again, up to N times
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Work")]
    pub retries: u32,
    /// Environment: NAME=VALUE sets, NAME copies, all copies everything, none nothing; may be repeated [default: all on
    /// this machine, none on a remote server]
    #[arg(long, value_name = "VAR", help_heading = "Work")]
    pub env: Vec<String>,
    /// Working directory of the tasks; of those with files a path inside their own [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "Work")]
    pub cwd: Option<PathBuf>,
    /// Umask of the tasks, in octal digits such as 027 [default: the caller's]
    #[arg(long, value_name = "MASK", value_parser = parse_umask, help_heading = "Work")]
    pub umask: Option<u32>,
    /// Idempotency key: a second submission with it returns the first job
    #[arg(long, value_name = "KEY", help_heading = "Work")]
    pub key: Option<String>,
    /// Submit nothing: print what would be accepted, where it would run now, and what it would wait for
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// The command and its arguments; {} {.} {/} {//} {/.} stand for the task's value
    #[arg(required_unless_present = "file", trailing_var_arg = true, num_args = 1.., value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub jobserver: JobserverArgs,
    #[command(flatten)]
    pub order: OrderArgs,
    #[command(flatten)]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub hints: HintArgs,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub told: OnEndArgs,
}

/// The template and its parameters.
#[derive(Args, Clone, Debug, Default)]
pub struct TemplateArgs {
    /// Run the job or the Open Job Description template in this file instead of a command: JSON, YAML or, of a job,
    /// TOML; `-` is standard input
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with_all = [
        "command", "each", "each_line", "array", "cpus", "memory", "gpus", "time_limit", "nodes", "chunks", "jobserver",
        "no_jobserver",
    ])]
    pub file: Option<String>,
    /// Parameter of the template, NAME=VALUE, or a file of parameters, @FILE or file://FILE; may be repeated
    #[arg(long, short = 'p', value_name = "PARAM", requires = "file", conflicts_with = "command")]
    pub param: Vec<String>,
    /// Submit nothing: list the parameters of the template, with their types, defaults and allowed values
    #[arg(long, requires = "file", conflicts_with_all = ["command", "param", "dry_run"])]
    pub parameters: bool,
    /// JSON file with path mapping rules for the template's sessions
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "command")]
    pub path_mapping: Option<PathBuf>,
}

/// Which of the caller's environment variables tasks get without --env.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// All. The tasks run on the caller's own machine.
    All,
    /// All but HOME. The tasks run on the caller's own machine, but perhaps as another user.
    AllButHome,
    /// None. The tasks may run on other machines, where the values mean nothing.
    Nothing,
}

impl Inherit {
    /// The default for jobs of these servers; `None` is the user's own server. Servers that take over from each other are
    /// of a farm, wherever they are.
    pub fn at(server: Option<&Addresses>) -> Self {
        match server.map(Addresses::only) {
            None | Some(Some(Address::Unix(_))) => Inherit::All,
            // An address of this machine may be a tunnel to a farm. The user's own server is recognized by its token.
            Some(Some(address)) if crate::node::own::token_for(address).is_some() => Inherit::AllButHome,
            Some(_) => Inherit::Nothing,
        }
    }
}

impl TaskArgs {
    /// The request for the command, as far as it can be made without a server. Mistakes in the command line are reported
    /// before anything is started or sent.
    pub fn request(&self, inherit: Inherit) -> Result<SubmitRequest, CliError> {
        self.check_input()?;
        let param = self.param()?;
        let mut command = self.command.clone();
        let has_values = self.array.is_none() && matches!(param, Some(Param::Values(_)));
        if param.is_none() {
            tips::note_replacements(&command, &REPLACEMENTS);
        }
        if has_values && !command.iter().any(|argument| REPLACEMENTS.iter().any(|r| argument.contains(r))) {
            command.push("{}".to_owned());
        }
        let (mut env, left_out) = environment(&self.env, inherit, std::env::vars_os())?;
        if !left_out.is_empty() {
            message!(
                "note: variables that are not UTF-8 or have no usable name are not passed on: {}",
                left_out.join(", ")
            );
        }
        let is_open = self.cpus.is_none() && self.nodes.is_none() && self.chunks.is_none();
        let jobserver = self.jobserver.choose(&self.command, &env, is_open);
        let (cpus, cpus_max, cpus_auto) = self.cpus_of_task();
        let resources =
            Resources { cpus, memory: self.memory.unwrap_or(0), gpus: self.gpus, ..Default::default() };
        let files = self.files.of_step()?;
        let cwd = directory_of(self.cwd.as_deref(), files.is_some())?;
        match_directory(&mut env, Some(cwd.as_str()).filter(|_| files.is_none()));
        let mut step = StepRequest {
            name: Some("main".to_owned()),
            command,
            env,
            cwd: Some(cwd),
            umask: self.umask(),
            param,
            resources: Some(resources),
            tags: self.tag.clone(),
            workers: self.worker.clone(),
            time_limit_ms: self.time_limit,
            nodes: self.nodes,
            chunks: self.chunks.map(|tasks| ChunksRequest {
                tasks: (tasks > 0).then_some(tasks),
                ..ChunksRequest::default()
            }),
            retries: self.retries,
            cpus_auto,
            cpus_max,
            jobserver,
            files,
            ..Default::default()
        };
        self.hints.put_on(&mut step);
        let mut request = SubmitRequest {
            name: self.name.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            key: Some(self.key.clone().unwrap_or_else(fresh_key)),
            max_running: self.max_running,
            on_end: self.told.addresses(),
            steps: vec![step],
            ..Default::default()
        };
        self.order.put_on(&mut request);
        Ok(request)
    }

    /// The cpus that a task books at least and at most, and whether that is learned.
    fn cpus_of_task(&self) -> (f64, Option<f64>, bool) {
        match self.cpus {
            // What a build books that was only detected follows from the setting of its queue.
            None if self.jobserver.jobserver.is_some() => (f64::from(BUILD_CPU) / 100.0, None, false),
            None => (1.0, None, false),
            Some(CpusArg::Cores(cpus)) => (cpus, None, false),
            Some(CpusArg::Range(least, most)) => (least, Some(most), false),
            Some(CpusArg::Auto) => (1.0, None, true),
        }
    }

    /// Fills in what only the server knows: the id of the last job, and the caller's name there. With `waits`, the task
    /// of that server in which this process runs becomes the job's parent.
    pub async fn complete(
        &self,
        request: &mut SubmitRequest,
        client: &Client,
        waits: bool,
    ) -> Result<(), CliError> {
        // A file may name jobs, and a user, too.
        request.after.extend(resolve_all(client, &self.after).await?.into_iter().map(|named| named.id));
        for id in &request.after {
            client.job(*id).await.doing(format_args!("submit a job after job {id}"))?;
        }
        self.order.complete(request, client).await?;
        if request.user.is_none() {
            request.user = Some(user_on(client).await?);
        }
        if waits && request.parent.is_none() {
            request.parent = parent_task(client.address());
        }
        Ok(())
    }

    /// Refuses to read standard input twice.
    pub fn check_input(&self) -> Result<(), CliError> {
        if [&self.each_line, &self.files.stdin].into_iter().all(|source| source.as_deref() == Some("-")) {
            return Err(CliError::usage(
                "--each-line - and --stdin - both read standard input: name a file in one",
            ));
        }
        Ok(())
    }

    /// True if this command reads its standard input itself, or if a file says what its tasks read.
    pub fn reads_input(&self) -> bool {
        let reads = |source: &Option<String>| source.as_deref() == Some("-");
        self.template.file.is_some() || reads(&self.each_line) || reads(&self.files.stdin)
    }

    /// What ends a value of --each-line.
    pub fn separator(&self) -> Separator {
        if self.null { Separator::Nul } else { Separator::Line }
    }

    /// The umask of the tasks, as requests have it; `None` where this system has none.
    pub fn umask(&self) -> Option<String> {
        self.umask.map(umask_text).or_else(system::umask)
    }

    fn param(&self) -> Result<Option<Param>, CliError> {
        match &self.array {
            Some(ArrayArg::Range(range)) => return Ok(Some(Param::Range(*range))),
            Some(ArrayArg::List(numbers)) => return Ok(Some(Param::Values(numbers.clone()))),
            None => {}
        }
        let values = match (&self.each, &self.each_line) {
            (Some(values), _) => values.clone(),
            (None, Some(source)) => lines::read_values(source, self.separator())?,
            (None, None) => return Ok(None),
        };
        let long = values.iter().position(|value| value.len() >= lines::ARGUMENT_BYTES_MAX);
        if let Some(place) = long {
            return Err(CliError::usage(format!("--each: value {} is too long for an argument", place + 1)));
        }
        Ok(Some(Param::Values(values)))
    }
}

/// True if the request has no task, because its list of values is empty.
pub fn is_empty(request: &SubmitRequest) -> bool {
    request.steps.iter().all(|step| matches!(&step.param, Some(Param::Values(values)) if values.is_empty()))
}

/// Number of tasks of a request; saturates.
pub fn tasks_of(request: &SubmitRequest) -> u64 {
    let values = |step: &StepRequest| match &step.param {
        None => 1,
        Some(Param::Values(values)) => values.len() as u64,
        Some(Param::Range(range)) => {
            range.count().map_or(0, |count| u64::try_from(count).unwrap_or(u64::MAX))
        }
        Some(Param::Space(space)) => {
            space.count().map_or(0, |count| u64::try_from(count).unwrap_or(u64::MAX))
        }
    };
    let each = request.steps.iter().map(|step| values(step).saturating_mul(step.nodes.unwrap_or(1).into()));
    each.fold(0, u64::saturating_add)
}

/// The environment of the tasks, and the names of the variables that cannot be sent.
pub fn environment(
    choices: &[String],
    inherit: Inherit,
    caller: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(BTreeMap<String, String>, Vec<String>), CliError> {
    let mut own = BTreeMap::new();
    let mut left_out = Vec::new();
    for (name, value) in caller {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) if !name.is_empty() && !name.contains('=') => {
                own.insert(name, value);
            }
            (Ok(name), _) => left_out.push(name),
            (Err(name), _) => left_out.push(name.to_string_lossy().into_owned()),
        }
    }
    // Each task gets its own value. A turn of the submitter gives its tasks no room.
    for name in ["WINDLASS_TASK", "WINDLASS_TURN", "WINDLASS_TURN_BOOKED"] {
        own.remove(name);
    }
    // A token must not stay in the store for as long as the job.
    own.remove("WINDLASS_TOKEN");
    leave_out_jobserver(&mut own);
    let has = |word: &str| choices.iter().any(|choice| choice == word);
    let all = match (has("all"), has("none")) {
        (true, true) => return Err(CliError::usage("--env: all and none contradict each other")),
        (all, none) => all || (inherit != Inherit::Nothing && !none),
    };
    if !all {
        left_out.retain(|name| choices.contains(name));
    }
    let mut env = if all { own.clone() } else { BTreeMap::new() };
    if inherit == Inherit::AllButHome && !has("all") {
        env.remove("HOME");
    }
    for choice in choices.iter().filter(|choice| !["all", "none"].contains(&choice.as_str())) {
        match choice.split_once('=') {
            Some(("", _)) => return Err(CliError::usage(format!("--env: '{choice}' has no name"))),
            Some((name, value)) => {
                env.insert(name.to_owned(), value.to_owned());
            }
            None if choice.is_empty() => return Err(CliError::usage("--env: a name is empty")),
            // A variable that is not set here is not set for the tasks either.
            None => env.extend(own.get_key_value(choice).map(|(k, v)| (k.clone(), v.clone()))),
        }
    }
    Ok((env, left_out))
}

/// The directory in which the tasks of a step run: a path inside their own if they have files, else one of a worker.
pub fn directory_of(chosen: Option<&Path>, has_files: bool) -> Result<String, CliError> {
    if has_files { directory_inside(chosen) } else { working_directory(chosen) }
}

/// The directory in which tasks run, as an absolute path of a worker; the current one if `None`.
pub fn working_directory(chosen: Option<&Path>) -> Result<String, CliError> {
    let path = absolute(chosen)?;
    if path.starts_with('/') {
        return Ok(path);
    }
    Err(CliError::Usage {
        message: format!("no worker has the working directory {path}: workers run Linux"),
        hint: Some("give --cwd with a directory of the workers, such as --cwd /".to_owned()),
    })
}

/// Makes `PWD` name the directory in which the tasks work; `None` is that of their session, which has no name yet. Programs
/// trust this variable without a look. It stays if it leads to that directory, perhaps by a symbolic link. The directory
/// itself is not looked at: it may be of other machines, or on a file system that does not answer.
pub fn match_directory(env: &mut BTreeMap<String, String>, cwd: Option<&str>) {
    let Some(pwd) = env.get("PWD") else { return };
    let leads_to = |cwd: &str| {
        let leads = || std::fs::canonicalize(pwd).is_ok_and(|found| found == Path::new(cwd));
        pwd == cwd || (pwd.starts_with('/') && leads())
    };
    if cwd.is_some_and(leads_to) {
        return;
    }
    env.remove("OLDPWD");
    match cwd {
        Some(cwd) => env.insert("PWD".to_owned(), cwd.to_owned()),
        None => env.remove("PWD"),
    };
}

/// The directory as an absolute path of this machine; the current one if `None`.
pub fn absolute(chosen: Option<&Path>) -> Result<String, CliError> {
    let path = match chosen {
        // On Windows `/films` is not absolute, and it is on the workers.
        Some(path) if path.has_root() => path.to_path_buf(),
        _ => {
            let here = std::env::current_dir().map_err(|error| CliError::Usage {
                message: format!("the current directory cannot be used: {error}"),
                hint: Some("change to one that exists, or give --cwd".to_owned()),
            })?;
            // `components` removes the dots that joining may leave.
            chosen.map_or(here.clone(), |path| here.join(path).components().collect())
        }
    };
    path.into_os_string().into_string().map_err(|path| {
        CliError::usage(format!("the working directory {} is not valid UTF-8", path.to_string_lossy()))
    })
}

/// A unique idempotency key: a submission whose answer was lost can be sent again with it.
pub fn fresh_key() -> String {
    // The hasher's keys are the one source of randomness that the standard library has on every system.
    let random = || RandomState::new().build_hasher().finish();
    format!("cli-{:016x}{:016x}", random(), random())
}

/// The task in which this process runs, if it is a task of the server at `address`, or of one that takes over from it.
pub fn parent_task(address: &Address) -> Option<String> {
    let server = std::env::var("WINDLASS_SERVER").ok()?;
    let task = std::env::var("WINDLASS_TASK").ok()?;
    task.parse::<TaskId>().ok()?;
    Addresses::parse(&server).is_ok_and(|own| own.contains(address)).then_some(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use windlass_api::JobserverRequest;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tasks: TaskArgs,
    }

    fn parse(line: &str) -> Result<TaskArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("run").chain(line.split_whitespace())).map(|line| line.tasks)
    }

    fn step(line: &str) -> StepRequest {
        parse(line).unwrap().request(Inherit::All).unwrap().steps.remove(0)
    }

    #[cfg(unix)]
    #[test]
    fn pwd_names_the_directory_of_the_tasks() {
        let dir = tempfile::tempdir().unwrap();
        let (place, link) = (dir.path().join("place"), dir.path().join("link"));
        std::fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let (place, link) = (place.canonicalize().unwrap(), link.display().to_string());
        let place = place.to_str().unwrap();
        let matched = |pwd: &str, cwd: Option<&str>| {
            let mut env =
                BTreeMap::from([("PWD".to_owned(), pwd.to_owned()), ("OLDPWD".to_owned(), "/".to_owned())]);
            match_directory(&mut env, cwd);
            (env.remove("PWD"), env.contains_key("OLDPWD"))
        };
        let is = |pwd: &str| Some(pwd.to_owned());
        assert_eq!(matched(place, Some(place)), (is(place), true));
        assert_eq!(matched(&link, Some(place)), (is(&link), true), "it leads there");
        assert_eq!(matched("/", Some(place)), (is(place), false));
        assert_eq!(matched("/", Some("/of/a/worker")), (is("/of/a/worker"), false));
        assert_eq!(matched(".", Some(place)), (is(place), false), "not absolute");
        assert_eq!(matched("/", None), (None, false));
        let mut none = BTreeMap::new();
        match_directory(&mut none, Some(place));
        assert!(none.is_empty(), "what is not passed on is not set");
    }

    #[test]
    fn a_command_is_all_that_is_needed() {
        let step = step("-- make -j4 --always-make");
        assert_eq!(step.command, ["make", "-j4", "--always-make"]);
        assert!(step.param.is_none());
        assert_eq!(step.resources.unwrap().cpus, 1.0);
        assert!(step.cwd.unwrap().starts_with('/'));
        assert!(parse("").is_err());
        assert!(parse("--name x").is_err());
    }

    #[test]
    fn a_template_stands_in_for_the_command() {
        assert!(parse("-f job.yaml -p A=1 -p B=2 --queue q").is_ok());
        for line in [
            "-f job.yaml -- make",
            "-f job.yaml --cpus 2",
            "-f job.yaml --jobserver",
            "-f j --array 1-2",
            "-p A=1 -- make",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn hints_are_said_of_the_step() {
        let said = step(
            "--limit maya --limit nuke --cache tc=2GiB --cache assets --network-bound --prefer-local --fetches \
             --max-wait 2m --kind evaluation --cpus auto -- make",
        );
        assert_eq!(said.limits, ["maya", "nuke"]);
        assert_eq!(said.caches, [("tc".to_owned(), Some(2 << 30)), ("assets".to_owned(), None)].into());
        assert!(said.network_bound && said.prefer_local && said.fetches && said.cpus_auto);
        assert_eq!((said.deadline_ms, said.kind), (Some(120_000), Some(windlass_api::Kind::Evaluation)));
        assert_eq!(said.resources.unwrap().cpus, 1.0);
        let range = step("--cpus 2-16 -- make");
        assert_eq!((range.resources.unwrap().cpus, range.cpus_max), (2.0, Some(16.0)));
        let plain = step("-- true");
        assert!(plain.limits.is_empty() && plain.kind.is_none() && !plain.cpus_auto);
        // The name that it had before.
        assert_eq!(step("--deadline 2m -- make").deadline_ms, Some(120_000));
        for line in
            ["--kind test -- make", "--max-wait 0 -- make", "--cache =1 -- make", "--cpus some -- make"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_build_has_a_jobserver_unless_it_is_said_what_it_takes() {
        let of = |line: &str| {
            let step = step(&format!("--env none {line}"));
            (step.jobserver, step.resources.unwrap().cpus, step.cpus_max)
        };
        let auto = Some(JobserverRequest::Auto);
        assert_eq!(
            of("-- make"),
            (Some(JobserverRequest::Detected), 1.0, None),
            "its queue may take both away"
        );
        assert_eq!(of("--jobserver -- ./build"), (auto, 0.1, None));
        let pipes = Some(JobserverRequest::Pipes);
        assert_eq!(of("--jobserver=pipes --cpus 2-16 -- make"), (pipes, 2.0, Some(16.0)));
        assert_eq!(of("--jobserver make"), (auto, 0.1, None), "the form stands behind =");
        assert_eq!(of("--no-jobserver -- make"), (Some(JobserverRequest::None), 1.0, None));
        for line in ["-- make -j8", "-- true", "--nodes 2 -- make"] {
            assert_eq!(of(line), (None, 1.0, None), "{line}");
        }
        assert_eq!(of("--cpus 3 -- make"), (None, 3.0, None));
        assert!(parse("--jobserver --no-jobserver -- make").is_err());
        assert!(parse("--jobserver --nodes 2 -- make").is_err());
        assert!(parse("--jobserver=always -- make").is_err());
    }

    #[test]
    fn a_command_with_files_runs_in_a_directory_of_its_own() {
        let with = step("--env PWD=/x --input src --input lib=../lib --outputs *.o --stdin - -- cc -c a.c");
        assert_eq!((with.cwd.as_deref(), with.env.contains_key("PWD")), (Some("."), false));
        assert_eq!(with.files.unwrap().outputs, ["*.o"]);
        let args = parse("--input src --input a=b --no-ignore --stdin f -- true").unwrap();
        let inputs = args.files.inputs().unwrap();
        assert!(inputs.no_ignore && inputs.inputs == ["src", "a=b"] && !args.reads_input());
        assert!(parse("--stdin - -- true").unwrap().reads_input());
        assert!(parse("--stdin - --each-line - -- true").unwrap().request(Inherit::All).is_err());
        assert_eq!(step("--outputs out --cwd a/b -- true").cwd.as_deref(), Some("a/b"));
        assert!(parse("--outputs out --cwd /a -- true").unwrap().request(Inherit::All).is_err());
        assert!(step("-- true").files.is_none());
        for line in [
            "--input a --nodes 2 -- true",
            "--outputs a -f job.yaml",
            "--no-ignore -- true",
            "--stdin a -f j",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn flags_after_the_command_are_its_own() {
        let step = step("--cpus 2 make -j 2 --cpus 3 -- x");
        assert_eq!(step.command[..5], ["make", "-j", "2", "--cpus", "3"]);
        assert_eq!(step.resources.unwrap().cpus, 2.0);
        assert!(parse("--cpu 2 -- make").is_err());
    }

    #[test]
    fn values_end_at_the_dashes() {
        let step = step("--each a b --each c -- echo");
        assert_eq!(step.command, ["echo", "{}"]);
        assert!(matches!(step.param, Some(Param::Values(values)) if values == ["a", "b", "c"]));
    }

    #[test]
    fn a_value_is_appended_only_where_it_has_no_place() {
        assert_eq!(step("--each a -- echo x{/.}y").command, ["echo", "x{/.}y"]);
        assert_eq!(step("--each a -- echo {3}").command, ["echo", "{3}", "{}"]);
        assert_eq!(step("--array 1-3 -- echo").command, ["echo"]);
    }

    #[test]
    fn no_values_are_no_tasks() {
        let request = parse("--each -- echo").unwrap().request(Inherit::All).unwrap();
        assert!(is_empty(&request));
        assert_eq!(tasks_of(&request), 0);
        let nodes = parse("--nodes 4 --each a b -- echo").unwrap().request(Inherit::All).unwrap();
        assert_eq!(tasks_of(&nodes), 8);
        assert!(!is_empty(&parse("-- echo").unwrap().request(Inherit::All).unwrap()));
    }

    #[test]
    fn one_way_to_name_values_excludes_the_others() {
        assert!(parse("--each a --array 1-2 -- echo").is_err());
        assert!(parse("--each-line f --array 1-2 -- echo").is_err());
        assert!(parse("--each a --each-line f -- echo").is_err());
    }

    #[test]
    fn an_array_is_a_range_or_a_list() {
        let range = step("--array 1-3 -- echo");
        assert!(matches!(range.param, Some(Param::Range(_))));
        let list = step("--array 1,08-10 -- echo");
        assert!(matches!(list.param, Some(Param::Values(values)) if values == ["1", "08", "09", "10"]));
        assert_eq!(list.command, ["echo"], "the number is not appended");
        assert!(parse("-0 --array 1-3 -- echo").is_err() && parse("-0 -- echo").is_err());
        assert!(parse("-0 --each-line list -- echo").is_ok());
    }

    #[test]
    fn the_environment_is_chosen() {
        let caller = || [("A", "1"), ("B", "2")].map(|(k, v)| (k.into(), v.into())).into_iter();
        let from = |inherit, choices: &[&str]| {
            let choices: Vec<String> = choices.iter().map(ToString::to_string).collect();
            environment(&choices, inherit, caller()).unwrap().0.into_iter().collect::<Vec<_>>()
        };
        let of = |choices: &[&str]| from(Inherit::All, choices);
        let on_farm = |choices: &[&str]| from(Inherit::Nothing, choices);
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(of(&[]), [pair("A", "1"), pair("B", "2")]);
        assert!(of(&["none"]).is_empty());
        assert_eq!(of(&["none", "B", "UNSET"]), [pair("B", "2")]);
        assert_eq!(of(&["A=x=y"]), [pair("A", "x=y"), pair("B", "2")]);
        assert_eq!(of(&["A="]), [pair("A", ""), pair("B", "2")]);
        assert!(on_farm(&[]).is_empty());
        assert_eq!(on_farm(&["B", "C=3"]), [pair("B", "2"), pair("C", "3")]);
        assert_eq!(on_farm(&["all", "A=0"]), [pair("A", "0"), pair("B", "2")]);
        for bad in [&["=x"][..], &[""], &["all", "none"]] {
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            assert!(environment(&bad, Inherit::All, caller()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_environment_stays_on_its_machine() {
        let at = |server: &str| Inherit::at(Some(&Addresses::parse(server).unwrap()));
        assert_eq!(Inherit::at(None), Inherit::All);
        assert_eq!(at("unix:/run/w.sock"), Inherit::All);
        let own = |choices: &[&str]| {
            let choices: Vec<String> = choices.iter().map(ToString::to_string).collect();
            let caller = [("HOME", "/root"), ("A", "1")].map(|(k, v)| (k.into(), v.into()));
            environment(&choices, Inherit::AllButHome, caller.into_iter())
                .unwrap()
                .0
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(own(&[]), ["A"]);
        assert_eq!(own(&["all"]), ["A", "HOME"]);
        assert_eq!(at("unix:/run/w.sock,unix:/run/v.sock"), Inherit::Nothing);
        // Such an address may be a tunnel to any server.
        for here in ["127.0.0.1:1", "https://localhost:1", "http://[::1]:1"] {
            assert_eq!(at(here), Inherit::Nothing, "{here}");
        }
        for there in ["farm.example:7117", "http://10.0.0.1:7117", "https://localhost.example:1"] {
            assert_eq!(at(there), Inherit::Nothing, "{there}");
        }
    }

    #[test]
    fn what_is_not_text_is_left_out() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![b'x', 0xff]);
        let caller = [(OsString::from("BAD"), odd), (OsString::from("OK"), OsString::from("1"))];
        let (env, left_out) = environment(&[], Inherit::All, caller.clone().into_iter()).unwrap();
        assert_eq!(env.len(), 1);
        assert_eq!(left_out, ["BAD"]);
        let left_out = |choices: &[String]| {
            environment(choices, Inherit::Nothing, caller.clone().into_iter()).unwrap().1
        };
        assert!(left_out(&[]).is_empty());
        assert_eq!(left_out(&["BAD".to_owned()]), ["BAD"]);
    }

    #[test]
    fn a_relative_directory_becomes_absolute() {
        assert_eq!(working_directory(Some(Path::new("/a/b"))).unwrap(), "/a/b");
        let here = std::env::current_dir().unwrap();
        assert_eq!(working_directory(Some(Path::new("./x"))).unwrap(), here.join("x").to_str().unwrap());
    }

    #[test]
    fn every_submission_has_a_key_of_its_own() {
        assert_ne!(fresh_key(), fresh_key());
        assert_eq!(
            parse("--key k -- true").unwrap().request(Inherit::All).unwrap().key.as_deref(),
            Some("k")
        );
    }
}
