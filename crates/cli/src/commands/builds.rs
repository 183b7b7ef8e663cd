//! Which commands are builds that ask a jobserver how many processes they may run, and the flags of `run` and `submit`
//! that say so.

use crate::ui::message::message;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use windlass_api::JobserverRequest;

/// Programs around a build that are looked through, such as `env` and `nice`.
const PREFIXES_MAX: usize = 8;

/// Whether tasks have a jobserver.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Resources")]
pub struct JobserverArgs {
    /// Give each task a GNU make jobserver: it books the least of --cpus, 0.1 if that is not given, and while it runs it
    /// takes what its worker has idle [default: for make, ninja, samu, cargo, cmake --build and meson compile without -j
    /// and without --cpus, unless the queue's setting says otherwise]
    #[arg(
        long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
        conflicts_with_all = ["nodes", "chunks"]
    )]
    pub jobserver: Option<JobserverArg>,
    /// Give the tasks no jobserver, whatever the queue's setting says
    #[arg(long, conflicts_with = "jobserver")]
    pub no_jobserver: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum JobserverArg {
    /// As the command and the tools of the worker need it.
    Auto,
    /// A named pipe, for make 4.4, ninja 1.13 and cargo.
    Fifo,
    /// Two inherited descriptors, for earlier releases of make.
    Pipes,
}

impl JobserverArgs {
    /// What is said of the jobserver of a command's tasks; `None` leaves it to the queue. `is_open` says that nothing else
    /// was said of what they take.
    pub fn choose(
        &self,
        command: &[String],
        env: &BTreeMap<String, String>,
        is_open: bool,
    ) -> Option<JobserverRequest> {
        if self.no_jobserver {
            return Some(JobserverRequest::None);
        }
        if self.jobserver.is_none() && !is_open {
            return None;
        }
        let found = jobs_of(command, env);
        if let Some(BuildJobs::Told { tool, by, count }) = &found
            && *count != Some(1)
            && is_open
        {
            message!(
                "note: {tool} is told how many processes to run by '{by}', and shares no cpus with other builds: leave \
                 that out, or book what they need with --cpus"
            );
        }
        match self.jobserver {
            None => (found == Some(BuildJobs::Asked)).then_some(JobserverRequest::Detected),
            Some(JobserverArg::Auto) => Some(JobserverRequest::Auto),
            Some(JobserverArg::Fifo) => Some(JobserverRequest::Fifo),
            Some(JobserverArg::Pipes) => Some(JobserverRequest::Pipes),
        }
    }
}

/// How a build knows how many processes it may run.
#[derive(PartialEq, Eq, Debug)]
enum BuildJobs<'a> {
    /// It asks a jobserver.
    Asked,
    /// This argument or variable tells it; `count` is the number, if there is one.
    Told { tool: &'a str, by: &'a str, count: Option<u32> },
}

/// How the build that a command is knows it; `None` of a command that is not a build, or whose own flags of make are in the
/// environment.
fn jobs_of<'a>(command: &'a [String], env: &'a BTreeMap<String, String>) -> Option<BuildJobs<'a>> {
    let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut variables: BTreeMap<&str, &str> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    for _ in 0..PREFIXES_MAX {
        let name = program(&words)?;
        if let Some(prefix) = PREFIXES.iter().find(|prefix| prefix.name == name) {
            let own = prefix.words(&words)?;
            words.drain(..own);
        } else if SHELLS.contains(&name) {
            words = plain_script(&words)?;
        } else {
            break;
        }
        // What stands before a command in a script, and behind env.
        while let Some((name, value)) = words.first().and_then(|word| word.split_once('=')).filter(is_name) {
            variables.insert(name, value);
            words.remove(0);
        }
    }
    if variables.contains_key("MAKEFLAGS") {
        return None;
    }
    told(program(&words)?, &words[1..], &variables)
}

/// The name of a program without its directory.
fn program<'a>(words: &[&'a str]) -> Option<&'a str> {
    words.first()?.rsplit('/').next()
}

