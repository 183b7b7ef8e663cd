//! The shape of a command that is built with: the compiler, what it does, and of what. Commands of one shape need about
//! the same memory.
//!
//! A shape is a list of texts from exact to general, such as `rustc|link|server` and `rustc|link`. A command of which
//! nothing is known is sized like the nearest one of which something is.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use windlass_api::TURN_TEXT_BYTES_MAX;

/// Programs that run the compiler behind them.
const LAUNCHERS: [&str; 5] = ["ccache", "sccache", "distcc", "icecc", "clippy-driver"];
const COMPILERS: [&str; 8] = ["gcc", "g++", "cc", "c++", "clang", "clang++", "gfortran", "nvcc"];
const LINKERS: [&str; 11] =
    ["ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "ld64.lld", "lld", "gold", "mold", "wild", "collect2"];
/// Kinds of crates that rustc links. It archives the others.
const LINKED_CRATES: [&str; 5] = ["bin", "dylib", "cdylib", "staticlib", "proc-macro"];
/// Flags of cargo before its command that have a value.
const CARGO_VALUES: [&str; 4] = ["--color", "--config", "-Z", "-C"];
/// The short names of cargo's commands.
const CARGO_SHORT: [(&str, &str); 5] =
    [("b", "build"), ("c", "check"), ("d", "doc"), ("r", "run"), ("t", "test")];

/// What a command is, as far as its words tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandShape {
    /// What it is for.
    pub purpose: Purpose,
    /// From exact to general, each of at most [`TURN_TEXT_BYTES_MAX`] bytes.
    pub texts: Vec<String>,
    /// Files and directories that it writes, those named by an absolute path.
    pub written: Vec<PathBuf>,
    /// Its last argument, which often is what it reads, if that is an absolute path.
    pub read: Option<PathBuf>,
}

/// What a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// A compiler that is asked about itself, as build tools do before each build. It ends at once.
    Tells,
    /// A compiler or a linker: it writes its output again if it is run again, and tools read what it says.
    Builds,
    /// Anything else, such as tests.
    #[default]
    Other,
}

/// A program that builds.
enum BuildTool<'n> {
    Rustc,
    Compiler(&'n str),
    Linker(&'n str),
    Cargo,
    Pytest,
}

type Words<'w> = [Cow<'w, str>];

/// The shape of a command that runs in the directory.
pub fn shape_of(command: &[OsString], directory: &Path) -> CommandShape {
    let words: Vec<Cow<'_, str>> = command.iter().map(|word| word.to_string_lossy()).collect();
    let Some((program, arguments)) = behind_launchers(&words).split_first() else {
        return CommandShape::default();
    };
    let name = base_name(program);
    let here = directory.file_name().map_or(Cow::Borrowed("/"), |name| name.to_string_lossy());
    match tool(name) {
        Some(BuildTool::Rustc) => rustc(arguments),
        Some(BuildTool::Compiler(name)) => compiler(name, arguments),
        Some(BuildTool::Linker(name)) => linker(name, arguments),
        Some(BuildTool::Cargo) => cargo(arguments, &here),
        Some(BuildTool::Pytest) => pytest(arguments, &here),
        None if runs_pytest(name, arguments) => pytest(&arguments[2..], &here),
        None => {
            let first = arguments.first().map(|first| base_name(first));
            CommandShape { texts: texts(&[name], first), ..CommandShape::default() }
        }
    }
}

/// The command without the programs that only start it.
fn behind_launchers<'a, 'w>(mut words: &'a Words<'w>) -> &'a Words<'w> {
    while let Some((program, rest)) = words.split_first() {
        let rest = match base_name(program) {
            name if LAUNCHERS.contains(&name) => rest,
            "env" => &rest[rest.iter().take_while(|word| word.contains('=')).count()..],
            _ => break,
        };
        // A flag belongs to the program itself: sccache --show-stats.
        if rest.first().is_none_or(|next| next.starts_with('-')) {
            break;
        }
        words = rest;
    }
    words
}

