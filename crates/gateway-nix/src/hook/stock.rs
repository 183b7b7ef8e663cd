//! Nix's own build hook. It copies the inputs to the one machine that it is told of, builds there, and copies the
//! outputs back.

use super::framing::{Settings, Try, texts};
use super::words::{Words, plain};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin, Command};

/// The program name under which Nix runs as its build hook.
const NAME: &str = "build-remote";
/// Bytes of one line. The rest of a longer line counts as a further line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are kept of error messages.
const SAID_BYTES_MAX: usize = 8 << 10;
/// The pause before a hook without a free machine is asked again.
const POSTPONED: Duration = Duration::from_secs(1);

/// How to start Nix's own hook.
#[derive(Clone, Debug)]
pub struct Stock {
    /// The program of the hook; `None` is the Nix that started this hook.
    pub program: Option<PathBuf>,
    /// Nix's level of verbosity, as it gave it.
    pub verbosity: OsString,
}

/// The outcome of a build by Nix's own hook.
// The names say what the fields are.
#[allow(missing_docs)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Built {
    /// The outputs are in the client's store.
    Well,
    /// The builder failed, with the exit code of a local build.
    Failed {
        /// The exit code: 100, or 101 for a time limit.
        code: i32,
        message: String,
    },
    /// The machine could not be connected.
    NotConnected { message: String },
    /// The connection was lost, or copying failed.
    Lost { message: String },
}

/// The progress of a build by Nix's own hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The machine is connected and builds.
    Connected,
    /// The machine has built. Its outputs are copied now.
    Built,
}

/// The text with which the hook begins to copy outputs.
const COPIES_OUTPUTS: &str = "copying outputs from ";

/// A hook that runs. Dropping it kills the hook with all its processes.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<pipe::Receiver>,
    /// Activities that the hook began and did not end.
    open: BTreeSet<u64>,
    /// The texts of its messages, for the case that it fails.
    said: String,
    /// The lines of these messages, to be passed on.
    messages: Vec<String>,
}

impl Stock {
    /// The command of the hook, under the name that makes Nix a build hook.
    fn command(&self) -> std::process::Command {
        use std::os::unix::process::CommandExt as _;
        let parent = || PathBuf::from(format!("/proc/{}/exe", std::os::unix::process::parent_id()));
        let mut command = std::process::Command::new(self.program.clone().unwrap_or_else(parent));
        command.arg0(NAME).arg(&self.verbosity);
        command
    }

    /// Runs Nix's own hook in the place of this one. It gets the bytes that this one got, and all that follow. Returns
    /// its exit code.
    pub fn take_over(&self, settings: &Settings, question: Option<&Try>) -> io::Result<i32> {
        let mut child = self.command().stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut sent = Vec::new();
        settings.write(None, &mut sent)?;
        question.map(|question| question.write(&mut sent)).transpose()?;
        // The thread ends with this process, which ends with the hook.
        std::thread::spawn(move || {
            use std::io::Write as _;
            let mut from = io::stdin().lock();
            stdin.write_all(&sent).and_then(|()| io::copy(&mut from, &mut stdin))
        });
        Ok(exit_code(child.wait()?))
    }

    /// Builds a derivation on the machine of this line of `builders`, with this limit for connecting it. Without a line
    /// it is built on any machine of the client's own setting, without a limit. `tell` gets the progress.
    pub async fn build(
        &self,
        settings: &Settings,
        question: &Try,
        (inputs, outputs): (&[String], &[String]),
        builder: Option<(&str, Duration)>,
        mut tell: impl FnMut(Progress),
    ) -> io::Result<Built> {
        let mut running = self.start()?;
        let accepted = {
            let accept = running.ask(settings, question, builder.map(|(line, _)| line));
            match builder {
                Some((_, limit)) => match tokio::time::timeout(limit, accept).await {
                    Ok(accepted) => accepted?,
                    Err(_) => {
                        running.say(&format!("not connected within {} s", limit.as_secs()));
                        false
                    }
                },
                None => accept.await?,
            }
        };
        if !accepted {
            return Ok(Built::NotConnected { message: running.last_words() });
        }
        tell(Progress::Connected);
        let mut sent = Vec::new();
        texts(inputs, &mut sent)?;
        texts(outputs, &mut sent)?;
        // A hook that ended already tells why in its messages.
        if let Some(mut stdin) = running.stdin.take() {
            _ = stdin.write_all(&sent).await;
        }
        while let Some(line) = running.line().await? {
            if running.hear(&line) {
                tell(Progress::Built);
            }
        }
        let status = running.child.wait().await?;
        Ok(running.judge(status, &question.drv))
    }

