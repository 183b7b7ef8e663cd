//! The program that Nix runs in the place of its own build hook.
//!
//! The hook accepts a derivation at once and waits for a place afterwards, because Nix does nothing else until it has
//! the answer. It leaves everything that it cannot do to Nix's own hook, so that without a server Nix works as before.

mod build;
pub mod builders;
pub mod derivation;
pub mod framing;
mod parent;
mod server;
mod stock;
pub mod store;
mod words;

use crate::wire::{TryAnswer, TryRequest, Wanted, host};
use builders::Builder;
use framing::{BadInput, Reader, Setting, Settings, Try};
use std::ffi::OsString;
use std::io::Read as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stock::Stock;
use windlass_api::client::Client;
use words::Words;

/// How long the server may take to answer whether a derivation is accepted. Nix does nothing else meanwhile.
const ANSWER_MAX: Duration = Duration::from_millis(40);
/// The default of [`HookOptions::in_flight_max`].
pub const IN_FLIGHT_MAX: usize = 200;
/// Files that Nix has open for each build that it waits for, generously.
const FILES_PER_BUILD: u64 = 8;
/// The default of [`HookOptions::connect_max`].
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The settings of the hook.
pub struct HookOptions {
    /// The client of the server, or why it cannot be used.
    pub client: Result<Client, String>,
    /// The owner of the builds, unless the parent is a daemon, which knows its user.
    pub user: Option<String>,
    /// The program of Nix's own hook; `None` is the Nix that started this hook.
    pub stock: Option<PathBuf>,
    /// The largest number of builds of one run of Nix that wait or run.
    pub in_flight_max: usize,
    /// How long connecting a machine may take.
    pub connect_max: Duration,
    /// Nix's level of verbosity, as it gave it.
    pub verbosity: OsString,
}

/// The hook's answer to Nix.
enum Answer {
    Accept,
    Postpone,
    Decline(String),
    /// Nix's own hook decides, for this reason.
    Stock(String),
}

/// The state of one hook.
struct Hook {
    options: HookOptions,
    client: Option<Client>,
    stock: Stock,
    settings: Settings,
    builders: Vec<Builder>,
    name: String,
    user: Option<String>,
}

/// True once a derivation was accepted. Nix waits for no further answer then.
static IS_ACCEPTED: AtomicBool = AtomicBool::new(false);

/// Serves Nix until its build has ended. Returns the exit code. A hook that ends without an answer fails the whole run of
/// Nix, so even a defect of the hook is answered: Nix then builds by itself.
pub fn run(options: HookOptions) -> i32 {
    match std::panic::catch_unwind(AssertUnwindSafe(|| serve(options))) {
        Ok(code) => code,
        Err(_) if IS_ACCEPTED.load(Ordering::Relaxed) => 1,
        Err(_) => {
            Words::line("# decline");
            0
        }
    }
}

fn serve(mut options: HookOptions) -> i32 {
    let stock = Stock { program: options.stock.clone(), verbosity: options.verbosity.clone() };
    let mut input = Reader::new(std::io::stdin().lock());
    let settings = match input.settings() {
        Ok(settings) => settings,
        Err(error) => return bad_input(&error),
    };
    let (client, no_client) = match std::mem::replace(&mut options.client, Err(String::new())) {
        Ok(client) => (Some(client), String::new()),
        Err(why) => (None, why),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return take_over(&stock, &settings, None, &format!("no runtime: {error}")),
    };
    let system = settings.get(Setting::System).unwrap_or_default();
    let mut builders = builders::read(settings.get(Setting::Builders).unwrap_or_default(), system);
    // Nix locks the outputs in its own store while it waits. A build on this machine would wait for that lock forever.
    let own = parent::host();
    builders.retain(|builder| host(&builder.machine.uri) != own);
    let user = parent::daemon_s_peer().or_else(|| options.user.clone());
    let hook = Hook { options, client, stock, settings, builders, name: parent::name(), user };
    loop {
        let question = match input.question() {
            Ok(question) => question,
            Err(error) => return bad_input(&error),
        };
        let answer = match &hook.client {
            Some(_) if builders::check_words(&question.system, &question.features).is_err() => {
                Answer::Stock("its system or a feature is not a plain word".to_owned())
            }
            Some(client) => runtime.block_on(hook.decide(client, &question)),
            None => Answer::Stock(no_client.clone()),
        };
        match answer {
            Answer::Accept => return hook.accept(&runtime, input, question),
            Answer::Postpone => Words::line("# postpone"),
            Answer::Decline(why) => {
                Words::warn(&format!("{}: {why}", derivation::name_of(&question.drv)));
                Words::line("# decline");
            }
            Answer::Stock(why) => {
                // Nix's own hook reads on from here.
                drop(input);
                return take_over(&hook.stock, &hook.settings, Some(&question), &why);
            }
        }
    }
}