/// The tool of a program's name, which may have the name of a machine before it and a version behind it:
/// `aarch64-linux-gnu-gcc-12`.
fn tool(name: &str) -> Option<BuildTool<'_>> {
    match name {
        "cargo" => return Some(BuildTool::Cargo),
        "pytest" | "py.test" => return Some(BuildTool::Pytest),
        _ => {}
    }
    let is_version = |part: &str| {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        (is_number && !part.is_empty()) || matches!(part, "posix" | "win32")
    };
    let bare = match name.rsplit_once('-') {
        Some((front, last)) if is_version(last) => front,
        _ => name,
    };
    let last = bare.rsplit('-').next().unwrap_or(bare);
    match last {
        "rustc" => Some(BuildTool::Rustc),
        last if COMPILERS.contains(&last) => Some(BuildTool::Compiler(last)),
        last if LINKERS.contains(&last) => Some(BuildTool::Linker(last)),
        _ => None,
    }
}

fn rustc(arguments: &Words<'_>) -> CommandShape {
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&&**word));
    let prints = arguments.iter().any(|word| word.starts_with("--print") || word.starts_with("--explain"));
    let purpose = match prints || has(&["-vV", "-Vv", "-V", "--version", "-h", "--help"]) {
        true => Purpose::Tells,
        false => Purpose::Builds,
    };
    let kinds: Vec<&str> =
        values(arguments, "--crate-type").into_iter().flat_map(|kinds| kinds.split(',')).collect();
    let emits: Vec<&str> = values(arguments, "--emit").into_iter().flat_map(|all| all.split(',')).collect();
    let is_link = |emit: &&str| emit.split('=').next() == Some("link");
    let mode = if !emits.is_empty() && !emits.iter().any(is_link) {
        "check"
    } else if kinds.is_empty() || has(&["--test"]) || kinds.iter().any(|kind| LINKED_CRATES.contains(kind)) {
        "link"
    } else {
        "compile"
    };
    let written = values(arguments, "--out-dir").into_iter().chain(values(arguments, "-o"));
    CommandShape {
        purpose,
        texts: texts(&["rustc", mode], values(arguments, "--crate-name").last().copied()),
        written: absolute(written),
        read: absolute(arguments.last().map(|word| &**word)).pop(),
    }
}

fn compiler(name: &str, arguments: &Words<'_>) -> CommandShape {
    let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&&**word));
    let about_itself = ["--version", "--help", "--target-help", "-print-", "--print-", "-dump", "-###"];
    let tells = |word: &Cow<'_, str>| about_itself.iter().any(|flag| word.starts_with(flag));
    let mode = if has(&["-E", "-M", "-MM"]) {
        "preprocess"
    } else if has(&["-fsyntax-only"]) {
        "check"
    } else if has(&["-c", "-S", "-cc1"]) {
        "compile"
    } else {
        "link"
    };
    let is_asked = arguments.iter().any(tells) || !has_input(arguments);
    tool_shape(name, mode, arguments, is_asked)
}

fn linker(name: &str, arguments: &Words<'_>) -> CommandShape {
    let about_itself = ["--version", "--help", "-version"];
    let is_asked = arguments.iter().any(|word| about_itself.contains(&&**word)) || !has_input(arguments);
    tool_shape(name, "link", arguments, is_asked)
}

/// True if a word is not a flag, or is a file with further words.
fn has_input(arguments: &Words<'_>) -> bool {
    arguments.iter().any(|word| !word.starts_with('-') || &**word == "-")
}

fn tool_shape(name: &str, mode: &str, arguments: &Words<'_>, is_asked: bool) -> CommandShape {
    let mut written = values(arguments, "-o");
    written.extend(values(arguments, "--output"));
    let source = arguments.iter().find(|word| !word.starts_with(['-', '@'])).map(|word| &**word);
    CommandShape {
        purpose: if is_asked { Purpose::Tells } else { Purpose::Builds },
        texts: texts(&[name, mode], written.first().copied().or(source).map(base_name)),
        written: absolute(written),
        read: absolute(arguments.last().map(|word| &**word)).pop(),
    }
}

