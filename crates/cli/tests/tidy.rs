//! The rules of the tree, held by reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files that git would commit, by path from the root.
fn files(ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "target" || name == "node_modules" || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if name.ends_with(ending) {
                let shown = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((shown, std::fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found
}

/// The crates that each crate may use.
const EDGES: [(&str, &[&str]); 15] = [
    ("windlass-load-ledger", &[]),
    ("windlass-core", &["windlass-load-ledger"]),
    ("windlass-api", &["windlass-core"]),
    ("windlass-store", &["windlass-core"]),
    ("windlass-server", &["windlass-core", "windlass-api", "windlass-store"]),
    ("windlass-gateway-compass", &["windlass-core", "windlass-api", "windlass-store", "windlass-server"]),
    ("windlass-gateway-nix", &["windlass-core", "windlass-api", "windlass-server"]),
    ("windlass-cuebot", &["windlass-server"]),
    ("windlass-gateway-opencue", &["windlass-core", "windlass-api", "windlass-server", "windlass-cuebot"]),
    ("windlass-gateway-sccache", &["windlass-core", "windlass-store", "windlass-server"]),
    ("windlass-worker", &["windlass-core", "windlass-api"]),
    ("windlass-openjd", &["windlass-api"]),
    ("windlass-sim", &["windlass-core", "windlass-store"]),
    ("windlass-bench", &["windlass-core", "windlass-api", "windlass-store", "windlass-server"]),
    (
        "windlass-cli",
        &[
            "windlass-core",
            "windlass-api",
            "windlass-store",
            "windlass-server",
            "windlass-gateway-compass",
            "windlass-gateway-nix",
            "windlass-cuebot",
            "windlass-gateway-opencue",
            "windlass-gateway-sccache",
            "windlass-worker",
            "windlass-openjd",
            "windlass-sim",
        ],
    ),
];

/// The crates that the program has on every system. The others need Linux.
const ELSEWHERE: [&str; 3] = ["windlass-core", "windlass-api", "windlass-openjd"];

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn elsewhere_than_on_linux_the_program_has_the_crates_of_clients_alone() {
    let metadata = metadata();
    let mut packages = metadata["packages"].as_array().unwrap().iter();
    let cli = packages.find(|package| package["name"] == "windlass-cli").unwrap();
    for dependency in cli["dependencies"].as_array().unwrap() {
        let (name, target) = (dependency["name"].as_str().unwrap(), dependency["target"].as_str());
        let is_everywhere = ELSEWHERE.contains(&name);
        let expected = (!is_everywhere).then_some("cfg(target_os = \"linux\")");
        assert!(!name.starts_with("windlass") || target == expected, "{name} is for {target:?}");
    }
}

#[test]
fn crates_use_only_what_they_may() {
    let metadata = metadata();
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), EDGES.len());
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the list of crates"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            assert!(!on.starts_with("windlass") || may.contains(&on), "{name} must not use {on}");
        }
    }
}

/// The modules of Compass CI's gateway that each of its modules may use. There is no circle.
const COMPASS_EDGES: [(&str, &[&str]); 24] = [
    ("answer", &[]),
    ("caller", &[]),
    ("closing", &[]),
    ("number", &[]),
    ("options", &[]),
    ("paths", &[]),
    ("time", &[]),
    ("format", &["number"]),
    ("max_run", &["format"]),
    ("parcel", &["format"]),
    ("record", &["format", "time"]),
    ("sealed", &["format"]),
    ("access", &["answer", "format", "record"]),
    ("files", &["options", "sealed"]),
    ("view", &["format", "number", "record", "time"]),
    ("fill", &["files", "format", "record", "time"]),
    ("packages", &["files", "format"]),
    ("waits", &["closing", "format", "number", "record", "view"]),
    ("boot", &["fill", "format", "record"]),
    ("lab", &["boot", "closing", "files", "fill", "format", "number", "record", "time"]),
    ("app", &["files", "lab", "max_run", "waits"]),
    (
        "http",
        &[
            "access", "answer", "app", "boot", "caller", "closing", "files", "fill", "format", "lab",
            "max_run", "number", "packages", "parcel", "record", "time", "view",
        ],
    ),
    ("gateway", &["app", "files", "http", "options", "paths"]),
    ("lib", &["gateway", "options"]),
];

