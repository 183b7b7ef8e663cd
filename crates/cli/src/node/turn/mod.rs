//! `windlass turn`: waits until it is a command's turn on this machine, and runs it in its own place.
//!
//! Compilers are started by the thousand, so nothing is set up that a turn does not need: `main` comes here before it
//! knows its whole command line. A build must not fail because of Windlass: without a server, and where no room could ever
//! be had, the command runs at once, unless `--strict` is given.

pub mod args;
mod child;
mod link;
mod request;
mod shape;
mod signals;
mod tree;
mod worktree;

use crate::client::credentials::{self, CredentialFlags};
use crate::node::own;
use crate::ui::error::{CliError, USAGE};
use crate::ui::message::silence;
use anyhow::Context as _;
use args::{FLAGS_VARIABLE, NAME, TurnArgs, TurnMemory, wrapper_line};
use child::{ChildEnd, TurnChild, become_command, command_of};
use clap::Parser;
use link::{GivenTurn, TurnLink};
use request::{BOOKED_VARIABLE, OuterRoom, TURN_VARIABLE, request_for};
use rustix::fs::{FileType, fstat};
use shape::{CommandShape, Purpose, shape_of};
use signals::{CallerSignals, HeardSignals};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::pin::pin;
use std::time::Instant;
use windlass_api::{Addresses, TurnEnd, TurnRequest};
use windlass_core::resources::Bytes;
use windlass_worker::own_oom_kills;

/// The exit code by which a shell tells that a process was killed.
const KILLED: i32 = 128 + libc::SIGKILL;
/// Exit codes of a shell for a program that cannot be executed, and for one that is not there.
const NOT_EXECUTABLE: i32 = 126;
const NO_PROGRAM: i32 = 127;

/// The command as a program of its own: only the flags that it has.
#[derive(Parser)]
#[command(name = NAME)]
struct TurnAlone {
    #[arg(long, env = "WINDLASS_SERVER")]
    server: Option<String>,
    #[command(flatten)]
    credentials: CredentialFlags,
    #[command(flatten)]
    turn: TurnArgs,
}

/// Runs the command if this process is one; then the result is its exit code. What cannot be parsed here is left to the
/// whole command line, which knows all flags and has the help.
pub fn run_if_asked() -> Option<i32> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let words: Vec<OsString> = words.collect();
    let by_name = Path::new(&program).file_name() == Some(OsStr::new(NAME));
    let line = if by_name {
        wrapper_line(&std::env::var(FLAGS_VARIABLE).unwrap_or_default(), words)
    } else if words.first().is_some_and(|word| word == "turn") {
        words
    } else {
        return None;
    };
    let TurnAlone { server, credentials, turn } = match TurnAlone::try_parse_from(line) {
        Ok(parsed) => parsed,
        Err(error) if by_name => {
            // If standard error is closed, there is nothing left to do.
            _ = error.print();
            return Some(USAGE);
        }
        Err(_) => return None,
    };
    credentials::set(credentials);
    let named = server.as_deref().filter(|named| !named.is_empty() && !own::is_own_named(named));
    let server = match named.map(Addresses::parse).transpose() {
        Ok(server) => server,
        Err(bad) => return Some(failed(&CliError::usage(bad.to_string()))),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(run(server, &turn));
            // A server that is being started must not delay the exit.
            runtime.shutdown_background();
            Some(code)
        }
        Err(error) => Some(failed(&anyhow::Error::new(error).context("cannot start").into())),
    }
}

/// Prints an error, and returns its exit code.
fn failed(error: &CliError) -> i32 {
    error.print(false);
    error.exit_code()
}

