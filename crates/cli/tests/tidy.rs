//! The rules of the tree, held by reading it.

use std::collections::BTreeMap;
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
            if name == "target" || (name.starts_with('.') && name != ".ci") {
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
const EDGES: [(&str, &[&str]); 8] = [
    ("windlass-core", &[]),
    ("windlass-api", &["windlass-core"]),
    ("windlass-store", &["windlass-core"]),
    ("windlass-server", &["windlass-core", "windlass-api", "windlass-store"]),
    ("windlass-worker", &["windlass-core", "windlass-api"]),
    ("windlass-openjd", &["windlass-api"]),
    ("windlass-sim", &["windlass-core", "windlass-store"]),
    (
        "windlass-cli",
        &[
            "windlass-core",
            "windlass-api",
            "windlass-store",
            "windlass-server",
            "windlass-worker",
            "windlass-openjd",
            "windlass-sim",
        ],
    ),
];

#[test]
fn crates_use_only_what_they_may() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
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
    for (path, text) in files(".rs").into_iter().filter(|(path, _)| path.starts_with("crates/core/src")) {
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
