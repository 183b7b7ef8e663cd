//! The binary `windlass`: the client's commands, the server, the worker and the keeper.
//!
//! Data goes to standard output, messages go to standard error. SIGPIPE stays ignored, as is Rust's default: a server
//! that closes a connection must not kill the client. When the reader of standard output goes away, a write fails and
//! the client exits quietly.

mod client;
mod commands;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod node;
mod system;
mod ui;

use anstream::ColorChoice;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use client::context::Context;
use client::credentials;
use client::own::OwnAccess;
use commands::files::fetch;
use commands::machine::MachineCommand;
use commands::{
    api, board, ca, completion, docs, events, job_wait, limit, list, logs, mcp, queue, run, scheduler,
    server, show, targets, tips, token, top, turns, verbs, view, why, worker,
};
use node::own;
use std::ffi::OsString;
use std::process::ExitCode;
use ui::GLOBAL;
use ui::error::{CliError, TAKEN, USAGE};
use ui::output::{Format, OutputArg};
use windlass_api::Addresses;

/// Most threads on which a server answers requests.
const REQUEST_THREADS_MAX: usize = 4;

/// The commands by what people come for, in the order in which help lists them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Work", &["run", "submit", "turn", "jobs", "job", "turns", "logs", "why", "events", "board"]),
    ("Farm", &["top", "workers", "worker", "queues", "queue", "limit", "scheduler"]),
    ("Administration", &["server", "store", "gateway", "compass", "nix-hook", "token", "ca", "doctor"]),
    ("Tools", &["api", "mcp", "sim", "version", "completion", "man"]),
];

/// A job scheduler for one machine or a farm of machines
#[derive(Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
#[command(
    after_help = "Start with 'windlass run -- COMMAND'. Exit codes: the job's own for run and wait; 124 time limit,
137 out of memory, 130 cancelled; 1 failed, 2 usage, 3 not found, 4 denied, 5 no server, 6 cannot be placed."
)]
struct Cli {
    /// Format of the data on standard output
    #[arg(
        long,
        short,
        global = true,
        help_heading = GLOBAL,
        display_order = 100,
        env = "WINDLASS_OUTPUT",
        value_enum,
        default_value = "table",
        hide_possible_values = true,
        value_name = "table|wide|json|jsonl|name"
    )]
    output: OutputArg,
    /// Same as --output json
    #[arg(long, global = true, help_heading = GLOBAL, display_order = 100)]
    json: bool,
    /// Address of the server: HOST:PORT, http(s)://HOST:PORT or unix:PATH; several of one farm are separated by commas, and
    /// are tried in this order; 'own' is your own server [default: the machine's server if there is one for you, else your
    /// own]
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        display_order = 100,
        env = "WINDLASS_SERVER",
        value_name = "ADDRESS"
    )]
    server: Option<String>,
    #[command(flatten)]
    credentials: credentials::CredentialFlags,
    /// When to use colours
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        display_order = 100,
        value_enum,
        default_value = "auto",
        hide_possible_values = true,
        value_name = "auto|always|never"
    )]
    color: Color,
    /// Print more, such as the server's address
    #[arg(long, short, global = true, help_heading = GLOBAL, display_order = 100, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command once or for many values, show its output and exit with its code
    Run(Box<run::RunArgs>),
    /// Submit a job and print its id
    Submit(Box<run::SubmitArgs>),
    /// List jobs, newest first
    Jobs(list::JobsArgs),
    /// Show and manage jobs
    #[command(subcommand)]
    Job(JobCommand),
    /// List the commands that wait for their turn, and those that run in one
    Turns(view::ViewArgs),
    /// Show the output of a task, or of all tasks of a job
    Logs(logs::LogsArgs),
    /// Explain why a task or a turn waits, and what would make it run
    Why(why::WhyArgs),
    /// Show the farm live in the terminal, and steer it
    Top(top::TopArgs),
    /// List the workers of the farm
    Workers(worker::ListArgs),
    /// Show and manage workers
    #[command(subcommand)]
    Worker(worker::WorkerCommand),
    /// List the queues of the farm
    Queues(view::ViewArgs),
    /// Show and configure queues
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Show and configure limits, such as licences
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Show and drain the servers that share a database
    #[command(subcommand)]
    Scheduler(scheduler::SchedulerCommand),
    /// Show events as they happen
    Events(events::EventsArgs),
    /// Open the board in a browser, signed in
    Board(board::BoardArgs),
    /// Make a request to the server's HTTP interface
    Api(api::ApiArgs),
    /// Serve a coding agent: the Model Context Protocol on standard input and output
    Mcp(mcp::McpArgs),
    /// Print the versions of this program and of the server
    Version,
    /// Create and revoke tokens of users and workers
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Create a private CA and certificates
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Run and manage a server
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// What runs a part of Windlass on this machine, or looks at it
    #[command(flatten)]
    Machine(MachineCommand),
    /// Generate completions for a shell
    Completion(completion::CompletionArgs),
    /// Write a man page for each command
    Man(docs::ManArgs),
}

