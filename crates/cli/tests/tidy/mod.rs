//! The rules of the tree, held by reading it.

mod circles;
mod edges;
mod gateway_edges;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use edges::{
    API_EDGES, CAS_EDGES, CLI_EDGES, CORE_EDGES, EDGES, OPENJD_EDGES, SERVER_EDGES, STORE_EDGES, WORKER_EDGES,
};
use gateway_edges::{COMPASS_EDGES, CUEBOT_EDGES, NIX_EDGES, OPENCUE_EDGES, SCCACHE_EDGES};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files that git would commit, by path from the root.
fn files(ending: &str) -> Vec<(String, String)> {
    let wanted = tree().into_iter().filter(|path| path.ends_with(ending) && root().join(path).is_file());
    wanted.map(|path| (path.clone(), text_of(&path))).collect()
}

/// All files that git would commit and their directories, by path from the root.
fn tree() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "target" || name == "node_modules" || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            found.push(path.strip_prefix(root()).unwrap().display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

/// The file's text; empty if it is not a text.
fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// The crates that the program has on every system. The others need Linux.
const ELSEWHERE: [&str; 4] = ["windlass-core", "windlass-api", "windlass-cas", "windlass-openjd"];

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

#[test]
fn modules_use_only_what_they_may() {
    check_modules("crates/core/src/", &CORE_EDGES);
    check_modules("crates/api/src/", &API_EDGES);
    check_modules("crates/store/src/", &STORE_EDGES);
    check_modules("crates/cas/src/", &CAS_EDGES);
    check_modules("crates/server/src/", &SERVER_EDGES);
    check_modules("crates/gateway-compass/src/", &COMPASS_EDGES);
    check_modules("crates/gateway-nix/src/", &NIX_EDGES);
    check_modules("crates/gateway-sccache/src/", &SCCACHE_EDGES);
    check_modules("crates/openjd/src/", &OPENJD_EDGES);
    check_modules("crates/gateway-opencue/src/", &OPENCUE_EDGES);
    check_modules("crates/cuebot/src/", &CUEBOT_EDGES);
    check_modules("crates/worker/src/", &WORKER_EDGES);
    check_modules("crates/cli/src/", &CLI_EDGES);
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
        // A file of tests alone may start whatever it tests.
        if inside.ends_with("/tests.rs") {
            continue;
        }
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

/// Methods that a type may have. A type with more has several subjects.
const METHODS_MAX: usize = 60;
/// Files that add methods to the engine.
const ENGINE_FILES_MAX: usize = 4;
/// Fields of the engine. It joins the rooms of the core, and what is one room's is a field there.
const ENGINE_FIELDS_MAX: usize = 6;

#[test]
fn types_have_few_methods_and_the_engine_few_files() {
    let mut methods: BTreeMap<(String, String), usize> = BTreeMap::new();
    let (mut engine_files, mut engine_fields) = (0, 0);
    for (path, text) in files(".rs") {
        let Some((of, inside)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        if inside.starts_with("generated/") || STAND_INS.contains(&path.as_str()) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        engine_files += usize::from(of == "core" && code.lines().any(|line| line == "impl Engine {"));
        if of == "core"
            && let Some((_, rest)) = code.split_once("pub struct Engine {\n")
        {
            let fields = rest.lines().take_while(|line| *line != "}");
            engine_fields = fields.filter(|line| !line.trim_start().starts_with("//")).count();
        }
        let mut inside_of: Option<&str> = None;
        for line in code.lines() {
            if let Some(name) = type_of_impl(line) {
                inside_of = Some(name);
            } else if line == "}" {
                inside_of = None;
            } else if let Some(name) = inside_of.filter(|_| is_method(line)) {
                *methods.entry((of.to_owned(), name.to_owned())).or_default() += 1;
            }
        }
    }
    for ((of, name), count) in &methods {
        assert!(
            *count <= METHODS_MAX,
            "{name} of {of} has {count} methods, and at most {METHODS_MAX}: move some to the part that they are about"
        );
    }
    assert!(engine_files <= ENGINE_FILES_MAX, "{engine_files} files add methods to the engine");
    let fields = 1..=ENGINE_FIELDS_MAX;
    assert!(fields.contains(&engine_fields), "the engine has {engine_fields} fields: {fields:?} are right");
}

/// The type of a line that begins an `impl`, without its path and parameters.
fn type_of_impl(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let (mut depth, mut before) = (0, ' ');
        let end = rest.find(|c: char| {
            depth += i32::from(c == '<');
            depth -= i32::from(c == '>' && before != '-');
            before = c;
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    let named = rest.rsplit(" for ").next()?.trim_start();
    let path = named.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next()?;
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

/// True of the first line of a function inside an `impl`.
fn is_method(line: &str) -> bool {
    let Some(code) = line.strip_prefix("    ").filter(|code| !code.starts_with(' ')) else { return false };
    let mut words = code
        .split(' ')
        .skip_while(|word| word.starts_with("pub") || ["const", "async", "unsafe"].contains(word));
    words.next() == Some("fn")
}

/// What other systems compile in the place of a module has the names of that module.
const STAND_INS: [&str; 3] = [
    "crates/cli/src/commands/elsewhere.rs",
    "crates/cli/src/elsewhere.rs",
    "crates/cli/src/system/windows.rs",
];

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
            // A macro's variable.
            if name.is_empty() {
                continue;
            }
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
            // A trait names functions that it does not write.
            if is_fn && start.is_none() && !code.ends_with(';') {
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
    "crates/bench/src/server_process.rs",
];

#[test]
fn one_place_accepts_connections() {
    let is_in = |places: &[&str], path: &str| places.iter().any(|place| path.starts_with(place));
    let is_of_program = |path: &str| path.contains("/src/") && !path.ends_with("/tests.rs");
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| is_of_program(path)) {
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

/// The test targets of a manifest, and the files of tests that cargo finds by itself.
fn programs(of: &str, sources: &[(String, String)]) -> BTreeSet<String> {
    let manifest = text_of(&format!("crates/{of}/Cargo.toml"));
    let listed = manifest.split("[[test]]\nname = \"").skip(1);
    let mut programs: BTreeSet<String> =
        listed.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    if !manifest.contains("autotests = false") {
        let files = sources.iter().filter_map(|(path, _)| path.strip_prefix(&format!("crates/{of}/tests/")));
        let found = files.filter(|file| !file.contains('/')).filter_map(|file| file.strip_suffix(".rs"));
        programs.extend(found.map(str::to_owned));
    }
    programs
}

/// The crate of a file of tests, and its path among the crate's tests.
fn of_tests(path: &str) -> Option<(&str, &str)> {
    let (of, file) = path.strip_prefix("crates/")?.split_once("/tests/")?;
    (!of.contains('/')).then_some((of, file))
}

/// The module of a line that declares one.
fn module_of(line: &str) -> Option<&str> {
    line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
}

/// No program has a file that no line declares, so its tests would never run.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let sources = files(".rs");
    let mut modules: BTreeSet<(&str, &str)> = BTreeSet::new();
    // Files that another crate's tests or benches have by their path, by the name of the file.
    let mut shared: BTreeSet<&str> = BTreeSet::new();
    for (path, text) in &sources {
        let named = text.lines().filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        shared.extend(named.filter_map(|path| path.rsplit('/').next()));
        if let Some((of, _)) = of_tests(path) {
            modules.extend(text.lines().filter_map(module_of).map(|module| (of, module)));
        }
    }
    for (path, _) in &sources {
        let Some((of, file)) = of_tests(path) else { continue };
        let stem = file.strip_suffix("/mod.rs").or(file.strip_suffix(".rs")).unwrap();
        let is_declared = modules.contains(&(of, stem.rsplit('/').next().unwrap()));
        let is_shared = file.contains('/') && shared.contains(file.rsplit('/').next().unwrap());
        assert!(
            is_declared || is_shared || programs(of, &sources).contains(stem),
            "{path} is in no program: add it to tests/all.rs of its crate"
        );
    }
}

#[test]
fn what_manifests_leave_untested_has_no_tests() {
    for (path, text) in files(".rs") {
        let Some((of, _)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
            continue;
        };
        let manifest = text_of(&format!("crates/{of}/Cargo.toml"));
        if manifest.contains("\ndoctest = false") {
            let mut lines = text.lines().map(str::trim_start);
            let example =
                lines.find(|line| ["/// ```", "//! ```"].iter().any(|fence| line.starts_with(fence)));
            assert!(example.is_none(), "{path} has an example: take 'doctest = false' out of its manifest");
        }
        let is_tested = !manifest.contains("\ntest = false");
        assert!(
            is_tested || !text.contains("#[test]"),
            "{path} has a test: take 'test = false' out of its manifest"
        );
    }
}

/// A command that names a missing program fails; one that names a missing module runs no test, and passes.
#[test]
fn commands_of_tests_name_what_there_is() {
    let sources = files(".rs");
    let crates: BTreeSet<&str> =
        sources.iter().filter_map(|(path, _)| of_tests(path)).map(|(of, _)| of).collect();
    let all: BTreeSet<String> = crates.into_iter().flat_map(|of| programs(of, &sources)).collect();
    let modules: BTreeSet<&str> = sources
        .iter()
        .filter(|(path, _)| of_tests(path).is_some())
        .flat_map(|(_, text)| text.lines().filter_map(module_of))
        .collect();
    for (page, text) in files(".md") {
        for line in text.lines() {
            for rest in line.split("--test ").skip(1) {
                let mut words = rest.split(['`', ' ', ';', ',', '|']);
                let program = words.next().unwrap();
                assert!(
                    all.contains(program),
                    "{page}: there is no program of tests named {program}: {line}"
                );
                let named = words.filter_map(|word| word.strip_suffix("::"));
                let lost = named.filter(|module| !modules.contains(module)).collect::<Vec<_>>();
                assert!(lost.is_empty(), "{page}: no file of tests is named {lost:?}: {line}");
            }
        }
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

/// Bytes of ARCHITECTURE.md. What is inside of one room belongs into the README of that room.
const ARCHITECTURE_BYTES_MAX: usize = 35_000;

#[test]
fn the_page_of_the_architecture_is_a_map() {
    let bytes = text_of("ARCHITECTURE.md").len();
    assert!(bytes <= ARCHITECTURE_BYTES_MAX, "ARCHITECTURE.md has {bytes} bytes: move depth beside its code");
}

/// Endings of the files that documents name by their paths.
const NAMED_ENDINGS: [&str; 12] =
    [".rs", ".md", ".sql", ".toml", ".proto", ".txt", ".json", ".sh", ".hash", ".ts", ".svelte", ".service"];

/// The words of a document that are in backticks, without its blocks of code.
fn quoted(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// True if the word is the path of a file or, with a slash at its end, of a directory of this tree.
fn is_path(word: &str) -> bool {
    let is_plain = word.chars().all(|c| c.is_alphanumeric() || "_-./*".contains(c));
    let is_elsewhere = word.starts_with(['/', '.']);
    is_plain && !is_elsewhere && (word.ends_with('/') || NAMED_ENDINGS.iter().any(|end| word.ends_with(end)))
}

/// True if the path is the pattern, in which `*` stands for a part of a name.
fn fits(pattern: &str, path: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(head) else { return false };
    let name = rest.split('/').next().unwrap();
    let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.any(|end| fits(tail, &rest[end..]))
}

/// True if a page that speaks of the directory `base` may name a file or directory so: by its path from the root, by
/// its path from a crate's sources behind the crate's name, or by the end of its path in `base`.
fn is_there(tree: &[String], base: &str, word: &str) -> bool {
    let word = word.trim_end_matches('/');
    let in_crate = word.split_once('/').map(|(name, rest)| (format!("crates/{name}/src/{rest}"), rest));
    tree.iter().any(|path| {
        let is_whole = fits(word, path);
        let is_of_crate = in_crate.as_ref().is_some_and(|(sources, rest)| {
            let beside = sources.replacen("/src/", "/", 1);
            fits(sources, path) || (!rest.is_empty() && fits(&beside, path))
        });
        let inside = path.strip_prefix(base);
        let is_end = inside.is_some_and(|inside| {
            let ends = inside.match_indices('/').map(|(at, _)| &inside[at + 1..]);
            fits(word, inside) || ends.into_iter().any(|end| fits(word, end))
        });
        is_whole || is_of_crate || is_end
    })
}

#[test]
fn paths_in_the_documents_exist() {
    let tree = tree();
    let mut missing = Vec::new();
    for (page, text) in files(".md") {
        let is_readme = page.ends_with("README.md");
        let is_of_all = ["ARCHITECTURE.md", "SPECIFICATION.md", "CONTRIBUTING.md"].contains(&page.as_str());
        if !is_readme && !is_of_all && !page.starts_with("docs/dev/") {
            continue;
        }
        // A README speaks of its crate, or of its directory. The other pages speak of all.
        let base = match page.split('/').collect::<Vec<_>>()[..] {
            ["crates", name, ..] => format!("crates/{name}/"),
            [dir, _] if is_readme => format!("{dir}/"),
            _ => String::new(),
        };
        let words = quoted(&text).into_iter().filter(|word| is_path(word));
        let lost = words.filter(|word| !is_there(&tree, &base, word));
        missing.extend(lost.map(|word| format!("{page} names {word}, which is not there")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// True if the word stands alone in the text: not as a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    count_words(text, word) > 0
}

/// True of what may stand inside a name.
fn is_inside_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How often the words stand in the text, not as a part of longer names.
fn count_words(text: &str, words: &str) -> usize {
    let places = text.match_indices(words).filter(|(at, _)| {
        let (before, after) = (&text[..*at], &text[at + words.len()..]);
        !before.ends_with(is_inside_name) && !after.starts_with(is_inside_name)
    });
    places.count()
}

/// The boxes of a checklist, each as one line.
fn boxes(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        if let Some(first) = line.strip_prefix("- [ ] ") {
            found.push(first.to_owned());
            is_open = true;
        } else if is_open && line.starts_with("  ") {
            let last = found.last_mut().unwrap();
            last.push(' ');
            last.push_str(line.trim());
        } else {
            is_open = false;
        }
    }
    found
}

/// The name without the path before it, if the word is a name of the code.
fn name_in(word: &str) -> Option<&str> {
    let is_name = word.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
    let begins = word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (is_name && begins).then(|| word.rsplit("::").next().unwrap())
}

#[test]
fn checklists_name_what_is_in_the_code() {
    let tree = tree();
    let mut wrong = Vec::new();
    for (page, text) in files(".md").into_iter().filter(|(page, _)| page.starts_with("docs/dev/add-")) {
        let boxes = boxes(&text);
        assert!(!boxes.is_empty(), "{page} has no box");
        for line in boxes {
            let words = quoted(&line);
            let (paths, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| is_path(word));
            if paths.is_empty() {
                wrong.push(format!("{page}: a box begins with the path of a file: {line}"));
            }
            let mut texts = Vec::new();
            for path in paths {
                let found = tree.iter().filter(|there| fits(&path, there)).collect::<Vec<_>>();
                if found.is_empty() {
                    wrong.push(format!("{page}: there is no {path}: {line}"));
                }
                texts.extend(found.into_iter().map(|path| text_of(path)));
            }
            for name in words.iter().filter_map(|word| name_in(word)) {
                if !texts.iter().any(|text| has_word(text, name)) {
                    wrong.push(format!("{page}: {name} is not in the files of the box: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Phrases that make a reader stop, and what to write instead. See STYLE.md.
const FORBIDDEN: [(&str, &str); 13] = [
    ("so many", "N, the number of, or up to `max`"),
    ("so much", "how much, in bytes or cores"),
    ("somebody", "a user, an administrator, another server"),
    ("nobody else", "no other queue, no other process"),
    ("who comes", "a new queue, the next client"),
    ("whoever", "the server, the user, the caller that"),
    ("of ours", "Windlass's, our"),
    ("anew", "again, from scratch"),
    ("what is held", "resident jobs, booked cpus"),
    ("what is parked", "parked jobs"),
    ("what is set aside", "vetoed steps"),
    ("that is no", "that is not a"),
    ("is no", "is not a valid, means no"),
];

#[test]
fn no_source_has_a_forbidden_phrase() {
    let mut left = Vec::new();
    for (path, text) in files(".rs") {
        if path.contains("/src/generated/") || path == "crates/cli/tests/tidy/mod.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            // "There is no limit" says that it does not exist; "0 is no limit" is the riddle.
            let line = line.to_lowercase().replace("there is no ", "");
            let found = FORBIDDEN.iter().filter(|(phrase, _)| count_words(&line, phrase) > 0);
            left.extend(
                found.map(|(phrase, instead)| format!("{path}:{}: {phrase:?}: write {instead}", number + 1)),
            );
        }
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
}

/// Doc comments of three words or fewer. Such a comment repeats a name: make it say the unit, the range, or what absent
/// means. The number only falls.
const SHORT_DOCS_MAX: usize = 48;

#[test]
fn doc_comments_say_more_than_the_name() {
    let mut short = 0;
    for (_, text) in files(".rs").into_iter().filter(|(path, _)| !path.contains("/src/generated/")) {
        let mut words: Option<usize> = None;
        for line in text.lines().chain([""]) {
            if let Some(doc) = line.trim_start().strip_prefix("///") {
                words = Some(words.unwrap_or(0) + doc.split_whitespace().count());
            } else if words.take().is_some_and(|words| words <= 3) {
                short += 1;
            }
        }
    }
    assert!(short <= SHORT_DOCS_MAX, "{short} doc comments have at most three words, not {SHORT_DOCS_MAX}");
}