    fn start(&self) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let mut command = Command::from(command);
        command.process_group(0).kill_on_drop(true);
        let this = rustix::process::getpid();
        let die_with_parent = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before.
            if rustix::process::getppid() == Some(this) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        };
        // SAFETY: between fork and exec the function makes two system calls, which is allowed there, and allocates
        // nothing.
        unsafe { command.pre_exec(die_with_parent) };
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        // The command holds the writing end of the pipe.
        drop(command);
        let lines = BufReader::new(pipe::Receiver::from_owned_fd(reader.into())?);
        Ok(Running { child, stdin, lines, open: BTreeSet::new(), said: String::new(), messages: Vec::new() })
    }
}

impl Running {
    /// Asks the hook to build. False if it declines or ends.
    async fn ask(&mut self, settings: &Settings, question: &Try, builders: Option<&str>) -> io::Result<bool> {
        let mut sent = Vec::new();
        settings.write(builders, &mut sent)?;
        loop {
            question.write(&mut sent)?;
            let Some(stdin) = &mut self.stdin else { return Ok(false) };
            if stdin.write_all(&sent).await.is_err() {
                // The hook has ended, and tells why in its messages.
                self.stdin = None;
            }
            sent.clear();
            loop {
                let Some(line) = self.line().await? else { return Ok(false) };
                match line.strip_prefix("# ") {
                    Some("accept") => return Ok(self.line().await?.is_some()),
                    Some("postpone") if builders.is_none() => break tokio::time::sleep(POSTPONED).await,
                    Some(_) => return Ok(false),
                    None => _ = self.hear(&line),
                }
            }
        }
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    /// Passes on activities, which show what is copied. Messages are kept until it is known whether they matter. True
    /// if the copying of outputs begins.
    fn hear(&mut self, line: &str) -> bool {
        let Some(json) = line.strip_prefix("@nix ") else {
            self.say(&plain(line));
            return false;
        };
        let said = serde_json::from_str::<Value>(json).unwrap_or_default();
        let id = said["id"].as_u64();
        match said["action"].as_str() {
            Some("msg") => {
                let text = said["raw_msg"].as_str().or(said["msg"].as_str()).unwrap_or_default();
                self.say(&plain(text));
                if self.messages.iter().map(String::len).sum::<usize>() < SAID_BYTES_MAX {
                    self.messages.push(line.to_owned());
                }
                return false;
            }
            Some("start") => _ = id.map(|id| self.open.insert(id)),
            Some("stop") => _ = id.map(|id| self.open.remove(&id)),
            _ => {}
        }
        Words::line(line);
        said["action"] == "start"
            && said["text"].as_str().is_some_and(|text| text.starts_with(COPIES_OUTPUTS))
    }

    fn say(&mut self, text: &str) {
        if self.said.len() < SAID_BYTES_MAX && !text.trim().is_empty() {
            self.said.push_str(text.trim());
            self.said.push('\n');
        }
    }

    /// The last line of its messages.
    fn last_words(&self) -> String {
        self.said.trim().lines().last().unwrap_or("it said nothing").to_owned()
    }

    fn judge(&mut self, status: ExitStatus, drv: &str) -> Built {
        if status.success() {
            return Built::Well;
        }
        let said = self.said.trim().to_owned();
        // Nix's own hook uses these words only for the result of the machine's builder.
        if said.contains(&format!("build of '{drv}' on '")) {
            self.messages.iter().for_each(|line| Words::line(line));
            let code = if said.contains("timed out") { 101 } else { 100 };
            return Built::Failed { code, message: said };
        }
        Built::Lost { message: self.last_words() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for id in &self.open {
            Words::stop(*id);
        }
        // A hook that was waited for has no process number.
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // The processes that it started end with it, such as an ssh that waits for a host that is gone.
            _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// The exit code of a status, as in a shell.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
