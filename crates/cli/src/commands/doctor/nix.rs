//! Checks of a machine as a client of Nix with `windlass nix-hook` as its build hook.

use super::check::Check;
use crate::client::context::Context;
use crate::node::nix_hook;
use crate::node::nix_machine::{NIX_WAIT, setting, settings};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use windlass_api::client::Client;
use windlass_gateway_nix::hook::builders;
use windlass_gateway_nix::wire::{TRY_PATH, TryAnswer, TryRequest, Wanted};
use windlass_worker::run_within;

const DAEMON_SOCKET: &str = "/nix/var/nix/daemon-socket/socket";
/// The first release whose hook may have arguments.
const WITH_ARGUMENTS: (u32, u32) = (2, 11);
/// The first release that ignores `build-hook` in nix.conf, and the first one that heeds it again.
const IGNORES: (u32, u32) = (2, 25);
const HEEDS: (u32, u32) = (2, 34);

/// Checks Nix, its setting, the server, and whether some machine would build for this one.
pub async fn checks(context: &Context) -> Vec<Check> {
    let Some(version) = version() else {
        let what = "'nix-store --version' says none".to_owned();
        return vec![Check::missing("nix", what, "install Nix, or put it into PATH")];
    };
    let mut checks = vec![Check::ok("nix", format!("{}.{}", version.0, version.1))];
    let settings = settings();
    match &settings {
        Ok(settings) => checks.push(hook(version, setting(settings, "build-hook").unwrap_or_default())),
        Err(error) => {
            let advice = "set build-hook to 'windlass nix-hook', as the manual's page on Nix says";
            checks.push(Check::note("build-hook", format!("cannot be read: {error:#}"), advice));
        }
    }
    checks.extend(daemon());
    let server = context.server.as_ref().map(ToString::to_string);
    match nix_hook::client(server.as_deref()) {
        Ok(client) => checks.push(server_check(&client, &settings.unwrap_or_default()).await),
        Err(why) => {
            let advice =
                "start one with 'windlass server start', or name one: WINDLASS_SERVER in Nix's environment";
            checks.push(Check::missing("server", why, advice));
        }
    }
    checks
}

/// The release of Nix.
fn version() -> Option<(u32, u32)> {
    let said = run_within(Command::new("nix-store").arg("--version"), NIX_WAIT).ok()?;
    read_version(&String::from_utf8_lossy(&said))
}

fn read_version(said: &str) -> Option<(u32, u32)> {
    let word = said.split_ascii_whitespace().last()?;
    let mut parts = word.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether Nix would start the hook.
fn hook(version: (u32, u32), value: &str) -> Check {
    const WHAT: &str = "build-hook";
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let is_alone = words.first().is_some_and(|word| word.ends_with("/windlass-nix-hook"));
    let is_ours = is_alone || words.get(1) == Some(&"nix-hook");
    if (IGNORES..HEEDS).contains(&version) {
        let what = format!("Nix {}.{} ignores build-hook in nix.conf (a defect)", version.0, version.1);
        let advice = "give it on the command line, and to nix-daemon as an argument: --option build-hook 'PATH/windlass nix-hook'";
        return Check::note(WHAT, what, advice);
    }
    if !is_ours {
        let advice = "add to nix.conf: build-hook = PATH/windlass nix-hook; before Nix 2.11 a link: PATH/windlass-nix-hook";
        return Check::note(WHAT, format!("is '{value}', which is not Windlass"), advice);
    }
    if version < WITH_ARGUMENTS && !is_alone {
        let advice = "make a link named windlass-nix-hook to windlass, and set build-hook to its path";
        return Check::missing(WHAT, "Nix before 2.11 takes no arguments there".to_owned(), advice);
    }
    let program = words[0];
    if program.starts_with('/') && !Path::new(program).exists() {
        return Check::missing(WHAT, format!("there is no {program}"), "give the whole path of windlass");
    }
    Check::ok(WHAT, value.to_owned())
}

/// A daemon starts the hook with the daemon's own environment.
fn daemon() -> Option<Check> {
    Path::new(DAEMON_SOCKET).exists().then(|| {
        let advice = "set WINDLASS_SERVER and WINDLASS_TOKEN_FILE in the environment of nix-daemon, and set build-hook there";
        Check::note("daemon", "nix-daemon starts the hook here, as root".to_owned(), advice)
    })
}

/// Whether the server answers in time, and whether some machine would build.
async fn server_check(client: &Client, settings: &str) -> Check {
    const WHAT: &str = "server";
    let system = setting(settings, "system").unwrap_or("x86_64-linux").to_owned();
    let machines = builders::read(setting(settings, "builders").unwrap_or_default(), &system);
    let wanted = Wanted {
        client: "doctor".to_owned(),
        store: windlass_gateway_nix::store_id().unwrap_or_default(),
        system: system.clone(),
        features: Vec::new(),
        machines: machines.into_iter().map(|builder| builder.machine).collect(),
    };
    let (clock, named) = (Instant::now(), wanted.machines.len());
    let asked = client.post::<TryAnswer>(TRY_PATH, &TryRequest { wanted, in_flight_max: 0 }).await;
    let took_ms = clock.elapsed().as_millis();
    let advice = "name machines in 'builders', or start workers with 'windlass worker start --nix'";
    match asked {
        Ok(TryAnswer::Accept | TryAnswer::Postpone) => {
            let what = format!(
                "{} takes builds for {system}, {named} machines named here ({took_ms} ms)",
                client.address()
            );
            Check::ok(WHAT, what)
        }
        Ok(TryAnswer::Decline { why }) => Check::missing(WHAT, why, advice),
        Err(error) => {
            let advice = "start it with 'windlass server start'; see 'windlass server status' and the token";
            Check::missing(WHAT, error.to_string(), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(read_version("nix-store (Nix) 2.8.0\n"), Some((2, 8)));
        assert_eq!(read_version("nix (Nix) 2.34pre20260101_abc"), Some((2, 34)));
        assert_eq!(read_version("nothing"), None);
    }

    #[test]
    fn the_setting_is_judged_by_the_release() {
        let state = |version, value: &str| hook(version, value).state;
        let by_link = std::env::current_exe().unwrap().with_file_name("windlass-nix-hook");
        assert_eq!(state((2, 8), "/usr/libexec/nix/build-remote"), "note");
        assert_eq!(state((2, 8), "windlass nix-hook"), "missing");
        assert_eq!(state((2, 24), "windlass nix-hook"), "ok");
        assert_eq!(state((2, 28), "windlass nix-hook"), "note");
        assert_eq!(state((2, 34), "windlass nix-hook"), "ok");
        assert_eq!(state((2, 8), &by_link.display().to_string()), "missing", "there is no such file");
    }
}