/// The modules of the core that each of its modules may use. There is no circle.
const CORE_EDGES: [(&str, &[&str]); 23] = [
    ("hash", &[]),
    ("ids", &[]),
    ("ranges", &[]),
    ("resources", &[]),
    ("tags", &[]),
    ("time", &[]),
    ("bounds", &["time"]),
    ("load", &["time"]),
    ("cache_keys", &["hash", "ids"]),
    ("class", &["ids", "resources", "tags"]),
    ("job", &["bounds", "cache_keys", "ids", "ranges", "resources", "tags", "time"]),
    ("worker", &["bounds", "cache_keys", "ids", "load", "resources", "tags", "time"]),
    ("score", &["cache_keys", "hash", "job", "resources", "time", "worker"]),
    ("workers", &["bounds", "class", "ids", "load", "resources", "score", "tags", "time", "worker"]),
    ("queues", &["bounds", "ids", "job", "time"]),
    ("licences", &["bounds", "class", "ids", "job", "queues", "time"]),
    (
        "plan",
        &[
            "bounds",
            "cache_keys",
            "class",
            "ids",
            "job",
            "load",
            "queues",
            "resources",
            "score",
            "tags",
            "time",
            "worker",
            "workers",
        ],
    ),
    ("places", &["cache_keys", "class", "ids", "job", "resources", "tags", "time"]),
    ("profiles", &["class", "ids", "job", "plan", "resources", "score", "tags", "time", "worker", "workers"]),
    ("residency", &["hash", "ids", "job"]),
    (
        "engine",
        &[
            "bounds",
            "cache_keys",
            "class",
            "hash",
            "ids",
            "job",
            "licences",
            "load",
            "places",
            "plan",
            "profiles",
            "queues",
            "ranges",
            "residency",
            "resources",
            "score",
            "tags",
            "time",
            "worker",
            "workers",
        ],
    ),
    (
        "explain",
        &[
            "bounds",
            "class",
            "engine",
            "ids",
            "job",
            "load",
            "places",
            "plan",
            "queues",
            "resources",
            "tags",
            "time",
            "worker",
        ],
    ),
    ("lib", &["engine", "ids", "resources", "time"]),
];

#[test]
fn modules_use_only_what_they_may() {
    check_modules("crates/core/src/", &CORE_EDGES);
    check_modules("crates/gateway-compass/src/", &COMPASS_EDGES);
}

