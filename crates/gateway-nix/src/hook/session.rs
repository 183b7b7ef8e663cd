//! The state of one hook, and its question to the server whether a derivation is taken.

use super::builders::Builder;
use super::framing::{Settings, Try};
use super::stock::Stock;
use super::{parent, server};
use crate::wire::{TryAnswer, TryRequest, Wanted};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use windlass_api::client::Client;

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
pub(super) enum Answer {
    Accept,
    Postpone,
    Decline(String),
    /// Nix's own hook decides, for this reason.
    Stock(String),
}

pub(super) struct Hook {
    pub(super) options: HookOptions,
    pub(super) client: Option<Client>,
    pub(super) stock: Stock,
    pub(super) settings: Settings,
    pub(super) builders: Vec<Builder>,
    pub(super) name: String,
    pub(super) user: Option<String>,
}

impl Hook {
    /// The derivation as the server is asked about it, with the machines of the setting `builders`.
    pub(super) fn wanted(&self, question: &Try) -> Wanted {
        Wanted {
            client: self.name.clone(),
            store: crate::store_id().unwrap_or_default(),
            system: question.system.clone(),
            features: question.features.clone(),
            machines: self.builders.iter().map(|builder| builder.machine.clone()).collect(),
        }
    }

    /// Asks the server what to answer Nix about a derivation.
    pub(super) async fn decide(&self, client: &Client, question: &Try) -> Answer {
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
}
