//! The program that Nix runs in the place of its own build hook.
//!
//! The hook accepts a derivation at once and waits for a place afterwards, because Nix does nothing else until it has
//! the answer. It leaves everything that it cannot do to Nix's own hook, so that without a server Nix works as before.

mod build;
pub mod builders;
pub mod derivation;
mod files;
pub mod framing;
mod parent;
mod server;
mod session;
mod stock;
pub mod store;
mod words;

pub use session::{CONNECT_MAX, HookOptions, IN_FLIGHT_MAX};

use crate::wire::host;
use framing::{BadInput, Reader, Setting, Settings, Try};
use session::{Answer, Hook};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use stock::Stock;
use words::Words;

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