fn cargo(arguments: &Words<'_>, here: &str) -> CommandShape {
    let mut words = arguments.iter().map(|word| &**word);
    let mut command = None;
    while let Some(word) = words.next() {
        if CARGO_VALUES.contains(&word) {
            words.next();
        } else if !word.starts_with(['-', '+']) {
            command = Some(word);
            break;
        }
    }
    let Some(command) = command else {
        return CommandShape { texts: texts(&["cargo"], None), ..CommandShape::default() };
    };
    let long = CARGO_SHORT.iter().find(|(short, _)| *short == command).map_or(command, |(_, long)| long);
    // What stands behind -- is for the tests.
    let own = arguments.split(|word| word == "--").next().unwrap_or_default();
    let package = values(own, "-p").into_iter().chain(values(own, "--package")).next();
    CommandShape { texts: texts(&["cargo", long], Some(package.unwrap_or(here))), ..CommandShape::default() }
}

fn pytest(arguments: &Words<'_>, here: &str) -> CommandShape {
    let chosen = arguments.first().filter(|word| !word.starts_with('-'));
    let chosen = chosen.map_or(here, |word| &**word);
    CommandShape { texts: texts(&["pytest", "test"], Some(chosen)), ..CommandShape::default() }
}

fn runs_pytest(name: &str, arguments: &Words<'_>) -> bool {
    name.starts_with("python") && arguments.len() >= 2 && arguments[0] == "-m" && arguments[1] == "pytest"
}

/// The values of a flag: `-o FILE`, `-oFILE`, `--emit KINDS`, `--emit=KINDS`.
fn values<'a>(arguments: &'a Words<'_>, flag: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut words = arguments.iter().map(|word| &**word);
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix(flag) else { continue };
        match rest.strip_prefix('=') {
            _ if rest.is_empty() => found.extend(words.next()),
            Some(value) if flag.starts_with("--") => found.push(value),
            _ if flag.starts_with("--") => {}
            _ => found.push(rest),
        }
    }
    found
}

/// The text with the exact part, if there is one, and the text without it.
fn texts(general: &[&str], exact: Option<&str>) -> Vec<String> {
    let general = general.join("|");
    let exact = exact.filter(|exact| !exact.is_empty()).map(|exact| format!("{general}|{exact}"));
    exact.into_iter().chain([general]).map(|text| cut_to(&text, TURN_TEXT_BYTES_MAX).to_owned()).collect()
}

/// Those of the paths that begin at the root.
fn absolute<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| path.starts_with('/')).map(PathBuf::from).collect()
}

