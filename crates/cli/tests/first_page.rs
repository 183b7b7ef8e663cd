//! The manual's first page does what it says: every shell block is run, in order and in one shell, and what it prints is
//! compared with the block that follows it. Lines of a block `text,any-order` may come in any order. A comment
//! `<!-- first: COMMAND -->` is run before the next block: a person would have been slower than the test.

use crate::support::{self, Farm};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The port that the page names. The test has another one.
const PORT: &str = "7117";

/// A shell block and what it should print.
#[derive(Default)]
struct Block {
    /// Line of the page at which it begins.
    line: usize,
    /// Run before the block's own commands.
    first: String,
    commands: String,
    expected: String,
    any_order: bool,
}

/// The blocks of a page, and how many are shown and not run.
fn blocks(page: &str) -> (Vec<Block>, usize) {
    let (mut blocks, mut not_run) = (Vec::<Block>::new(), 0);
    let (mut lines, mut first) = (page.lines().enumerate(), String::new());
    while let Some((line, text)) = lines.next() {
        if let Some(command) = text.strip_prefix("<!-- first: ").and_then(|text| text.strip_suffix(" -->")) {
            first = format!("{command}\n");
        }
        let Some(kind) = text.strip_prefix("```") else { continue };
        let inside: Vec<&str> =
            lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```").collect();
        let inside = inside.join("\n") + "\n";
        match kind {
            "sh" => {
                let first = std::mem::take(&mut first);
                blocks.push(Block { line: line + 1, first, commands: inside, ..Block::default() });
            }
            "text" | "text,any-order" => {
                let block = blocks.last_mut().expect("output follows a command");
                (block.expected, block.any_order) = (inside, kind != "text");
            }
            "sh,not-run" => not_run += 1,
            other => panic!("line {}: a block of '{other}'", line + 1),
        }
    }
    (blocks, not_run)
}

/// True if the text is what the pattern says: `...` is any text within a line, and a line `...` any number of lines.
/// Spaces at the end of columns do not count: tables are as wide as their contents.
fn matches(pattern: &[&str], text: &[&str]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((&"...", later)), rest) => {
            matches(later, text) || rest.is_some_and(|(_, after)| matches(pattern, after))
        }
        (Some(_), None) => false,
        (Some((first, later)), Some((line, after))) => line_matches(first, line) && matches(later, after),
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (squeeze(pattern), squeeze(line));
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// A port that was free a moment ago.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// One script of all blocks; the output of each goes to a file of its own.
fn script(blocks: &[Block], outputs: &Path, port: &str) -> String {
    // What it started must not outlive it where a command fails.
    let mut script = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
    for (number, block) in blocks.iter().enumerate() {
        script.push_str(&block.first);
        script.push_str(&format!("exec >{}/{number} 2>&1\n", outputs.display()));
        script.push_str(&block.commands.replace(PORT, port));
    }
    script
}

/// The program prints an id for programs when its output is not a terminal; people do not see that line.
fn as_people_see_it(output: &str) -> String {
    let mut submitted = false;
    let shown = output.lines().filter(|line| {
        let is_id = submitted && !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        submitted |= line.starts_with("Submitted job ");
        submitted &= !is_id;
        !is_id
    });
    shown.map(|line| format!("{line}\n")).collect()
}

/// A shell in the farm's directory, as a person without root has it.
fn shell(farm: &Farm, script: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "10"]).arg(support::PATIENCE.as_secs().to_string()).arg("bash");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    let programs = Path::new(support::windlass()).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    command.arg(script).env("PATH", path).env("HOME", farm.work()).current_dir(farm.work());
    command.env("WINDLASS_STATE", farm.state()).env("WINDLASS_RUNTIME", farm.path().join("run"));
    support::without_root(&mut command, farm);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/first.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_first_page_does_what_it_says() {
    let (blocks, not_run) = blocks(&page());
    assert!(blocks.len() > 10 && not_run == 1, "{} blocks, {not_run} not run", blocks.len());
    let farm = Farm::new();
    let (port, outputs) = (free_port(), farm.work().join("outputs"));
    std::fs::create_dir(&outputs).unwrap();
    let file: PathBuf = farm.work().join("page.sh");
    std::fs::write(&file, script(&blocks, &outputs, &port)).unwrap();
    let status = shell(&farm, &file).status().unwrap();
    // The keeper of a worker outlives its agent.
    let keeper = std::fs::read(farm.work().join("box2/keeper.json")).unwrap_or_default();
    if let Ok(keeper) = serde_json::from_slice::<serde_json::Value>(&keeper) {
        support::kill(i32::try_from(keeper["pid"].as_i64().unwrap()).unwrap(), "KILL");
    }
    let mut wrong = String::new();
    for (number, Block { line, commands, expected, any_order, .. }) in blocks.iter().enumerate() {
        let Ok(output) = std::fs::read_to_string(outputs.join(number.to_string())) else {
            wrong.push_str(&format!("line {line} was not reached\n"));
            break;
        };
        let (output, expected) = (as_people_see_it(&output), expected.replace(PORT, &port));
        let (mut pattern, mut text): (Vec<&str>, Vec<&str>) =
            (expected.lines().collect(), output.lines().collect());
        if *any_order {
            pattern.sort_unstable();
            text.sort_unstable();
        }
        if !matches(&pattern, &text) {
            wrong.push_str(&format!(
                "line {line}:\n{commands}-- should print\n{expected}-- printed\n{output}\n"
            ));
        }
    }
    assert!(status.success() && wrong.is_empty(), "{status}\n{wrong}");
}

#[test]
fn dots_stand_for_what_differs() {
    assert!(line_matches("a ... c", "a b b  c") && line_matches("...", "") && line_matches("a", "a"));
    assert!(!line_matches("a ... c", "a b d") && !line_matches("a", "a b") && !line_matches("a ...", "b"));
    assert!(matches(&["a", "...", "d"], &["a", "b", "c", "d"]) && matches(&["..."], &[]));
    assert!(!matches(&["a", "b"], &["a"]) && !matches(&["a"], &["a", "b"]));
    assert_eq!(as_people_see_it("Submitted job 5 (1 task)\n5\n7\n"), "Submitted job 5 (1 task)\n7\n");
}
