//! Completion of what the server knows: ids of jobs and tasks, names of queues, workers, limits and users.
//!
//! The shell's script calls this program with the line so far. It asks the server for a moment, starts none, and prints
//! no error, which would end up in the line that is being typed.

use crate::client::connect::connect_running;
use crate::client::credentials::{self, CredentialFlags};
use crate::commands::limit::limits_grid;
use crate::commands::list::{jobs_grid, tasks_grid};
use crate::commands::queue::queues_grid;
use crate::commands::select::JobRef;
use crate::commands::worker::workers_grid;
use crate::node::own;
use crate::ui::error::CliError;
use crate::ui::message;
use crate::ui::output::{fit, print_text};
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter, Shell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;
use windlass_api::client::{Client, JobsQuery, TasksQuery};
use windlass_api::{Addresses, Job};
use windlass_openjd::TEMPLATE_BYTES_MAX;

/// The variable by which a shell's script asks for completions; its value is the shell's name.
const VARIABLE: &str = "WINDLASS_COMPLETE";
/// How long the server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Jobs among which is chosen, the newest.
const JOBS_MAX: usize = 200;
/// Tasks of a job among which is chosen, the first.
const TASKS_MAX: usize = 100;
/// Characters of a job's name or a task's value beside its id.
const NAME_CHARS_MAX: usize = 40;

/// How zsh runs the script from its directory of completions at the first completion already.
const ZSH_AT_ONCE: &str =
    "\nif [ \"$funcstack[1]\" = \"_windlass\" ]; then _clap_dynamic_completer_windlass \"$@\"; fi\n";

/// Prints the script that makes a shell complete.
#[derive(Args, Debug)]
#[command(after_help = "Add to ~/.bashrc: source <(windlass completion bash), to ~/.zshrc behind compinit:
source <(windlass completion zsh), to ~/.config/fish/config.fish: windlass completion fish | source")]
pub struct CompletionArgs {
    /// Shell to generate completions for
    shell: Shell,
}

/// Runs the command `windlass completion`.
pub fn completion(args: &CompletionArgs) -> Result<(), CliError> {
    let name = args.shell.to_string();
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(&name);
    let shell = shell.ok_or_else(|| CliError::usage(format!("there are no completions for {name}")))?;
    let written = shell.write_registration(VARIABLE, "windlass", "windlass", "windlass", &mut script);
    written.map_err(anyhow::Error::from)?;
    if args.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_AT_ONCE.as_bytes());
    }
    print_text(&String::from_utf8_lossy(&script))
}

/// Answers a shell that asks for completions, and ends the process; returns where none asks.
pub fn answer(command: fn() -> Command) {
    if std::env::var_os(VARIABLE).is_none_or(|shell| shell == "0") {
        return;
    }
    message::silence();
    // The first provider is the one of this program.
    _ = rustls::crypto::ring::default_provider().install_default();
    let words = typed();
    let path = |flag: &str, variable: &str| said(&words, flag, variable).map(PathBuf::from);
    credentials::set(CredentialFlags {
        ca: path("--ca", "WINDLASS_CA"),
        token_file: path("--token-file", "WINDLASS_TOKEN_FILE"),
    });
    CompleteEnv::with_factory(move || with_values(command(), "")).var(VARIABLE).bin("windlass").complete();
}

/// The words of the line that is completed, from the program's name on.
fn typed() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The value of a flag on the line, else that of its variable.
fn said(words: &[String], flag: &str, variable: &str) -> Option<String> {
    on_line(words, flag).map(str::to_owned).or_else(|| std::env::var(variable).ok())
}

fn on_line<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let place = words.iter().position(|word| word == flag);
    let follows = place.and_then(|place| words.get(place + 1)).map(String::as_str);
    let attached = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    follows.or(attached).filter(|value| !value.is_empty())
}

/// What the values of an argument are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Values {
    Jobs,
    Tasks,
    Queues,
    Workers,
    Limits,
    Users,
    /// Parameters of the template that the line names.
    Parameters,
    /// Columns by which the list of this command can be sorted.
    Columns(ListCommand),
    /// These words, whatever the server knows.
    Words(&'static [&'static str]),
}

/// What a command lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListCommand {
    Jobs,
    Tasks,
    Queues,
    Workers,
    Limits,
}

impl ListCommand {
    fn of(parent: &str, command: &str) -> Option<ListCommand> {
        match (parent, command) {
            (_, "jobs") => Some(ListCommand::Jobs),
            (_, "tasks") => Some(ListCommand::Tasks),
            (_, "queues") | ("queue", _) => Some(ListCommand::Queues),
            (_, "workers") | ("worker", _) => Some(ListCommand::Workers),
            ("limit", _) => Some(ListCommand::Limits),
            _ => None,
        }
    }

    fn columns(self) -> Vec<String> {
        let grid = match self {
            ListCommand::Jobs => jobs_grid(&[]),
            ListCommand::Tasks => tasks_grid(&[]),
            ListCommand::Queues => queues_grid(&[]),
            ListCommand::Workers => workers_grid(&[], false),
            ListCommand::Limits => limits_grid(&[]),
        };
        grid.words()
    }
}

