//! The README's session is played with the real program, and its picture is drawn from it, so neither goes stale.
//! `UPDATE_EXPECT=1 cargo test -p windlass-cli --test all front_door::` takes over what the program says today.

use crate::support::{Farm, kill, windlass};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

/// The machine of the session: two cores, named box1, and no pressure counts, however busy the real one is.
const CONFIG: &str = "[worker]\ncpus = 2\nname = \"box1\"\n\n[load]\npressure = false\n";
const USER: &str = "ann";
/// How often a command is repeated until it says what is expected: what it shows may be under way.
const TRIES: usize = 400;

/// A command, and the lines that it prints.
struct Exchange {
    command: String,
    output: Vec<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first console block of the README.
fn session(readme: &str) -> Vec<Exchange> {
    let block = readme.split("```console\n").nth(1).expect("the README has a session");
    let block = block.split("```").next().unwrap();
    let mut session: Vec<Exchange> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), session.last_mut()) {
            (Some(command), _) => {
                session.push(Exchange { command: command.to_owned(), output: Vec::new() });
            }
            (None, Some(last)) if !line.is_empty() => last.output.push(line.to_owned()),
            _ => {}
        }
    }
    session
}

/// Numbers before a unit of time differ from run to run, and so does the width of their column.
fn without_times(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_unit = matches!(word, "s" | "ms" | "min" | "h" | "d");
        let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.') && !text.is_empty();
        let glued = word.trim_end_matches(['s', 'm', 'h', 'd']);
        if is_unit && words.last().is_some_and(|last| is_number(last)) {
            words.pop();
            words.push("TIME".to_owned());
        } else if glued.len() < word.len() && is_number(glued) {
            words.push("TIME".to_owned());
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

fn play(farm: &Farm, command: &str) -> Vec<String> {
    if command.starts_with("kill -9 ") {
        let pid = farm.json(&["server", "status"])["pid"].as_u64().expect("a server answers");
        kill(pid as i32, "KILL");
        return Vec::new();
    }
    let config = farm.path().join("server.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let bin = PathBuf::from(windlass());
    let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = farm.command(&[]);
    let environment: Vec<_> =
        shell.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    // As on a terminal: in a pipe only ids are printed.
    shell = std::process::Command::new("script");
    shell
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .envs(environment)
        .env("PATH", path);
    shell.env("WINDLASS_CONFIG", config).env("USER", USER).env("LOGNAME", USER).env("NO_COLOR", "1");
    let output = shell.current_dir(farm.work()).stdin(Stdio::null()).output().unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(output.stdout).unwrap()).to_string();
    let lines = text.lines().map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default().to_owned());
    // Progress is drawn over and over.
    lines
        .filter(|line| !line.trim().is_empty() && !line.contains("% ") && !line.contains(" done, "))
        .collect()
}

/// The session as a picture of a terminal.
fn picture(session: &[Exchange]) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for exchange in session {
        lines.push(("command", format!("$ {}", exchange.command)));
        lines.extend(exchange.output.iter().map(|line| ("output", line.clone())));
        lines.push(("output", String::new()));
    }
    lines.pop();
    let columns = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or(0);
    let (width, height) = (columns * 9 + 40, lines.len() * 20 + 36);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\">\n\
         <style>\n\
         rect {{ fill: #16181d }}\n\
         text {{ font: 15px ui-monospace, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #c8ccd4 }}\n\
         .command {{ fill: #ffffff; font-weight: bold }}\n\
         </style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n"
    );
    for (row, (class, line)) in lines.iter().enumerate() {
        let line = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let y = row * 20 + 30;
        // Writing to a string cannot fail.
        _ = writeln!(svg, "<text class=\"{class}\" x=\"20\" y=\"{y}\" xml:space=\"preserve\">{line}</text>");
    }
    svg + "</svg>\n"
}

#[test]
fn the_readme_says_what_the_program_says() {
    let (readme_path, picture_path) = (repository().join("README.md"), repository().join("docs/run.svg"));
    let mut readme = std::fs::read_to_string(&readme_path).unwrap();
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    if std::process::Command::new("script").arg("--version").output().is_err() {
        return println!("SKIP the_readme_says_what_the_program_says: needs script of util-linux");
    }
    let expected = session(&readme);
    assert!(expected.len() >= 5, "{} commands", expected.len());
    let farm = Farm::new();
    for n in 0..26 {
        std::fs::write(farm.work().join(format!("f{n}.c")), format!("int f{n}(void) {{ return {n}; }}\n"))
            .unwrap();
    }
    let plain = |lines: &[String]| lines.iter().map(|line| without_times(line)).collect::<Vec<_>>();
    for exchange in &expected {
        let mut said = play(&farm, &exchange.command);
        // What only looks may come too early, until what was submitted before has started.
        let looks = ["windlass why", "windlass jobs"].iter().any(|verb| exchange.command.starts_with(verb));
        for _ in 0..TRIES {
            if !looks || plain(&said) == plain(&exchange.output) {
                break;
            }
            said = play(&farm, &exchange.command);
        }
        if update && plain(&said) != plain(&exchange.output) {
            let before: String = exchange.output.iter().map(|line| format!("{line}\n")).collect();
            let after: String = said.iter().map(|line| format!("{line}\n")).collect();
            let start = format!("$ {}\n", exchange.command);
            readme = readme.replace(&(start.clone() + &before), &(start + &after));
            continue;
        }
        assert_eq!(plain(&said), plain(&exchange.output), "{}", exchange.command);
    }
    let drawn = picture(&session(&readme));
    if update {
        std::fs::write(&readme_path, readme).unwrap();
        std::fs::write(&picture_path, &drawn).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&picture_path).unwrap(), drawn, "docs/run.svg is not of the README");
}

#[test]
fn times_are_all_that_may_differ() {
    assert_eq!(without_times("job 1: 26 succeeded in 10.7 s"), "job 1: 26 succeeded in TIME");
    assert_eq!(
        without_times("2   running  film  ann  4/200  2   0   0   9s   -"),
        "2 running film ann 4/200 2 0 0 TIME -"
    );
    assert_eq!(without_times("behind 148 tasks"), "behind 148 tasks");
}