#[derive(Subcommand)]
enum JobCommand {
    /// List jobs, newest first
    List(list::JobsArgs),
    /// Show one job in detail
    Show(show::ShowArgs),
    /// List the tasks of a job
    Tasks(list::TasksArgs),
    /// Wait until jobs have ended, and exit with the code of the first that failed
    Wait(job_wait::WaitArgs),
    /// Get the outputs of the tasks of a job into a directory
    Fetch(fetch::JobFetchArgs),
    /// Cancel jobs, or tasks of a job: those that run are killed, the others never start
    Cancel(targets::TargetsArgs),
    /// Run the failed and cancelled tasks of jobs again, or some of them
    Retry(targets::RetryArgs),
    /// Hold jobs: start no further task of them
    Hold(verbs::IdsArgs),
    /// Release held jobs: their tasks may start again
    Release(verbs::IdsArgs),
    /// Change the priority of jobs: their waiting tasks take their turn by it
    Priority(verbs::PriorityArgs),
}

/// The command line, whose help lists the commands by group.
fn command_line() -> clap::Command {
    let command = Cli::command();
    let mut list = String::new();
    for (group, names) in GROUPS {
        list.push_str(&format!("{group}:\n"));
        for name in names {
            let Some(found) = command.find_subcommand(name).filter(|found| !found.is_hide_set()) else {
                continue;
            };
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
            list.push_str(&format!("  {name:<12}{about}\n"));
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{GLOBAL}:\n{{options}}{{after-help}}\n"
    ))
}

fn main() -> ExitCode {
    // SAFETY: no other thread has been started.
    unsafe { client::variables::forget_empty() };
    client::own::set(OwnAccess {
        start: || Box::pin(own::client()),
        running: || Box::pin(own::running()),
        token_for: own::token_for,
        names_users: own::names_users,
    });
    completion::answer(command_line);
    if let Some(code) = node::run_instead() {
        return code;
    }
    // Two providers could be linked in, and this one is used. No other was installed before.
    _ = rustls::crypto::ring::default_provider().install_default();
    let parsed = command_line().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.color {
        Color::Auto => {}
        Color::Always => ColorChoice::Always.write_global(),
        Color::Never => ColorChoice::Never.write_global(),
    }
    credentials::set(cli.credentials);
    let format = if cli.json { Format::Json } else { cli.output.apply() };
    let named = cli.server.filter(|named| !named.is_empty() && !own::is_own_named(named));
    let server = match named.map(|named| Addresses::parse(&named)) {
        None => None,
        Some(Ok(server)) => Some(server),
        Some(Err(bad)) => {
            CliError::usage(bad.to_string()).print(format.is_json());
            return ExitCode::from(USAGE as u8);
        }
    };
    let context = Context { format, server, verbose: cli.verbose };
    let ended = match runtime_of(&cli.command) {
        Ok(runtime) => {
            let ended = runtime.block_on(dispatch(&context, cli.command));
            // Blocking calls on other threads must not delay the exit.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(anyhow::Error::new(error).context("cannot start").into()),
    };
    client::token_end::tell_token_end();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print(context.format.is_json());
            // An exit code has eight bits. A code that does not fit must not become 0.
            ExitCode::from(u8::try_from(exit_code_of(&error)).unwrap_or(1))
        }
    }
}

/// The code that the process ends with. A client that started a server tries again after [`TAKEN`].
fn exit_code_of(error: &CliError) -> i32 {
    match error {
        CliError::Other(error) if node::is_taken(error) => TAKEN,
        error => error.exit_code(),
    }
}

