//! The course of an accepted derivation: it waits for a place, is built there, and goes elsewhere if its machine is
//! lost.

use super::builders::line_for;
use super::derivation::{self, Derivation};
use super::files::read_bounded;
use super::framing::{Setting, Try};
use super::server::{self, Reporter, Told};
use super::session::Hook;
use super::stock::{Built, Progress};
use super::store;
use super::words::Words;
use crate::wire::{BuildEvent, BuildRequest, INPUTS_MAX, Outcome, Report, store_name};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_api::client::Client;

/// The number of times that a build begins elsewhere because its machine was lost during it.
const LOST_MAX: u32 = 3;
/// The pause between attempts to connect one machine: the first, and the longest.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// How long a build waits before its user is told why.
const QUIET: Duration = Duration::from_secs(1);
/// The interval at which the hook checks that Nix still runs.
const PARENT_LOOK: Duration = Duration::from_secs(2);
/// Bytes of a derivation's file.
const DERIVATION_BYTES_MAX: usize = 8 << 20;
/// Bytes of the name of a path that can be a cache key.
const NAME_BYTES_MAX: usize = 240;
/// The exit code of a hook whose build failed, though its builder did not.
const OTHER: i32 = 1;

/// A place that the server gave.
struct Place {
    attempt: u32,
    worker: String,
    uri: String,
}

/// The outcome of waiting for a place.
enum Waited {
    Place(Place),
    /// The job ended, or the server refused it.
    Over(String),
    /// The server has been away for too long.
    Away,
}

enum Attempted {
    /// Nix's own hook has ended.
    Ended(Built),
    /// The server stopped the attempt.
    Stopped,
    /// The job ended meanwhile.
    Over(String),
}

/// A build that waits or runs.
struct Build {
    hook: Hook,
    client: Client,
    question: Try,
    inputs: Vec<String>,
    outputs: Vec<String>,
    name: String,
    told: mpsc::Receiver<Told>,
    job: Option<u64>,
    /// A place that came while the build was under way elsewhere.
    next: Option<Place>,
    /// True once the machine has built. Its place was given back then, and the outputs are copied.
    is_built: bool,
    reporter: Reporter,
    words: Words,
}

/// Builds an accepted derivation. Returns the hook's exit code.
pub(super) async fn run(hook: Hook, question: Try, inputs: Vec<String>, outputs: Vec<String>) -> i32 {
    let name = derivation::name_of(&question.drv).to_owned();
    let Some(client) = hook.client.clone() else { return OTHER };
    let told = server::converse(client.clone(), request(&hook, &question, &inputs));
    let (reporter, words) = (Reporter::new(client.clone()), Words::default());
    let mut build = Build {
        hook,
        client,
        question,
        inputs,
        outputs,
        name,
        told,
        job: None,
        next: None,
        is_built: false,
        reporter,
        words,
    };
    let parent = std::os::unix::process::parent_id();
    let code = tokio::select! {
        code = build.run() => code,
        () = gone(parent) => OTHER,
    };
    build.words.clear();
    build.reporter.finish().await;
    code
}

/// Returns when the Nix that started this hook has ended. A killed Nix does not end its hooks.
async fn gone(parent: u32) {
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(PARENT_LOOK).await;
    }
}

fn request(hook: &Hook, question: &Try, inputs: &[String]) -> BuildRequest {
    let file = read_bounded(Path::new(&question.drv), DERIVATION_BYTES_MAX).unwrap_or_default();
    let Derivation { outputs, pname, prefers_local, is_fixed_output } =
        derivation::parse(&file).unwrap_or_default();
    let name = derivation::name_of(&question.drv);
    // Nix's default is the number of the client's own cpus, which does not describe the machine that builds.
    let cores = hook.settings.get(Setting::Cores).and_then(|cores| cores.parse::<u32>().ok());
    let here = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let state = std::env::var_os("NIX_STATE_DIR").filter(|state| !state.is_empty());
    let state = state.map_or_else(|| "/nix/var/nix".into(), PathBuf::from);
    let inputs = store::largest(&state.join("db/db.sqlite"), inputs, INPUTS_MAX);
    let inputs = inputs.into_iter().map(|(path, bytes)| (store_name(&path).to_owned(), bytes));
    BuildRequest {
        wanted: hook.wanted(question),
        key: random(),
        user: hook.user.clone(),
        drv: question.drv.clone(),
        name: name.to_owned(),
        pname: pname.unwrap_or_else(|| derivation::without_version(name).to_owned()),
        cores: cores.filter(|cores| *cores > 0 && *cores as usize != here),
        prefer_local: prefers_local,
        fixed_output: is_fixed_output,
        inputs: inputs.filter(|(name, _)| name.len() <= NAME_BYTES_MAX).collect(),
        outputs: outputs.into_iter().map(|path| store_name(&path).to_owned()).collect(),
    }
}

