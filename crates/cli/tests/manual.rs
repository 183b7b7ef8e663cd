//! The manual: every page is in its summary, every link and anchor leads somewhere, every message that it explains is
//! one that the program has, and mdBook builds it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files with this ending below a directory, by path from the root.
fn files(dir: &str, ending: &str) -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root().join(dir)]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir()
                && !["target", "node_modules", "dist"].contains(&&*name)
                && !name.starts_with('.')
            {
                open.push(path);
            } else if name.ends_with(ending) {
                let shown = path.strip_prefix(root()).unwrap().display().to_string();
                found.insert(shown, std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The lines of a page outside of its blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let (mut seen, mut anchors) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
    for line in prose(page).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let times = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    anchors
}

/// The targets of a page's links.
fn targets(page: &str) -> Vec<&str> {
    let lines = prose(page).flat_map(|line| line.split("](").skip(1));
    lines.filter_map(|rest| rest.split(')').next()).collect()
}

#[test]
fn anchors_lead_somewhere() {
    let pages: BTreeMap<PathBuf, String> =
        files("", ".md").into_iter().map(|(path, text)| (root().join(path), text)).collect();
    let mut wrong = Vec::new();
    for (path, text) in &pages {
        for target in targets(text).into_iter().filter(|target| !target.contains("://")) {
            let Some((file, anchor)) = target.split_once('#') else { continue };
            let page = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let page = page.canonicalize().ok().and_then(|page| pages.get(&page));
            if !page.is_some_and(|page| anchors(page).contains(anchor)) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = std::fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> =
        targets(&summary).into_iter().map(|target| format!("docs/src/{target}")).collect();
    let there: BTreeSet<String> =
        files("docs/src", ".md").into_keys().filter(|path| !path.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, there);
}

/// Messages of libraries that the page on trouble explains.
const FOREIGN: [&str; 1] = ["invalid peer certificate: "];

/// The sources as their strings read: a line that ends in a backslash goes on in the next.
fn sources() -> String {
    let mut all = String::new();
    for (path, text) in files("crates", ".rs") {
        if !path.contains("/src/") {
            continue;
        }
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\\\n") {
            all.push_str(before);
            rest = after.trim_start();
        }
        all.push_str(rest);
    }
    all
}

#[test]
fn messages_of_the_page_on_trouble_are_the_program_s() {
    let page = std::fs::read_to_string(root().join("docs/src/trouble.md")).unwrap();
    let (sources, mut quoted, mut gone) = (sources(), 0, Vec::new());
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    for cell in rows.map(|row| row.split(" | ").next().unwrap()) {
        for message in cell.split('`').skip(1).step_by(2) {
            quoted += 1;
            if FOREIGN.iter().any(|foreign| message.starts_with(foreign)) {
                continue;
            }
            let parts = message.split('…').map(str::trim).filter(|part| part.len() > 3);
            // "cannot" is often put before what was tried.
            let is_there = |part: &str| sources.contains(part.strip_prefix("cannot ").unwrap_or(part));
            for part in parts.filter(|part| !is_there(part)) {
                gone.push(format!("'{part}' of '{message}'"));
            }
        }
    }
    assert!(quoted > 80, "{quoted} messages");
    assert!(gone.is_empty(), "no source has\n{}", gone.join("\n"));
}

/// Pictures are read on light and on dark pages, and by those who do not see them.
#[test]
fn pictures_have_two_sets_of_colours_and_a_description() {
    let pictures = files("docs/src/pictures", ".svg");
    assert!(pictures.len() >= 4);
    for (path, text) in pictures {
        for part in ["prefers-color-scheme: dark", "<title", "<desc", "class=\"page\""] {
            assert!(text.contains(part), "{path} lacks {part}");
        }
    }
}

#[test]
fn mdbook_builds_the_manual() {
    let own = root().join("target/tools/bin/mdbook");
    let program = if own.exists() { own } else { PathBuf::from("mdbook") };
    let to = tempfile::tempdir().unwrap();
    let built = Command::new(program).arg("build").arg(root().join("docs")).arg("-d").arg(to.path()).output();
    let Ok(built) = built else {
        println!("SKIP manual: mdbook is not installed; ./test installs it");
        return;
    };
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for page in ["index.html", "first.html", "concepts.html", "reference/commands.html", "pictures/farm.svg"]
    {
        assert!(to.path().join(page).exists(), "{page} was not built");
    }
}

#[test]
fn anchors_are_made_of_headings() {
    let page = "# The board's *own* `[load]` settings\n```\n# no heading\n```\n## A\n## A\n";
    let expected = ["a", "a-1", "the-boards-own-load-settings"].map(str::to_owned);
    assert_eq!(anchors(page), expected.into());
}