/// The beginning of a text, of at most that many bytes.
pub fn cut_to(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(line: &str) -> CommandShape {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        shape_of(&words, Path::new("/home/ann/film"))
    }

    #[test]
    fn a_command_has_a_shape_from_exact_to_general() {
        let cases = [
            (
                "rustc --crate-name serde a.rs --crate-type lib --emit=dep-info,metadata,link",
                "rustc|compile|serde",
            ),
            ("rustc --crate-name=w a.rs --crate-type=bin --emit dep-info,link=x", "rustc|link|w"),
            ("rustc --crate-name w a.rs --crate-type lib --emit=metadata", "rustc|check|w"),
            ("rustc --crate-name w a.rs --emit=link --test", "rustc|link|w"),
            ("rustc --crate-name m a.rs --crate-type lib --crate-type proc-macro", "rustc|link|m"),
            ("clippy-driver /opt/bin/rustc --crate-name w a.rs --crate-type rlib", "rustc|compile|w"),
            ("/usr/bin/aarch64-linux-gnu-gcc-12 -O2 -c src/a.c -o out/a.o", "gcc|compile|a.o"),
            ("x86_64-w64-mingw32-g++-posix -c a.cc", "g++|compile|a.cc"),
            ("clang++-15 -std=c++20 -S a.cc -oa.s", "clang++|compile|a.s"),
            ("ccache sccache cc main.o util.o -o bin/tool", "cc|link|tool"),
            ("env CC=gcc gcc -E a.c", "gcc|preprocess|a.c"),
            ("gcc -MMD -MF a.d -fsyntax-only a.c", "gcc|check|a.d"),
            ("g++ @objects.rsp -shared", "g++|link"),
            ("ld.lld-15 -o out a.o", "ld.lld|link|out"),
            ("x86_64-linux-gnu-ld --output=image a.o", "ld|link|image"),
            ("mold -run", "mold|link"),
            ("cargo +nightly -Z x test -p core -- -p other", "cargo|test|core"),
            ("cargo --color always t --workspace", "cargo|test|film"),
            ("cargo b --package=cli", "cargo|build|cli"),
            ("cargo --version", "cargo"),
            ("pytest -x", "pytest|test|film"),
            ("python3.11 -m pytest tests/unit -q", "pytest|test|tests/unit"),
            ("make all", "make|all"),
            ("./build/../tool", "tool"),
            ("gcc-ar rcs lib.a a.o", "gcc-ar|rcs"),
            ("sccache --show-stats", "sccache|--show-stats"),
        ];
        for (line, exact) in cases {
            let found = shape(line).texts;
            assert_eq!(found[0], exact, "{line}");
            let general = exact.rsplit_once('|').map_or(exact, |(general, _)| general);
            let is_exact = found.len() == 2;
            assert_eq!(found.last().unwrap(), if is_exact { general } else { exact }, "{line}");
        }
        assert_eq!(shape("").texts, Vec::<String>::new());
    }

    #[test]
    fn a_compiler_that_is_asked_about_itself_is_told_from_one_that_builds() {
        let asked = [
            "rustc -vV",
            "rustc - --crate-name ___ --print=file-names --crate-type bin",
            "gcc --version",
            "gcc -v",
            "cc -dumpmachine",
            "clang -print-search-dirs",
            "gcc -### a.c",
            "ld --version",
            "ld -v",
        ];
        for line in asked {
            assert_eq!(shape(line).purpose, Purpose::Tells, "{line}");
        }
        for line in ["rustc a.rs", "cc -x c -", "gcc -v a.c", "ld @all", "rustc -v a.rs"] {
            assert_eq!(shape(line).purpose, Purpose::Builds, "{line}");
        }
        for line in ["cargo --version", "make -v", "gcc-ar rcs x", "pytest"] {
            assert_eq!(shape(line).purpose, Purpose::Other, "{line}");
        }
    }

    #[test]
    fn files_lead_to_the_repository_that_is_built() {
        let files = |line: &str| {
            let CommandShape { written, read, .. } = shape(line);
            (
                written.first().map(|path| path.display().to_string()),
                read.map(|path| path.display().to_string()),
            )
        };
        let (out, source) = (Some("/w/target/deps".to_owned()), Some("/w/src/a.c".to_owned()));
        assert_eq!(files("rustc --crate-name s --out-dir /w/target/deps src/lib.rs"), (out, None));
        assert_eq!(files("gcc -o a.o -c /w/src/a.c"), (None, source));
        assert_eq!(files("gcc -c a.c"), (None, None));
    }

    proptest! {
        #[test]
        fn any_command_has_a_bounded_shape(words in prop::collection::vec("\\PC{0,300}", 0..8)) {
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            let shape = shape_of(&words, Path::new("/"));
            prop_assert!(shape.texts.len() <= 2);
            prop_assert!(shape.texts.iter().all(|text| text.len() <= TURN_TEXT_BYTES_MAX));
        }
    }
}