fn is_name((name, _): &(&str, &str)) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// How the build tool of this name knows it.
fn told<'a>(
    tool: &'a str,
    arguments: &[&'a str],
    variables: &BTreeMap<&'a str, &'a str>,
) -> Option<BuildJobs<'a>> {
    let first = arguments.first().copied();
    let (by, variable) = match tool {
        "make" | "gmake" => (own_jobs(arguments, "CfIoWE", &["jobs"], false), None),
        "ninja" | "samu" => (own_jobs(arguments, "Cfkldtw", &[], false), None),
        "cargo" => (own_jobs(arguments, "pFZC", &["jobs"], false), Some("CARGO_BUILD_JOBS")),
        // What is behind the dashes is for the tool that it calls.
        "cmake" if first == Some("--build") => {
            (own_jobs(arguments, "t", &["parallel", "jobs"], true), Some("CMAKE_BUILD_PARALLEL_LEVEL"))
        }
        "meson" if first == Some("compile") => {
            let inner = arguments.iter().find(|word| word.starts_with("--ninja-args") && word.contains("-j"));
            let inner = inner.map(|word| (*word, None));
            (own_jobs(arguments, "C", &["jobs"], false).or(inner), None)
        }
        _ => return None,
    };
    let variable = variable.and_then(|name| variables.get_key_value(name));
    let by = by.or_else(|| variable.map(|(name, value)| (*name, value.parse().ok())));
    Some(by.map_or(BuildJobs::Asked, |(by, count)| BuildJobs::Told { tool, by, count }))
}

/// The argument that says how many processes to run, such as `-j`, `-j8`, `-kj8` or `--jobs=8`, and the number.
/// `with_value` has the letters of options that take a value, and `long` the names of long options that say it.
fn own_jobs<'a>(
    arguments: &[&'a str],
    with_value: &str,
    long: &[&str],
    behind_dashes: bool,
) -> Option<(&'a str, Option<u32>)> {
    let mut at = 0;
    while let Some(word) = arguments.get(at).copied() {
        at += 1;
        let value = if word == "--" {
            if behind_dashes {
                continue;
            }
            return None;
        } else if let Some(option) = word.strip_prefix("--") {
            let (name, value) = option.split_once('=').map_or((option, None), |(n, value)| (n, Some(value)));
            if !long.contains(&name) {
                continue;
            }
            value
        } else if let Some(letters) = word.strip_prefix('-') {
            let Some(place) = letters.find(|c: char| c == 'j' || with_value.contains(c)) else { continue };
            let (option, value) = letters[place..].split_at(1);
            if option != "j" {
                // Its value is the rest of the word, or the next word.
                at += usize::from(value.is_empty());
                continue;
            }
            Some(value).filter(|value| !value.is_empty())
        } else {
            continue;
        };
        let number = value.or_else(|| arguments.get(at).copied());
        return Some((word, number.and_then(|number| number.parse().ok())));
    }
    None
}

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// The words of a shell's script that is one plain command: nothing in it means anything to the shell.
fn plain_script<'a>(words: &[&'a str]) -> Option<Vec<&'a str>> {
    let (option, script) = (words.get(1)?, words.get(2)?.trim());
    let letters = option.strip_prefix('-')?;
    if !letters.ends_with('c') || !letters.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let is_plain = |c: char| c.is_alphanumeric() || " \t_-+./:,=@%".contains(c);
    let words = script.split_whitespace().skip_while(|word| *word == "exec");
    script.chars().all(is_plain).then(|| words.collect())
}

/// A program that runs its arguments as a command.
struct Prefix {
    name: &'static str,
    /// Letters of its options that take a value, and names of such long options.
    with_value: &'static str,
    long_with_value: &'static [&'static str],
    /// Arguments before the command.
    arguments: usize,
    /// Options with which it is not looked through: they take the jobserver away, or there is no command.
    opaque: &'static [&'static str],
}

const PREFIXES: [Prefix; 6] = [
    Prefix {
        name: "env",
        with_value: "C",
        long_with_value: &["chdir"],
        arguments: 0,
        opaque: &["-i", "-u", "-S", "--ignore-environment", "--unset", "--split-string"],
    },
    Prefix { name: "nice", with_value: "n", long_with_value: &["adjustment"], arguments: 0, opaque: &[] },
    Prefix {
        name: "time",
        with_value: "fo",
        long_with_value: &["format", "output"],
        arguments: 0,
        opaque: &[],
    },
    Prefix {
        name: "ionice",
        with_value: "cn",
        long_with_value: &["class", "classdata"],
        arguments: 0,
        opaque: &["-p", "-P", "-u", "--pid", "--pgid", "--uid"],
    },
    Prefix {
        name: "stdbuf",
        with_value: "ioe",
        long_with_value: &["input", "output", "error"],
        arguments: 0,
        opaque: &[],
    },
    Prefix {
        name: "timeout",
        with_value: "ks",
        long_with_value: &["kill-after", "signal"],
        arguments: 1,
        opaque: &[],
    },
];