/// Waits for the turn and runs the command; returns its exit code. Call it on the process's first thread: the kernel kills
/// the command when the thread ends that started it.
pub async fn run(server: Option<Addresses>, args: &TurnArgs) -> i32 {
    if let Some(dir) = &args.install {
        return install(dir).map_or_else(|error| failed(&error.into()), |()| 0);
    }
    let directory = std::env::current_dir().unwrap_or_default();
    let shape = shape_of(&args.command, &directory);
    let outer = OuterRoom::of(|name| std::env::var_os(name).is_some());
    let request = match shape.purpose {
        Purpose::Tells => None,
        Purpose::Builds | Purpose::Other => request_for(args, &shape, outer, &directory),
    };
    let Some(request) = request else { return run_at_once(args) };
    if is_read_by_tools(&shape) {
        silence();
    }
    let asked = async {
        let mut link = TurnLink::new(server)?;
        let given = link.wait(&request).await?;
        Ok::<_, CliError>((link, given))
    };
    match asked.await {
        Ok((link, given)) => {
            let course = Course { args, shape, caller: CallerSignals::take(), link };
            match course.run(request, given).await {
                Ok(end) => end.repeat(),
                Err(error) => not_started(args, &error),
            }
        }
        Err(error) if args.strict => {
            say(&format!("error: {}", error.message()));
            error.exit_code()
        }
        Err(error) => {
            let (name, why) = (name_of(args), error.message());
            warn(&shape, &format!("warning: '{name}' runs without waiting for its turn: {why}"));
            run_at_once(args)
        }
    }
}

/// Becomes the command. Returns its exit code only if that fails.
fn run_at_once(args: &TurnArgs) -> i32 {
    not_started(args, &become_command(command_of(&args.command, &[])))
}

/// Says why the command does not run, and returns the exit code of a shell for that.
fn not_started(args: &TurnArgs, error: &io::Error) -> i32 {
    say(&format!("error: cannot run '{}': {error}", name_of(args)));
    if error.kind() == io::ErrorKind::NotFound { NO_PROGRAM } else { NOT_EXECUTABLE }
}

fn name_of(args: &TurnArgs) -> String {
    args.command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
}

/// True of a compiler whose words a build tool reads. Cargo keeps them with the crate, and says them again in each later
/// build. Configure scripts take any word for a refusal of the flag that they try.
fn is_read_by_tools(shape: &CommandShape) -> bool {
    shape.purpose == Purpose::Builds && !io::stderr().is_terminal()
}

/// Says why the command failed, also to a tool.
fn say(what: &str) {
    // If standard error is closed, the failure cannot be reported.
    _ = writeln!(io::stderr(), "{what}");
}

/// Says something of a command that goes on; past a tool that reads standard error, to the person's terminal, if there is
/// one.
fn warn(shape: &CommandShape, what: &str) {
    if !is_read_by_tools(shape) {
        say(what);
    } else if let Ok(mut terminal) = std::fs::OpenOptions::new().write(true).open("/dev/tty") {
        // A terminal that is gone has no reader.
        _ = writeln!(terminal, "{what}");
    }
}

/// Makes the link by which this program is a wrapper without arguments.
fn install(dir: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let link = dir.join(NAME);
    if link.is_symlink() {
        std::fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    std::os::unix::fs::symlink(&program, &link)
        .with_context(|| format!("cannot make the link {}", link.display()))?;
    // If standard output is closed, the link is there all the same.
    _ = writeln!(io::stdout(), "{}", link.display());
    Ok(())
}

/// A command that has its turn.
struct Course<'a> {
    args: &'a TurnArgs,
    shape: CommandShape,
    caller: CallerSignals,
    link: TurnLink,
}