/// A server on TCP answers on several threads, so that an expensive request does not delay the others. A server on its
/// user's own socket has one thread, which saves each answer a hop between threads.
fn runtime_of(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match command {
        Command::Server(server::ServerCommand::Here(here)) if here.may_listen_on_tcp() => {
            tokio::runtime::Builder::new_multi_thread()
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    builder.worker_threads(cores.clamp(2, REQUEST_THREADS_MAX)).enable_all().build()
}

async fn dispatch(context: &Context, command: Command) -> Result<(), CliError> {
    match command {
        Command::Run(args) => run::run(context, &args).await,
        Command::Submit(args) => run::submit(context, &args).await,
        Command::Jobs(args) | Command::Job(JobCommand::List(args)) => list::jobs(context, &args).await,
        Command::Job(JobCommand::Show(args)) => show::job(context, &args).await,
        Command::Job(JobCommand::Tasks(args)) => list::tasks(context, &args).await,
        Command::Job(JobCommand::Wait(args)) => job_wait::wait(context, &args).await,
        Command::Job(JobCommand::Fetch(args)) => fetch::fetch(context, &args).await,
        Command::Job(JobCommand::Cancel(args)) => targets::cancel(context, &args).await,
        Command::Job(JobCommand::Retry(args)) => targets::retry(context, &args).await,
        Command::Job(JobCommand::Hold(args)) => verbs::act(context, &args, verbs::Verb::Hold).await,
        Command::Job(JobCommand::Release(args)) => verbs::act(context, &args, verbs::Verb::Release).await,
        Command::Job(JobCommand::Priority(args)) => verbs::prioritize(context, &args).await,
        Command::Turns(view) => turns::list(context, &view).await,
        Command::Logs(args) => logs::logs(context, &args).await,
        Command::Why(args) => why::why(context, &args).await,
        Command::Top(args) => top::top(context, &args).await,
        Command::Workers(args) => worker::list(context, args).await,
        Command::Worker(command) => worker::command(context, command).await,
        Command::Queues(view) => queue::list(context, &view).await,
        Command::Queue(command) => queue::command(context, command).await,
        Command::Limit(command) => limit::command(context, command).await,
        Command::Scheduler(command) => scheduler::command(context, command).await,
        Command::Events(args) => events::events(context, &args).await,
        Command::Board(args) => board::board(context, &args).await,
        Command::Api(args) => api::api(context, &args).await,
        Command::Mcp(args) => mcp::mcp(context, &args).await,
        Command::Version => show::version(context).await,
        Command::Token(command) => token::command(context, command).await,
        Command::Ca(command) => ca::command(command),
        Command::Server(command) => server::command(context, command).await,
        Command::Machine(command) => command.run(context).await,
        Command::Completion(args) => completion::completion(&args),
        Command::Man(args) => docs::man(&args, Cli::command()),
    }
}

/// Prints clap's output. Help and versions are data, the rest is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let wants_json = !is_help && wants_json(std::env::args_os().skip(1));
    let tip = || tips::advise(error, &command_line(), std::env::args_os().skip(1));
    if let Some(advice) = not_text(error).or_else(|| node::advise_on_flag(error)).or_else(tip) {
        advice.print(wants_json);
    } else if wants_json {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        CliError::usage(message).print(true);
    } else {
        // If standard output is closed, there is nothing left to do.
        let _ = error.print();
    }
    if is_help { ExitCode::SUCCESS } else { ExitCode::from(USAGE as u8) }
}

/// Names the argument that is not text, which the parser does not.
fn not_text(error: &clap::Error) -> Option<CliError> {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return None;
    }
    let mut arguments = std::env::args_os().enumerate();
    let (place, argument) = arguments.find(|(_, argument)| argument.to_str().is_none())?;
    let shown = argument.to_string_lossy();
    Some(CliError::Usage {
        message: format!("argument {place}, '{shown}', is not valid UTF-8, and commands are sent as text"),
        hint: Some("rename what it names, or let the command find it, by a pattern inside sh -c".to_owned()),
    })
}

/// True if a command line that cannot be parsed asks for JSON.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let own = arguments.take_while(|argument| argument != "--");
    let own: Vec<String> = own.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let is_json = |word: &str| matches!(word, "json" | "jsonl");
    let follows = own.windows(2).any(|pair| matches!(&*pair[0], "-o" | "--output") && is_json(&pair[1]));
    let attached = own.iter().any(|word| {
        let value = word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o"));
        word == "--json" || value.is_some_and(is_json)
    });
    follows || attached || std::env::var("WINDLASS_OUTPUT").is_ok_and(|word| is_json(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("windlass").chain(line.split_whitespace()))
    }

    #[test]
    fn global_flags_go_before_or_after_the_verb() {
        assert_eq!(parse("-o json jobs").unwrap().output, OutputArg::Json);
        assert_eq!(parse("jobs --output jsonl --state failed,held").unwrap().output, OutputArg::Jsonl);
        assert_eq!(parse("workers -o wide").unwrap().output, OutputArg::Wide);
        assert!(parse("job show 12 --json").unwrap().json);
        assert!(parse("jobs -o yaml").is_err());
        assert!(parse("jobs --state unknown").is_err());
    }

    #[test]
    fn flags_of_a_command_that_is_run_are_not_ours() {
        let cli = parse("run -- tool -o json --server x").unwrap();
        assert_eq!((cli.output, cli.server), (OutputArg::Table, None));
    }

    #[test]
    fn lists_are_sorted_limited_in_time_and_watched() {
        assert!(parse("jobs --sort took:desc --since 2h -w").is_ok());
        assert!(parse("job tasks -w 12 --sort memory --since 2026-03-01").is_ok());
        assert!(parse("queues --watch=10s").is_ok());
        assert!(parse("jobs --sort took:down").is_err());
        assert!(parse("jobs --since noon").is_err());
        assert!(parse("workers --watch=0s").is_err());
    }

    #[test]
    fn run_and_submit_refuse_what_contradicts() {
        assert!(parse("run --detach --foreground -- true").is_err());
        assert!(parse("run --array 5-1 -- true").is_err());
        assert!(parse("run --memory lots -- true").is_err());
        assert!(parse("run").is_err());
        assert!(parse("job cancel").is_err());
        assert!(parse("job cancel 1-5 7,9 last").is_ok());
    }

    #[test]
    fn json_is_recognized_in_a_command_line_that_makes_no_sense() {
        let wants = |line: &str| wants_json(line.split_whitespace().map(OsString::from));
        assert!(wants("jobs --bad -o json"));
        assert!(wants("--output=jsonl x"));
        assert!(wants("--json"));
        assert!(!wants("run -- tool -o json"));
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Cli::command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
