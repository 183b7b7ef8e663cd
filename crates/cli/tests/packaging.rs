//! The files for packages: units that systemd accepts, and examples that the program accepts.

use crate::support::{self, Farm, show, windlass};
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(packaging(file)).unwrap()
}

/// The values of a key of a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
}

/// The messages of a process to a systemd that takes it for dead after a third of a second, until it has sent this
/// number of watchdog messages.
fn says_to_systemd(farm: &Farm, args: &[&str], times: usize) -> Vec<String> {
    let path = farm.work().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let mut command = farm.command(args);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let _process = support::port::KillOnDrop(command.stderr(std::process::Stdio::null()).spawn().unwrap());
    let mut said = Vec::new();
    while said.iter().filter(|text| *text == "WATCHDOG=1").count() < times {
        let mut text = [0; 256];
        let bytes = socket.recv(&mut text).unwrap();
        said.push(String::from_utf8_lossy(&text[..bytes]).trim().to_owned());
    }
    said
}

#[test]
fn m11_systemd_hears_that_server_and_worker_are_well() {
    for args in [
        &["server", "start", "--no-worker"][..],
        &["--server", "127.0.0.1:1", "worker", "start", "--as-root", "--cpus", "1"],
    ] {
        let said = says_to_systemd(&Farm::new(), args, 3);
        assert_eq!(said[0], "READY=1", "{said:?}");
    }
}

const UNITS: [&str; 5] = [
    "systemd/windlass-server.service",
    "systemd/windlass-worker.service",
    "systemd/windlass-machine.service",
    "systemd/windlass-sccache.service",
    "systemd/windlass-opencue.service",
];

#[test]
fn units_start_what_there_is() {
    let farm = Farm::new();
    for unit in UNITS {
        let unit = text(unit);
        let start = values(&unit, "ExecStart");
        let words: Vec<&str> = start[0].split(' ').collect();
        assert_eq!((start.len(), words[0]), (1, "/usr/bin/windlass"));
        let help = farm.ok(&[words[1], words[2], "--help"]);
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(
                help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")),
                "{flag}: {help}"
            );
        }
        let state = words.iter().skip_while(|word| **word != "--state").nth(1).copied();
        let made = values(&unit, "StateDirectory").first().map(|name| format!("/var/lib/{name}"));
        assert_eq!(state, made.as_deref());
        assert_eq!(values(&unit, "Restart"), ["always"]);
        assert_eq!((values(&unit, "Type"), values(&unit, "WatchdogSec")), (vec!["notify"], vec!["120"]));
        assert_eq!(values(&unit, "OOMScoreAdjust"), ["-900"]);
        assert_eq!(values(&unit, "StartLimitIntervalSec"), ["0"]);
    }
}

#[test]
fn units_of_workers_leave_their_tasks_alone() {
    let units = ["systemd/windlass-worker.service", "systemd/windlass-machine.service"].map(text);
    let expected = [
        ("KillMode", "process"),
        ("Delegate", "yes"),
        ("DelegateSubgroup", "windlass-agent"),
        ("OOMPolicy", "continue"),
        ("TasksMax", "infinity"),
        ("StateDirectoryMode", "0711"),
        ("LimitNOFILE", "65536"),
    ];
    // Every task would have each of these, too.
    let restricts =
        ["User", "NoNewPrivileges", "PrivateTmp", "ProtectSystem", "ProtectHome", "RestrictNamespaces"];
    for unit in &units {
        for (key, value) in expected {
            assert_eq!(values(unit, key), [value], "{key}");
        }
        for key in restricts {
            assert!(values(unit, key).is_empty(), "{key}");
        }
    }
    assert_eq!(values(&units[0], "EnvironmentFile"), ["-/etc/windlass/worker.env"]);
    assert_eq!(values(&text("systemd/windlass-server.service"), "LimitNOFILE"), ["65536"]);
}

#[test]
fn what_runs_no_tasks_has_a_user_of_its_own_and_few_rights() {
    let mut users = Vec::new();
    let runs_tasks = |unit: &&&str| ["worker", "machine"].iter().any(|name| unit.contains(name));
    for unit in UNITS.iter().filter(|unit| !runs_tasks(unit)) {
        let unit = text(unit);
        for (key, value) in [
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("PrivateTmp", "yes"),
            ("UMask", "0077"),
        ] {
            assert_eq!(values(&unit, key), [value], "{key}: {unit}");
        }
        let user = values(&unit, "User")[0].to_owned();
        assert_eq!(values(&unit, "Group"), [&user]);
        assert!(text("sysusers.d/windlass.conf").contains(&format!("u {user} - ")), "{user}");
        users.push(user);
    }
    users.sort();
    users.dedup();
    assert_eq!(users.len(), 3, "{users:?}");
}

#[test]
fn the_base_of_an_image_can_be_named_by_its_digest() {
    let file = text("oci/Containerfile");
    let bases: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(bases, ["scratch AS server", "${BASE} AS worker"]);
    assert!(file.lines().any(|line| line.starts_with("ARG BASE=")) && file.contains("@sha256:"), "{file}");
    assert!(file.contains("LABEL org.opencontainers.image.base.name=${BASE}"), "{file}");
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIP packaging: there is no systemd-analyze");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for unit in UNITS {
        // It checks that the program exists.
        let here = text(unit).replace("/usr/bin/windlass", windlass());
        let path = dir.path().join(Path::new(unit).file_name().unwrap());
        std::fs::write(&path, here).unwrap();
        let output =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        // Other units of the machine are read too, and releases before 254 do not know one key.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about_it =
            said.lines().filter(|line| line.contains(name) && !line.contains("'DelegateSubgroup'"));
        assert_eq!(about_it.count(), 0, "{}", show(&output));
    }
}

#[test]
fn the_examples_are_settings() {
    let config = windlass_server::Config::read(&packaging("etc/server.toml")).unwrap();
    assert!(!config.auth.trust_this_machine && !config.worker.enabled && config.tls.cert.is_some());
    let machine = windlass_server::Config::read(&packaging("etc/machine.toml")).unwrap();
    assert_eq!(machine.machine, Some(windlass_server::MachineConfig::default()));
    let farm = Farm::new();
    for (env, command, least) in [("etc/worker.env", "worker", 9), ("etc/server.env", "server", 1)] {
        let help = farm.ok(&[command, "start", "--help"]);
        let named = variables_in_help(&text(env), &help);
        assert!(named >= least, "{env}: {named}");
    }
}

/// How many variables a file of a unit names, each of which the help has.
fn variables_in_help(env: &str, help: &str) -> usize {
    let mut named = 0;
    for line in env.lines() {
        let line = line.strip_prefix('#').filter(|line| line.starts_with("WINDLASS_")).unwrap_or(line);
        let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let whole =
            |at: usize| !help[at + name.len()..].starts_with(|c: char| c == '_' || c.is_ascii_uppercase());
        assert!(help.match_indices(name).any(|(at, _)| whole(at)), "{name} is not in {help}");
        named += 1;
    }
    named
}