/// Answers Nix although its input cannot be read, because it waits for an answer.
fn bad_input(error: &BadInput) -> i32 {
    if !matches!(error, BadInput::Ended) {
        Words::warn(&error.to_string());
        Words::line("# decline");
    }
    0
}

/// Replaces this hook by Nix's own.
fn take_over(stock: &Stock, settings: &Settings, question: Option<&Try>, why: &str) -> i32 {
    if !why.is_empty() {
        Words::warn(&format!("{why}; Nix's own build hook is used"));
    }
    match stock.take_over(settings, question) {
        Ok(code) => code,
        Err(error) => {
            Words::warn(&format!("Nix's own build hook cannot be started: {error}"));
            Words::line("# decline");
            0
        }
    }
}

impl Hook {
    fn wanted(&self, question: &Try) -> Wanted {
        Wanted {
            client: self.name.clone(),
            store: crate::store_id().unwrap_or_default(),
            system: question.system.clone(),
            features: question.features.clone(),
            machines: self.builders.iter().map(|builder| builder.machine.clone()).collect(),
        }
    }

    async fn decide(&self, client: &Client, question: &Try) -> Answer {
        let files = parent::open_files_max().map_or(usize::MAX, |files| (files / FILES_PER_BUILD) as usize);
        let in_flight_max = self.options.in_flight_max.min(files).max(1);
        let request = TryRequest { wanted: self.wanted(question), in_flight_max };
        match tokio::time::timeout(ANSWER_MAX, server::ask(client, &request)).await {
            // The server is busy. Accepting is safe, because waiting costs Nix nothing once the derivation is accepted.
            Err(_) => Answer::Accept,
            Ok(Ok(TryAnswer::Accept)) => Answer::Accept,
            Ok(Ok(TryAnswer::Postpone)) => Answer::Postpone,
            Ok(Ok(TryAnswer::Decline { why })) => Answer::Decline(why),
            Ok(Err(error)) if error.is_unreachable() => Answer::Stock(error.to_string()),
            Ok(Err(error)) => Answer::Stock(format!("the server does not take builds: {error}")),
        }
    }

    fn accept(
        self,
        runtime: &tokio::runtime::Runtime,
        mut input: Reader<std::io::StdinLock<'_>>,
        question: Try,
    ) -> i32 {
        IS_ACCEPTED.store(true, Ordering::Relaxed);
        Words::line("# accept\nwindlass");
        let read = input.texts().and_then(|inputs| Ok((inputs, input.texts()?)));
        let (inputs, outputs) = match read {
            Ok(read) => read,
            Err(error) => {
                Words::fail(&error.to_string());
                return 1;
            }
        };
        let code = runtime.block_on(build::run(self, question, inputs, outputs));
        // Tasks that still run must not delay the end of the process.
        std::process::exit(code)
    }
}

/// Reads a file of at most this many bytes.
fn read_bounded(path: &Path, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