/// A random number that identifies the build.
fn random() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

impl Build {
    async fn run(&mut self) -> i32 {
        let (mut lost, mut unreached) = (0, Vec::new());
        loop {
            let place = match self.wait().await {
                Waited::Place(place) => place,
                Waited::Over(why) => {
                    Words::fail(&why);
                    return OTHER;
                }
                Waited::Away => return self.build_without_server().await,
            };
            let (attempt, worker) = (place.attempt, place.worker.clone());
            // The server knows no other machine. This one may come back soon.
            let again = unreached.iter().filter(|name| **name == worker).count() as u32;
            tokio::time::sleep(AGAIN.saturating_mul(again).min(AGAIN_MAX)).await;
            self.words.show(&format!("windlass: {} is built on {worker}", self.name));
            let (outcome, code) = match self.attempt(place).await {
                Err(error) => {
                    let message = format!("Nix's own build hook cannot be started: {error}");
                    Words::fail(&message);
                    (Outcome::Failed { code: OTHER, message }, Some(OTHER))
                }
                Ok(Attempted::Ended(Built::Well)) => (Outcome::Succeeded, Some(0)),
                Ok(Attempted::Ended(Built::Failed { code, message })) => {
                    (Outcome::Failed { code, message }, Some(code))
                }
                Ok(Attempted::Ended(Built::NotConnected { message })) => {
                    Words::warn(&format!(
                        "{worker} is not connected ({message}); {} waits for another",
                        self.name
                    ));
                    unreached.push(worker);
                    (Outcome::NotConnected { message }, None)
                }
                Ok(Attempted::Ended(Built::Lost { message })) => {
                    lost += 1;
                    self.lost(&worker, message, lost)
                }
                Ok(Attempted::Stopped) => (Outcome::Canceled, None),
                Ok(Attempted::Over(state)) => {
                    Words::fail(&self.ended(&state));
                    (Outcome::Canceled, Some(OTHER))
                }
            };
            if !self.is_built {
                self.report(attempt, outcome);
            } else if code.is_none() {
                self.begin_again();
            }
            if let Some(code) = code {
                return code;
            }
        }
    }

    /// Prepares another job, because the outputs were lost during copying and the job has ended.
    fn begin_again(&mut self) {
        self.told = server::converse(self.client.clone(), request(&self.hook, &self.question, &self.inputs));
        (self.job, self.next, self.is_built) = (None, None, false);
    }

    /// The outcome and exit code after the machine was lost during the build; without an exit code, the build goes on
    /// elsewhere.
    fn lost(&self, worker: &str, message: String, times: u32) -> (Outcome, Option<i32>) {
        if times > LOST_MAX {
            Words::fail(&format!(
                "{} was lost {times} times, the last time on {worker}: {message}",
                self.name
            ));
            return (Outcome::Failed { code: OTHER, message }, Some(OTHER));
        }
        Words::warn(&format!("{} was lost on {worker} ({message}); it is built elsewhere", self.name));
        (Outcome::Lost { message }, None)
    }

    fn report(&self, attempt: u32, outcome: Outcome) {
        if let Some(job) = self.job {
            self.reporter.say(job, Report { attempt, outcome });
        }
    }