impl Prefix {
    /// Its own words, with its name and its options; `None` if it is not looked through.
    fn words(&self, words: &[&str]) -> Option<usize> {
        let mut at = 1;
        while let Some(word) = words.get(at).copied().filter(|word| word.starts_with('-')) {
            if word == "-" || self.opaque.iter().any(|opaque| word.starts_with(opaque)) {
                return None;
            }
            at += 1;
            if word == "--" {
                break;
            }
            let takes_next = match word.strip_prefix("--") {
                Some(name) => self.long_with_value.contains(&name),
                None => word
                    .find(|c: char| self.with_value.contains(c))
                    .is_some_and(|place| place + 1 == word.len()),
            };
            at += usize::from(takes_next);
        }
        let all = at + self.arguments;
        (all < words.len()).then_some(all)
    }
}

/// The variables in which make and cargo tell their children of a jobserver.
const FLAGS_OF_MAKE: [&str; 3] = ["MAKEFLAGS", "MFLAGS", "CARGO_MAKEFLAGS"];

/// Takes the jobserver of the caller out of an environment that tasks get: it is the caller's, and its descriptors do not
/// reach them.
pub fn leave_out_jobserver(env: &mut BTreeMap<String, String>) {
    for name in FLAGS_OF_MAKE {
        let Some(flags) = env.get_mut(name).filter(|flags| flags.contains("--jobserver-")) else { continue };
        let kept = flags.split_whitespace();
        let kept = kept.filter(|word| !word.starts_with("--jobserver-") && !word.starts_with("-j"));
        let kept: Vec<&str> = kept.collect();
        if kept.is_empty() || kept == ["--"] {
            env.remove(name);
        } else {
            // A first word without a dash has the short options.
            let space = if flags.starts_with(' ') { " " } else { "" };
            *flags = format!("{space}{}", kept.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// The words of a command, which are divided by spaces; `'…'` is one word.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate().flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.collect()
    }

    fn look(line: &str) -> String {
        match jobs_of(&words(line), &BTreeMap::new()) {
            None => "no build".to_owned(),
            Some(BuildJobs::Asked) => "asked".to_owned(),
            Some(BuildJobs::Told { tool, by, count }) => match count {
                Some(count) => format!("{tool} {by} {count}"),
                None => format!("{tool} {by}"),
            },
        }
    }

    #[test]
    fn builds_are_known_by_their_program() {
        for line in [
            "make",
            "/usr/bin/make -k all V=1",
            "gmake -C sub install",
            "ninja -C build",
            "samu",
            "cargo build --release",
            "cargo +nightly test -- -j 3",
            "cmake --build build --target all",
            "meson compile -C build",
            "make -f -j.mk",
            "make -C j",
            "make -- -j8",
            "cargo test -p j",
            "ninja -t clean",
        ] {
            assert_eq!(look(line), "asked", "{line}");
        }
        for line in [
            "true",
            "makefile",
            "cmake -S . -B build",
            "cmake",
            "meson setup build",
            "meson",
            "gcc -c a.c",
            "python make",
            "",
        ] {
            assert_eq!(look(line), "no build", "{line}");
        }
    }

    #[test]
    fn builds_are_seen_behind_programs_that_run_them() {
        for line in [
            "env make",
            "env -C /src CC=clang make all",
            "env --chdir /src make",
            "/usr/bin/env -- CC=clang CFLAGS=-O2 make",
            "nice make",
            "nice -n 10 make",
            "nice -n10 make",
            "nice -10 make",
            "nice --adjustment=5 make",
            "nice --adjustment 5 make",
            "time make",
            "time -p make",
            "time -f '%e s' -o times make",
            "ionice -c 3 make",
            "ionice -c2 -n 7 make",
            "stdbuf -oL make",
            "stdbuf -o L -e 0 make",
            "timeout 1h make",
            "timeout -k 5 -s INT 1h make",
            "timeout --signal=INT --foreground 60 ninja",
            "sh -c make",
            "bash -ec 'make -C sub V=1'",
            "sh -c 'exec make all'",
            "sh -c 'CC=clang make all'",
            "nice -n 5 env A=b timeout 1h sh -c 'cargo test'",
        ] {
            let line = line.replace("CFLAGS=-O2 -- make", "CFLAGS=-O2 make");
            assert_eq!(look(&line), "asked", "{line}");
        }
        for line in [
            "env -i make",
            "env - make",
            "env -u MAKEFLAGS make",
            "env MAKEFLAGS=-k make",
            "nice",
            "nice true",
            "timeout make",
            "ionice -p 7",
            "sh make",
            "sh -c",
            "sh -x -c make",
            "sh -c 'cd sub && make'",
            "sh -c 'make; make install'",
            "sh -c 'make | tee log'",
            "sh -c 'make $TARGET'",
            "sh -c 'make >log'",
            "sh -c 'make \"all\"'",
            "sh -c 'MAKEFLAGS=-k make'",
            "sh -c ''",
            "nice nice nice nice nice nice nice nice nice make",
        ] {
            assert_eq!(look(line), "no build", "{line}");
        }
    }

    #[test]
    fn a_build_that_is_told_its_processes_asks_nobody() {
        for (line, says) in [
            ("make -j8", "make -j8 8"),
            ("make -j 8 all", "make -j 8"),
            ("make -j", "make -j"),
            ("make -kj8", "make -kj8 8"),
            ("make all --jobs=4", "make --jobs=4 4"),
            ("make --jobs 4", "make --jobs 4"),
            ("make -C sub -j4", "make -j4 4"),
            ("make -f a.mk -j", "make -j"),
            ("/usr/bin/make -j1", "make -j1 1"),
            ("ninja -j 3", "ninja -j 3"),
            ("cargo build -j4", "cargo -j4 4"),
            ("cargo test --jobs 2 -- --nocapture", "cargo --jobs 2"),
            ("cmake --build b -j 4", "cmake -j 4"),
            ("cmake --build b --parallel", "cmake --parallel"),
            ("cmake --build b -- -j8", "cmake -j8 8"),
            ("meson compile -j 2", "meson -j 2"),
            ("meson compile --ninja-args=-j2", "meson --ninja-args=-j2"),
            ("nice sh -c 'make -j8'", "make -j8 8"),
            ("env CARGO_BUILD_JOBS=3 cargo build", "cargo CARGO_BUILD_JOBS 3"),
        ] {
            assert_eq!(look(line), says, "{line}");
        }
        let told = env(&[("CMAKE_BUILD_PARALLEL_LEVEL", "6")]);
        let (cmake, make) = (words("cmake --build b"), words("make"));
        assert!(matches!(jobs_of(&cmake, &told), Some(BuildJobs::Told { count: Some(6), .. })));
        assert_eq!(jobs_of(&make, &told), Some(BuildJobs::Asked), "it is not make's");
        assert_eq!(jobs_of(&make, &env(&[("MAKEFLAGS", "k")])), None, "the keeper leaves it alone");
    }

    #[test]
    fn what_is_said_is_done() {
        let (make, plain) = (words("make"), words("true"));
        let choose =
            |args: &JobserverArgs, command: &[String], is_open| args.choose(command, &env(&[]), is_open);
        let none = JobserverArgs::default();
        assert_eq!(choose(&none, &make, true), Some(JobserverRequest::Detected));
        assert_eq!(choose(&none, &make, false), None, "its cpus were named");
        assert_eq!(choose(&none, &words("make -j4"), true), None);
        assert_eq!(choose(&none, &plain, true), None);
        let named = JobserverArgs { jobserver: Some(JobserverArg::Pipes), no_jobserver: false };
        assert_eq!(choose(&named, &plain, false), Some(JobserverRequest::Pipes));
        let off = JobserverArgs { jobserver: None, no_jobserver: true };
        assert_eq!(choose(&off, &make, true), Some(JobserverRequest::None));
    }

    #[test]
    fn the_jobserver_of_the_caller_stays_with_it() {
        let left = |flags: &str| {
            let mut env = env(&[("MAKEFLAGS", flags), ("A", "b")]);
            leave_out_jobserver(&mut env);
            assert_eq!(env["A"], "b");
            env.remove("MAKEFLAGS")
        };
        assert_eq!(left(" -j4 --jobserver-auth=fifo:/tmp/GMfifo1"), None);
        assert_eq!(left(" -j --jobserver-auth=3,4 -- "), None);
        assert_eq!(left("kw -j4 --jobserver-auth=3,4").as_deref(), Some("kw"));
        assert_eq!(left(" -j4 --jobserver-fds=3,4 -- V=1").as_deref(), Some(" -- V=1"));
        assert_eq!(left("-j8").as_deref(), Some("-j8"), "it comes from none");
        assert_eq!(left("k").as_deref(), Some("k"));
    }

    proptest! {
        #[test]
        fn any_words_are_looked_at(command in prop::collection::vec("[-a-z=/ ]{0,9}|make|env|sh|-c|-j|é", 0..9)) {
            _ = jobs_of(&command, &BTreeMap::new());
        }
    }
}