impl Course<'_> {
    /// Runs the command; once more if the kernel killed it because memory was short. The server has learned of the kill
    /// then, and books more.
    async fn run(mut self, request: TurnRequest, given: GivenTurn) -> io::Result<ChildEnd> {
        let first = self.run_once(&request, given).await?;
        let (end, true) = first else { return Ok(first.0) };
        if !self.may_run_again() {
            say(&self.killed(end));
            return Ok(end);
        }
        warn(&self.shape, &format!("{}; it runs again with more memory booked", self.killed(end)));
        let given = match self.link.wait(&request).await {
            Ok(given) => given,
            Err(error) => {
                say(&format!("{}; it does not run again: {}", self.killed(end), error.message()));
                return Ok(end);
            }
        };
        let (end, is_short) = self.run_once(&request, given).await?;
        if is_short {
            say(&self.killed(end));
        }
        Ok(end)
    }

    fn killed(&self, end: ChildEnd) -> String {
        let held = Bytes(end.peak_bytes);
        format!("windlass: '{}' was killed because memory was short, and held {held}", name_of(self.args))
    }

    /// Runs the command in this turn. True if the kernel killed it, or a process that it started, for memory.
    async fn run_once(&mut self, request: &TurnRequest, given: GivenTurn) -> io::Result<(ChildEnd, bool)> {
        let is_auto = self.args.memory == Some(TurnMemory::Auto);
        let kills = if is_auto { own_oom_kills() } else { None };
        let booked = given.memory.map(|bytes| bytes.to_string());
        let variables = [(TURN_VARIABLE, Some(given.turn.to_string())), (BOOKED_VARIABLE, booked)];
        let mut heard = HeardSignals::begin()?;
        let child = TurnChild::start(command_of(&self.args.command, &variables), self.caller)?;
        let began = Instant::now();
        let (client, turn, peak) = (self.link.client(), Cell::new(given.turn), Cell::new(0));
        let is_told = given.memory.is_some();
        let mut kept = pin!(self.link.keep(request.clone(), given, &turn));
        let watched = async {
            match is_told {
                true => tree::watch(&client, &turn, child.pid(), &peak).await,
                // What it holds is what turns inside it have booked.
                false => pending().await,
            }
        };
        let mut end = tokio::select! {
            end = child.ended(&mut heard) => end?,
            never = &mut kept => match never {},
            never = watched => match never {},
        };
        end.peak_bytes = end.peak_bytes.max(peak.get());
        let later = if end.code() == 0 { None } else { kills.and_then(|_| own_oom_kills()) };
        let is_short = is_killed_for_memory(self.shape.purpose, end.code(), kills.zip(later));
        if !request.shape.is_empty() {
            let ended = TurnEnd {
                peak_memory: Some(end.peak_bytes),
                wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                exit_code: Some(end.code()),
                out_of_memory: is_short,
            };
            TurnLink::end(&client, turn.get(), &ended).await;
        }
        Ok((end, is_short))
    }

    /// True if a second run reads and writes what the first one did. Compilers do, unless they read standard input; of
    /// another command nothing is known but that a device gives it no end of a file.
    fn may_run_again(&self) -> bool {
        if self.shape.purpose == Purpose::Builds {
            return self.args.command.iter().all(|word| word != "-");
        }
        let kind = fstat(io::stdin()).map(|found| FileType::from_raw_mode(found.st_mode));
        kind.is_ok_and(|kind| kind == FileType::CharacterDevice)
    }
}

/// Whether the kernel killed a command for memory, by its exit code and by the kills that were counted in its control
/// group before and after it. A signal alone proves nothing: a person may have sent it. A compiler that started the
/// killed process tells that by any code but 0.
fn is_killed_for_memory(purpose: Purpose, code: i32, kills: Option<(u64, u64)>) -> bool {
    let is_counted = kills.is_some_and(|(before, after)| after > before);
    is_counted && (code == KILLED || (purpose == Purpose::Builds && code != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_for_memory_needs_evidence() {
        let cases = [
            (Purpose::Other, KILLED, Some((1, 2)), true),
            (Purpose::Builds, KILLED, Some((1, 2)), true),
            (Purpose::Builds, 1, Some((0, 3)), true),
            (Purpose::Other, 1, Some((0, 3)), false),
            (Purpose::Builds, 0, Some((0, 3)), false),
            (Purpose::Other, KILLED, Some((2, 2)), false),
            (Purpose::Builds, KILLED, None, false),
        ];
        for (purpose, code, kills, expected) in cases {
            assert_eq!(is_killed_for_memory(purpose, code, kills), expected, "{purpose:?} {code} {kills:?}");
        }
    }
}