    /// Waits for a place, and says why it waits.
    async fn wait(&mut self) -> Waited {
        if let Some(place) = self.next.take() {
            return Waited::Place(place);
        }
        let (began, mut why) = (Instant::now(), None::<String>);
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        loop {
            let told = tokio::select! {
                told = self.told.recv() => match told {
                    Some(told) => Some(told),
                    // The conversation with the server has ended.
                    None => return Waited::Away,
                },
                () = &mut quiet, if why.is_some() && began.elapsed() < QUIET => None,
            };
            match told {
                Some(Told::Event(BuildEvent::Job { job })) => self.job = Some(job),
                Some(Told::Event(BuildEvent::Place { attempt, worker, uri })) => {
                    return Waited::Place(Place { attempt, worker, uri });
                }
                Some(Told::Event(BuildEvent::Waits { why: now })) => why = Some(now),
                Some(Told::Event(BuildEvent::Stop { .. })) => {}
                Some(Told::Event(BuildEvent::Refused { why: now, is_temporary: true })) => why = Some(now),
                Some(Told::Event(BuildEvent::Refused { why, .. })) => {
                    return Waited::Over(format!("the server refuses {}: {why}", self.name));
                }
                Some(Told::Event(BuildEvent::End { state })) => return Waited::Over(self.ended(&state)),
                Some(Told::Away) => return Waited::Away,
                None => {}
            }
            if let Some(why) = why.as_ref().filter(|_| began.elapsed() >= QUIET) {
                self.words.show(&format!("windlass: {} waits: {why}", self.name));
            } else if why.is_some() {
                // Shown at the end of the quiet time if the build still waits then.
                quiet.as_mut().reset(tokio::time::Instant::from_std(began + QUIET));
            }
        }
    }

    fn ended(&self, state: &str) -> String {
        match self.job {
            Some(job) => format!(
                "{}: job {job} has {}",
                self.name,
                if state == "canceled" { "been cancelled" } else { state }
            ),
            None => format!("{} was not taken", self.name),
        }
    }

    /// Builds on the machine that has a place.
    async fn attempt(&mut self, place: Place) -> std::io::Result<Attempted> {
        let Try { system, features, .. } = &self.question;
        let line = match line_for(&self.hook.builders, &place.uri, system, features) {
            Ok(line) => line,
            Err(bad) => return Ok(Attempted::Ended(Built::NotConnected { message: bad.to_string() })),
        };
        let (job, attempt, reporter) = (self.job, place.attempt, &self.reporter);
        let say = |outcome| _ = job.map(|job| reporter.say(job, Report { attempt, outcome }));
        let is_built = &mut self.is_built;
        let tell = |progress| match progress {
            Progress::Connected => say(Outcome::Began),
            Progress::Built => {
                *is_built = true;
                say(Outcome::Succeeded);
            }
        };
        let build = self.hook.stock.build(
            &self.hook.settings,
            &self.question,
            (&self.inputs, &self.outputs),
            Some((&line, self.hook.options.connect_max)),
            tell,
        );
        tokio::pin!(build);
        loop {
            let told = tokio::select! {
                built = &mut build => return built.map(Attempted::Ended),
                told = self.told.recv() => told,
            };
            match told {
                Some(Told::Event(BuildEvent::Stop { attempt })) if attempt == place.attempt => {
                    return Ok(Attempted::Stopped);
                }
                // The job ends when the machine has built. The outputs are copied after that.
                Some(Told::Event(BuildEvent::End { state })) if state == "succeeded" => {}
                Some(Told::Event(BuildEvent::End { state })) => return Ok(Attempted::Over(state)),
                // After a restart of the server another attempt may have taken this one's place.
                Some(Told::Event(BuildEvent::Place { attempt, worker, uri })) if attempt != place.attempt => {
                    self.next = Some(Place { attempt, worker, uri });
                    return Ok(Attempted::Stopped);
                }
                // A restarted server does not know yet that the build runs.
                Some(Told::Event(BuildEvent::Place { .. })) => say(Outcome::Began),
                Some(_) => {}
                // The server is gone. The build that is under way goes on.
                None => return build.await.map(Attempted::Ended),
            }
        }
    }

    /// Builds without the server. Nix's own hook chooses among the client's own machines.
    async fn build_without_server(&mut self) -> i32 {
        Words::warn(&format!("the server is away; Nix's own build hook builds {}", self.name));
        self.words.clear();
        let paths = (self.inputs.as_slice(), self.outputs.as_slice());
        let built = self.hook.stock.build(&self.hook.settings, &self.question, paths, None, |_| {}).await;
        match built {
            Ok(Built::Well) => 0,
            Ok(Built::Failed { code, .. }) => code,
            Ok(Built::NotConnected { message } | Built::Lost { message }) => {
                Words::fail(&message);
                OTHER
            }
            Err(error) => {
                Words::fail(&format!("Nix's own build hook cannot be started: {error}"));
                OTHER
            }
        }
    }
}