/// The command with completers for the values of its arguments, and so its own commands; `parent` is the command whose
/// command it is.
fn with_values(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| {
        if let Some(values) = values_of(parent, &name, &arg) {
            return arg.add(ArgValueCompleter::new(move |typed: &OsStr| candidates(values, typed)));
        }
        if arg.get_id() == "command" {
            return arg.add(ArgValueCompleter::new(PathCompleter::any()));
        }
        let hint = match value_name(&arg) {
            "FILE" => Some(ValueHint::FilePath),
            "DIR" => Some(ValueHint::DirPath),
            _ => None,
        };
        match hint {
            Some(hint) => arg.value_hint(hint),
            None => arg,
        }
    });
    command.mut_subcommands(|of| with_values(of, &name))
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

/// What is known of an argument by its name and by the command that has it.
fn values_of(parent: &str, command: &str, arg: &Arg) -> Option<Values> {
    let value = value_name(arg);
    let Some(flag) = arg.get_long() else {
        return match (parent, command, value) {
            (_, "logs" | "why", "ID") => Some(Values::Tasks),
            (_, _, value) if value.contains("TASK") => Some(Values::Tasks),
            (_, _, value) if value.contains("JOB") => Some(Values::Jobs),
            ("worker", _, "NAME") => Some(Values::Workers),
            ("queue", _, "NAME") => Some(Values::Queues),
            ("limit", _, "NAME") => Some(Values::Limits),
            _ => None,
        };
    };
    match (flag, value) {
        (flag, "JOB") if flag.starts_with("after") => Some(Values::Jobs),
        ("queue" | "for-queue", _) => Some(Values::Queues),
        ("worker", "NAME") => Some(Values::Workers),
        ("limit", "NAME") => Some(Values::Limits),
        ("user", "NAME") => Some(Values::Users),
        ("param", _) => Some(Values::Parameters),
        ("sort", _) => ListCommand::of(parent, command).map(Values::Columns),
        ("fail-fast", _) => Some(Values::Words(&["finish", "kill"])),
        _ => None,
    }
}

/// The values that begin as it is typed, each with a word on it. Of a list that is separated by commas the last part is
/// completed.
fn candidates(values: Values, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let part = typed.rsplit_once(',').map_or(typed, |(_, last)| last);
    let before = &typed[..typed.len() - part.len()];
    let found = match values {
        Values::Jobs => jobs(),
        Values::Tasks if part.contains('.') => tasks(part),
        Values::Tasks => jobs(),
        Values::Queues => ask(async |client: &Client| {
            let all = client.queues().await.ok()?;
            Some(all.into_iter().map(|queue| (queue.name, String::new())).collect())
        }),
        Values::Workers => ask(async |client: &Client| {
            let all = client.workers(false).await.ok()?;
            Some(all.into_iter().map(|worker| (worker.name, worker.state.shown().to_owned())).collect())
        }),
        Values::Limits => ask(async |client: &Client| {
            let all = client.limits().await.ok()?;
            Some(all.into_iter().map(|limit| (limit.name, String::new())).collect())
        }),
        Values::Users => users(),
        Values::Parameters => parameters().unwrap_or_default(),
        Values::Columns(listed) => listed.columns().into_iter().map(|word| (word, String::new())).collect(),
        Values::Words(words) => words.iter().map(|word| ((*word).to_owned(), String::new())).collect(),
    };
    let fitting = found.into_iter().filter(|(value, _)| value.starts_with(part) && is_plain(value));
    let shown = fitting.map(|(value, about)| {
        let help = Some(about).filter(|about| !about.is_empty()).map(Into::into);
        CompletionCandidate::new(format!("{before}{value}")).help(help)
    });
    shown.collect()
}

/// True of a word that no shell reads as more than a word. Shells put completions into the line as they are, and anybody
/// who submits may name a queue.
fn is_plain(word: &str) -> bool {
    !word.starts_with('-') && word.chars().all(|c| c.is_alphanumeric() || "._-+=@:/%".contains(c))
}

/// A value, and what is told of it beside it.
type Told = (String, String);

/// The newest jobs in the states that make sense for the command on the line.
fn jobs() -> Vec<Told> {
    let words = typed();
    let state = words.iter().find_map(|word| match word.as_str() {
        "cancel" | "hold" | "release" | "wait" | "priority" => Some("pending,running,held"),
        "retry" => Some("failed,canceled"),
        _ => None,
    });
    let told = |job: &Job| format!("{} {}", job.state.shown(), fit(&job.name, Some(NAME_CHARS_MAX)));
    let mut found: Vec<Told> = newest(state).iter().map(|job| (job.id.to_string(), told(job))).collect();
    if !found.is_empty() {
        found.push(("last".to_owned(), "your last job".to_owned()));
    }
    found
}

fn newest(state: Option<&str>) -> Vec<Job> {
    let query = JobsQuery { state: state.map(str::to_owned), limit: Some(JOBS_MAX), ..JobsQuery::default() };
    ask(async |client: &Client| Some(client.jobs(&query).await.ok()?.items))
}