fn check_modules(dir: &str, edges: &[(&'static str, &'static [&'static str])]) {
    let allowed: BTreeMap<&str, &[&str]> = edges.iter().copied().collect();
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, uses) in edges {
        // Each uses only what stands before it, so there is no circle.
        let below = uses.iter().flat_map(|used| {
            let below = reached
                .get(used)
                .unwrap_or_else(|| panic!("{module} is listed before {used}, which it uses"));
            below.iter().copied().chain([*used])
        });
        let below = below.collect();
        reached.insert(module, below);
    }
    for (path, text) in files(".rs") {
        let Some(inside) = path.strip_prefix(dir) else { continue };
        let module = inside.split(['/', '.']).next().unwrap();
        let may = allowed.get(module).unwrap_or_else(|| panic!("{path} is not in the list of modules"));
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (_, rest) in
            code.flat_map(|line| line.match_indices("crate::").map(move |(at, _)| line.split_at(at)))
        {
            let used: String =
                rest["crate::".len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let is_module = allowed.contains_key(used.as_str()) && used != module;
            assert!(!is_module || may.contains(&used.as_str()), "{path}: {module} must not use {used}");
        }
    }
}

/// The engine joins the rooms of the core. Whatever can be decided by one room alone is decided there.
#[test]
fn only_files_of_the_engine_add_methods_to_it() {
    for (path, text) in files(".rs") {
        let is_its_own = path.starts_with("crates/core/src/engine/");
        let adds = text
            .lines()
            .any(|line| line.starts_with("impl Engine ") || line.starts_with("impl super::Engine"));
        assert!(is_its_own || !adds, "{path} adds methods to the engine");
    }
}

/// What other systems compile in the place of a module has the names of that module.
const STAND_INS: [&str; 2] = ["crates/cli/src/elsewhere.rs", "crates/cli/src/system/windows.rs"];

#[test]
fn no_type_of_a_crate_is_named_as_another() {
    let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
    for (path, text) in files(".rs") {
        let Some((of, inside)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        if inside.starts_with("generated/") || STAND_INS.contains(&path.as_str()) {
            continue;
        }
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for line in text.lines() {
            let code = line.trim_start();
            let code = code.strip_prefix("pub ").unwrap_or(code);
            let code = code
                .strip_prefix("pub(")
                .and_then(|rest| rest.split_once(") "))
                .map_or(code, |(_, rest)| rest);
            // Associated types of traits are indented.
            let kinds: &[&str] = if code == line || line.starts_with("pub") {
                &["struct ", "enum ", "trait ", "type "]
            } else {
                &["struct ", "enum "]
            };
            let Some(rest) = kinds.iter().find_map(|kind| code.strip_prefix(kind)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if let Some(other) = seen.insert((of.to_owned(), name.clone()), path.clone()) {
                panic!("{path} and {other} both name a type {name}");
            }
        }
    }
}

#[test]
fn the_core_is_pure() {
    let banned = [
        "Instant::now",
        "SystemTime",
        "std::thread",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "tokio",
        "serde",
        "HashMap",
        "HashSet",
        "println!",
        "tracing",
        "rand::",
    ];
    let is_pure =
        |path: &str| path.starts_with("crates/core/src") || path.starts_with("crates/load-ledger/src");
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| is_pure(path)) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let found = banned.iter().find(|word| line.contains(**word));
            assert!(found.is_none(), "{path}: {found:?} in the pure core: {line}");
        }
    }
}

#[test]
fn files_and_functions_are_short() {
    let mut long = Vec::new();
    // What is generated is read in its description.
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| !path.contains("/src/generated/")) {
        if text.lines().count() > 800 {
            long.push(format!("{path} has {} lines", text.lines().count()));
        }
        if path.contains("/tests/") {
            continue;
        }
        let mut start = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let code = line.trim_start();
            let is_fn = [
                "fn ",
                "pub fn ",
                "pub(super) fn ",
                "pub(crate) fn ",
                "async fn ",
                "pub async fn ",
                "unsafe fn ",
            ]
            .iter()
            .any(|head| code.starts_with(head));
            if is_fn && start.is_none() {
                start = Some((number, indent, code.to_owned()));
            }
            if let Some((from, depth, head)) = &start
                && code == "}"
                && indent == *depth
            {
                if number - from > 70 {
                    long.push(format!("{path}:{}: {} lines: {head}", from + 1, number - from));
                }
                start = None;
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Where connections are accepted: ports of this program in one place, which bounds what they take, and the keeper's
/// socket, on which it hears one agent of its own user.
const ACCEPTING: [&str; 2] = ["crates/server/src/listen/", "crates/worker/src/keeper/"];
/// Where sockets listen: the servers' and the gateways', which hand them to that place, the keeper's, and those of programs
/// that look whether a port is free.
const LISTENING: [&str; 6] = [
    "crates/server/src/listen/",
    "crates/gateway-opencue/src/service.rs",
    "crates/gateway-sccache/src/lib.rs",
    "crates/worker/src/keeper/link.rs",
    "crates/cli/src/commands/doctor/sccache.rs",
    "crates/bench/src/farm.rs",
];

#[test]
fn one_place_accepts_connections() {
    let is_in = |places: &[&str], path: &str| places.iter().any(|place| path.starts_with(place));
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| path.contains("/src/")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for word in ["axum::serve(", "serve_connection", ".accept()", ".incoming()", "poll_accept"] {
            assert!(is_in(&ACCEPTING, &path) || !code.contains(word), "{path} has {word}: use serve_port");
        }
        for word in ["TcpListener::bind(", "UnixListener::bind(", "TcpSocket::new"] {
            assert!(
                is_in(&LISTENING, &path) || !code.contains(word),
                "{path} has {word}: add it to the floods"
            );
        }
    }
}

#[test]
fn no_test_sleeps_and_none_is_ignored() {
    let (sleep, ignore) = (concat!("thread::", "sleep("), concat!("#[", "ignore"));
    for (path, text) in files(".rs") {
        assert!(!text.contains(ignore), "{path} ignores a test");
        assert!(!path.contains("/tests/") || !text.contains(sleep), "{path} sleeps");
    }
}

#[test]
fn no_crate_is_a_drawer() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            !["common", "utils", "types", "macros", "config"].contains(&name.as_str()),
            "a crate named {name}"
        );
    }
}

#[test]
fn the_committed_description_of_the_interface_is_the_servers() {
    let path = root().join("docs/src/openapi.json");
    let now = windlass_server::openapi();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == now, "docs/src/openapi.json is old: run this test with UPDATE_EXPECT=1");
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    for (path, text) in files(".md") {
        let dir = root().join(&path).parent().unwrap().to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(dir.join(file).exists(), "{path} links to {file}, which is not there");
        }
    }
}