/// The first tasks of the job that stands before the point.
fn tasks(part: &str) -> Vec<Told> {
    let Some((named, _)) = part.split_once('.') else { return Vec::new() };
    let Ok(job) = named.parse::<JobRef>() else { return Vec::new() };
    ask(async |client: &Client| {
        let query = TasksQuery { state: None, limit: Some(TASKS_MAX), cursor: None };
        let page = client.tasks(job.resolve(client).await.ok()?, &query).await.ok()?;
        let told = page.items.into_iter().map(|task| {
            let value = fit(&task.value.unwrap_or_default(), Some(NAME_CHARS_MAX));
            (
                format!("{named}.{}", task.index),
                format!("{} {value}", task.state.shown()).trim_end().to_owned(),
            )
        });
        Some(told.collect())
    })
}

/// The users of the newest jobs.
fn users() -> Vec<Told> {
    let users: BTreeSet<String> = newest(None).into_iter().map(|job| job.user).collect();
    users.into_iter().map(|user| (user, String::new())).collect()
}

/// The parameters of the template on the line, each with its type.
fn parameters() -> Option<Vec<Told>> {
    let words = typed();
    let file = std::fs::File::open(on_line(&words, "-f").or_else(|| on_line(&words, "--file"))?).ok()?;
    let mut text = String::new();
    file.take(TEMPLATE_BYTES_MAX as u64).read_to_string(&mut text).ok()?;
    let template: serde_json::Value = serde_saphyr::from_str(&text).ok()?;
    let told = template["parameterDefinitions"].as_array()?.iter().filter_map(|defined| {
        let kind = defined["type"].as_str().unwrap_or_default().to_lowercase();
        Some((format!("{}=", defined["name"].as_str()?), kind))
    });
    Some(told.collect())
}

/// Asks the server that the line or the environment names, for a moment; nothing where it does not answer.
fn ask<T: Default>(question: impl AsyncFnOnce(&Client) -> Option<T>) -> T {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return T::default();
    };
    let named = said(&typed(), "--server", "WINDLASS_SERVER").filter(|named| !own::is_own_named(named));
    let named = named.map(|named| Addresses::parse(&named));
    let server = match named {
        None => None,
        Some(Ok(server)) => Some(server),
        Some(Err(_)) => return T::default(),
    };
    let asked = async {
        let client = connect_running(server.as_ref()).await.ok()?;
        question(&client).await
    };
    let answer = runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, asked).await });
    runtime.shutdown_background();
    answer.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(path: &[&str], arg: &str) -> Option<Values> {
        let all = crate::command_line();
        let (mut parent, mut command) = ("", &all);
        for name in path {
            parent = command.get_name();
            command = command.find_subcommand(name).unwrap();
        }
        let found = command.get_arguments().find(|known| known.get_id() == arg).unwrap();
        values_of(parent, command.get_name(), found)
    }

    #[test]
    fn arguments_are_completed_by_what_they_name() {
        assert_eq!(values(&["job", "show"], "job"), Some(Values::Jobs));
        assert_eq!(values(&["logs"], "id"), Some(Values::Tasks));
        assert_eq!(values(&["why"], "id"), Some(Values::Tasks));
        assert_eq!(values(&["events"], "job"), Some(Values::Jobs));
        assert_eq!(values(&["run"], "queue"), Some(Values::Queues));
        assert_eq!(values(&["run"], "limit"), Some(Values::Limits));
        assert_eq!(values(&["submit"], "after"), Some(Values::Jobs));
        assert_eq!(values(&["jobs"], "limit"), None, "that is a number");
        assert_eq!(values(&["jobs"], "user"), Some(Values::Users));
        assert_eq!(values(&["run"], "worker"), Some(Values::Workers));
        assert_eq!(values(&["token", "revoke"], "id"), None);
        assert_eq!(values(&["jobs"], "sort"), Some(Values::Columns(ListCommand::Jobs)));
        assert_eq!(values(&["limit", "list"], "sort"), Some(Values::Columns(ListCommand::Limits)));
        assert!(ListCommand::Limits.columns().contains(&"per-worker".to_owned()));
        assert_eq!(values(&["run"], "fail_fast"), Some(Values::Words(&["finish", "kill"])));
    }

    #[test]
    fn the_line_names_the_server() {
        let line = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| said(&line(text), "--server", "WINDLASS_NO_SUCH_VARIABLE");
        assert_eq!(of("windlass --server farm:1 job show").as_deref(), Some("farm:1"));
        assert_eq!(of("windlass job show --server=farm:2").as_deref(), Some("farm:2"));
        assert_eq!(of("windlass job show"), None);
    }

    #[test]
    fn what_a_shell_would_run_is_not_offered() {
        assert!(["film", "a.b-c", "größe", "nix:ann@box", "12.3"].into_iter().all(is_plain));
        assert!(!["$(reboot)", "a b", "a;b", "`x`", "-f", "a\nb", "~x"].into_iter().any(is_plain));
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in Shells::builtins().iter() {
            let mut script = Vec::new();
            shell.write_registration(VARIABLE, "windlass", "windlass", "windlass", &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains(VARIABLE) && script.contains("windlass"), "{}", shell.name());
        }
    }
}
