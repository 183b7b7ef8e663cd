//! Tips for a command line that cannot be parsed: what a person would answer who knows the other schedulers, too.

use crate::ui::error::CliError;
use crate::ui::message::message;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

/// Words that a tip repeats behind a command.
const WORDS_REPEATED_MAX: usize = 6;

/// Words that people type, from other tools or from habit, and the commands that do it with what they do.
type Habit = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const HABITS: &[Habit] = &[
    (&["cancel", "kill", "scancel", "qdel", "bkill", "abort"], &[("job cancel", "cancels a job")]),
    (
        &["ls", "list", "ps", "squeue", "qstat", "bjobs"],
        &[("jobs", "lists the jobs"), ("workers", "lists the workers")],
    ),
    (
        &["status", "info"],
        &[
            ("jobs", "lists the jobs"),
            ("server status", "tells of the server"),
            ("top", "shows the farm live"),
        ],
    ),
    (
        &["stats", "stat", "htop", "monitor", "watch"],
        &[("top", "shows the farm live"), ("queues", "lists what each queue uses and wants")],
    ),
    (&["sinfo", "nodes", "hosts", "pbsnodes", "bhosts"], &[("workers", "lists the workers")]),
    (&["sbatch", "qsub", "bsub"], &[("submit", "submits a job")]),
    (&["srun", "exec", "parallel"], &[("run", "runs a command and shows its output")]),
    (
        &["rerun", "restart", "requeue", "retry"],
        &[("job retry", "runs the failed and cancelled tasks of a job again")],
    ),
    (&["stop"], &[("job cancel", "cancels a job"), ("server stop", "stops the server")]),
    (&["start"], &[("run", "runs a command"), ("server start", "starts a server")]),
    (&["log", "tail", "output"], &[("logs", "shows the output of a task or of a job")]),
    (&["show", "describe", "inspect"], &[("job show", "shows a job"), ("worker show", "shows a worker")]),
    (&["sacct", "history"], &[("jobs", "lists the jobs, ended ones too")]),
    (&["explain", "reason"], &[("why", "explains why a task does not run")]),
    (&["dashboard", "web", "ui"], &[("board", "opens the board in a browser")]),
    (&["delete", "rm"], &[("job cancel", "cancels a job")]),
];

/// Words for what takes a thing away, and the commands that do it.
const REMOVALS: &[&str] = &["delete", "rm", "del"];
const REMOVERS: &[&str] = &["remove", "forget", "revoke", "cancel"];

/// Values of `--output` of other tools, and of `--show`.
const SHOWN: &[&str] = &["grouped", "prefixed", "failed", "none", "each"];

/// Programs in whose arguments `{}` has a meaning of its own.
const PROGRAMS_WITH_BRACES: [&str; 5] = ["find", "fd", "fdfind", "xargs", "parallel"];

/// Flags of other tools, the commands on which they are typed, and what does it here.
type FlagHabit = (&'static [&'static str], &'static str);

const FLAGS_OF_WORK: &[FlagHabit] = &[
    (&["-c", "--cores", "--ncpus", "--cpus-per-task"], "--cpus N books N cpus for each task"),
    (
        &["-j", "-P", "--jobs", "--parallel", "--max-procs"],
        "tasks run in parallel as far as their cpus fit; --max-running N lets at most N run at a time",
    ),
    (&["-n", "-N"], "--array 1-N runs the command N times; --nodes N runs it on N workers together"),
    (&["-m", "--mem"], "--memory SIZE books memory for each task, such as --memory 2GiB"),
    (&["-t", "--timeout"], "--time-limit TIME kills a task that runs longer, such as --time-limit 1h"),
    (&["-e"], "--env NAME=VALUE sets a variable, --env all passes on all of yours"),
    (&["-d", "-b", "--background"], "--detach submits the job and returns at once"),
    (&["-i", "-I"], "--each VALUE… runs the command once for each value, and {} stands for it"),
    (&["-w"], "--worker NAME runs the tasks on that worker, --wait of 'windlass submit' waits for the job"),
    (&["--group", "--line-buffer"], "--show says which output is shown, and how"),
    (&["--halt"], "--fail-fast finish starts no further task after a failure"),
    (
        &["--transferfile", "--tf", "--basefile", "--bf", "--return"],
        "--input PATH gives the tasks files, --outputs GLOB keeps files of theirs, and --fetch gets these",
    ),
];

/// The advice on a command line, if it is of a kind on which the parser says too little. `arguments` are those behind the
/// program's name.
pub fn advise(
    error: &clap::Error,
    command: &Command,
    arguments: impl Iterator<Item = OsString>,
) -> Option<CliError> {
    let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            of_command(&text(error, ContextKind::InvalidSubcommand)?, command, &words)
        }
        ErrorKind::UnknownArgument => of_flag(error, command, &words),
        ErrorKind::ValueValidation => of_number(error),
        ErrorKind::InvalidValue => of_format(error, &words),
        _ => None,
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// The advice on a command that does not exist.
fn of_command(typed: &str, command: &Command, words: &[String]) -> Option<CliError> {
    let place = words.iter().position(|word| word == typed)?;
    let parent = words[..place].last().filter(|word| find(command, word).is_some()).map(String::as_str);
    let mut found: Vec<(String, String)> = Vec::new();
    if let Some(parent) = parent.filter(|_| matches!(typed, "ls" | "list")) {
        let lists = [format!("{parent}s"), format!("{parent} list")];
        found.extend(
            lists
                .into_iter()
                .find(|list| find(command, list).is_some())
                .map(|list| (list, "lists them"))
                .map(own),
        );
    }
    if let Some(parent) = parent.filter(|_| REMOVALS.contains(&typed)) {
        let mut paths = REMOVERS.iter().map(|name| format!("{parent} {name}"));
        let known = paths.find(|path| find(command, path).is_some());
        found.extend(known.map(|path| own((path, "is the command"))));
    }
    if found.is_empty() && find(command, typed).is_some() {
        found.push((typed.to_owned(), "is the command".to_owned()));
    }
    if found.is_empty() {
        let known = HABITS.iter().find(|(habit, _)| habit.contains(&typed));
        found.extend(known.into_iter().flat_map(|(_, does)| does.iter().copied()).map(own));
    }
    if found.is_empty() {
        found = with_name(command, typed);
    }
    if found.is_empty() {
        return None;
    }
    let rest = repeated(&words[place + 1..]);
    let tips = found.iter().enumerate().map(|(n, (path, does))| {
        let takes_words = find(command, path).is_some_and(|found| found.get_positionals().next().is_some());
        let is_work = matches!(path.as_str(), "run" | "submit");
        let rest = if n == 0 && takes_words && !is_work { rest.as_str() } else { "" };
        format!("'windlass {path}{rest}' {does}")
    });
    let of = parent.map(|parent| format!("'windlass {parent}' has")).unwrap_or_else(|| "there is".to_owned());
    Some(CliError::Usage {
        message: format!("{of} no command '{typed}'"),
        hint: Some(tips.collect::<Vec<_>>().join(", ")),
    })
}

fn own((path, does): (impl Into<String>, &str)) -> (String, String) {
    (path.into(), does.to_owned())
}

/// The command with this path, such as `job cancel`.
fn find<'a>(command: &'a Command, path: &str) -> Option<&'a Command> {
    path.split(' ')
        .try_fold(command, |found, name| found.find_subcommand(name).filter(|found| !found.is_hide_set()))
}

/// The commands of commands with this name: `drain` is one of workers, and of schedulers.
fn with_name(command: &Command, name: &str) -> Vec<(String, String)> {
    let shown = command.get_subcommands().filter(|of| !of.is_hide_set());
    let named = shown.filter_map(|of| {
        let found = of.find_subcommand(name).filter(|found| !found.is_hide_set())?;
        let does = found.get_about().map(ToString::to_string).unwrap_or_default();
        Some((format!("{} {name}", of.get_name()), format!("({does})")))
    });
    named.collect()
}

/// The words behind a command as a tip repeats them, with a space before each; none if one of them is not plain.
fn repeated(words: &[String]) -> String {
    let is_plain = |word: &String| {
        !word.starts_with('-') && word.chars().all(|c| c.is_ascii_alphanumeric() || "._,-@".contains(c))
    };
    if words.len() > WORDS_REPEATED_MAX || !words.iter().all(is_plain) {
        return String::new();
    }
    words.iter().map(|word| format!(" {word}")).collect()
}

/// The advice on a flag that the command does not have, or on a number below 0, which looks like one.
fn of_flag(error: &clap::Error, command: &Command, words: &[String]) -> Option<CliError> {
    let flag = text(error, ContextKind::InvalidArg)?;
    let verb = words.iter().find(|word| find(command, word).is_some())?;
    let is_work = matches!(verb.as_str(), "run" | "submit");
    let known = FLAGS_OF_WORK.iter().find(|(flags, _)| is_work && flags.contains(&flag.as_str()));
    if let Some(value) = value_of_each(words, &flag).filter(|_| is_work && known.is_none()) {
        return Some(CliError::Usage {
            message: format!("unexpected argument '{value}' found"),
            hint: Some(format!("a value that begins with a dash is given as --each={value}")),
        });
    }
    if let Some(place) = words.iter().position(|word| is_below_zero(word, &flag)) {
        let of_flag = words[..place].last().filter(|before| before.starts_with('-'));
        // In a command of work it may be a flag of the program.
        if of_flag.is_some() || !is_work {
            let whose = of_flag.map(|of| format!(" for '{of}'")).unwrap_or_default();
            let takes = takes_at_least(command, words, place);
            let message = format!("invalid value '{}'{whose}: {takes}", words[place]);
            return Some(CliError::Usage { message, hint: None });
        }
    }
    let is_short = flag.starts_with('-') && !flag.starts_with("--");
    let hint = match known {
        Some((_, does)) => format!("{does}; 'windlass help {verb}' lists the flags"),
        // The parser's own tip would make the flag a program's name.
        None if is_short && is_work => format!(
            "'windlass help {verb}' lists the flags; those of your program go behind it: windlass {verb} -- PROGRAM {flag}"
        ),
        None if is_short => format!("'windlass help {verb}' lists the flags"),
        None => return None,
    };
    Some(CliError::Usage { message: format!("unexpected argument '{flag}' found"), hint: Some(hint) })
}

/// The word that the parser took for this flag, if it stands among the values of `--each`.
fn value_of_each<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let place = words.iter().position(|word| word.starts_with(flag) && !word.starts_with("--"))?;
    let last = words[..place].iter().rfind(|word| word.starts_with("--"))?;
    (last == "--each").then_some(words[place].as_str())
}

/// True of a number below 0 that the parser took for this flag: its first digit is the flag's letter.
fn is_below_zero(word: &str, flag: &str) -> bool {
    let number = word.strip_prefix('-').filter(|_| word.starts_with(flag));
    number.is_some_and(|number| number.parse::<f64>().is_ok())
}

/// What a number at this place must be that is below 0: what the parser says of 0, or else 0 or more.
fn takes_at_least(command: &Command, words: &[String], place: usize) -> String {
    let mut with_zero = words.to_vec();
    "0".clone_into(&mut with_zero[place]);
    let all = std::iter::once("windlass".to_owned()).chain(with_zero);
    let refused = command.clone().try_get_matches_from(all).err();
    let takes = refused.filter(|error| error.kind() == ErrorKind::ValueValidation).and_then(|error| {
        let said = std::error::Error::source(&error)?.to_string();
        Some(number_takes(&error, "").unwrap_or_else(|| said.replace("'0'", &format!("'{}'", words[place]))))
    });
    takes.unwrap_or_else(|| "it must be 0 or more".to_owned())
}

/// The advice on a value of `--output` that is meant for `--show` or for `--outputs`.
fn of_format(error: &clap::Error, words: &[String]) -> Option<CliError> {
    let (flag, value) = (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::InvalidValue)?);
    let is_on = |commands: &[&str]| words.iter().any(|word| commands.contains(&word.as_str()));
    let hint = if !flag.starts_with("--output") {
        return None;
    } else if SHOWN.contains(&value.as_str()) && is_on(&["run"]) {
        "--show grouped, prefixed, failed or none says which output of tasks is shown".to_owned()
    } else if value.contains(['*', '?', '[', '/', '.']) && is_on(&["run", "submit"]) {
        format!("--outputs '{value}' keeps such files of the tasks")
    } else {
        return None;
    };
    Some(CliError::Usage {
        message: format!(
            "invalid value '{value}' for '--output': it is the format of data, such as table or json"
        ),
        hint: Some(hint),
    })
}

/// The advice on a value that is not a number, or not in its range.
fn of_number(error: &clap::Error) -> Option<CliError> {
    let (flag, value) = (text(error, ContextKind::InvalidArg)?, text(error, ContextKind::InvalidValue)?);
    let takes = number_takes(error, &flag)?;
    Some(CliError::Usage { message: format!("invalid value '{value}' for '{flag}': {takes}"), hint: None })
}

/// What a flag takes whose value is not a number, or not in its range.
fn number_takes(error: &clap::Error, flag: &str) -> Option<String> {
    let source = std::error::Error::source(error)?;
    Some(match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            "it is too large or too small".to_owned()
        }
        Some(_) if flag.starts_with("--priority") => {
            "it takes a whole number, such as 10 or -10; higher goes first".to_owned()
        }
        Some(_) => "it takes a whole number".to_owned(),
        None => range_of(&source.to_string())?,
    })
}

/// The range that the parser says as `0 is not in 1..=100`, in words.
fn range_of(said: &str) -> Option<String> {
    let (_, range) = said.split_once(" is not in ")?;
    let (first, last) = range.split_once("..")?;
    let first: i128 = first.parse().ok()?;
    let last: i128 = match last.strip_prefix('=') {
        Some(last) => last.parse().ok()?,
        None => last.parse::<i128>().ok()? - 1,
    };
    let is_open = last >= i128::from(u32::MAX) - 1;
    Some(if is_open {
        format!("it must be {first} or more")
    } else {
        format!("it must be from {first} to {last}")
    })
}

/// Notes replacement strings that nothing replaces, because the command has no values.
pub fn note_replacements(command: &[String], replacements: &[&str]) {
    if let Some(string) = unused_replacement(command, replacements) {
        message!(
            "note: {string} stands for a value only with --each, --each-line or --array; the command gets it as it is"
        );
    }
}

/// The first argument that is a replacement string, unless the program is one that has such arguments itself.
fn unused_replacement<'a>(command: &'a [String], replacements: &[&str]) -> Option<&'a str> {
    let program = command.first()?.rsplit('/').next().unwrap_or_default();
    let arguments = command[1..].iter().map(String::as_str);
    let mut unused = arguments.filter(|argument| replacements.contains(argument));
    unused.next().filter(|_| !PROGRAMS_WITH_BRACES.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(line: &str) -> Option<(String, String)> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let all = std::iter::once(OsString::from("windlass")).chain(words.iter().cloned());
        let error = crate::command_line().try_get_matches_from(all).unwrap_err();
        let advice = advise(&error, &crate::command_line(), words.into_iter())?;
        Some((advice.message(), advice.hint().unwrap_or_default()))
    }

    fn hint(line: &str) -> String {
        advice(line).unwrap_or_else(|| panic!("no advice on {line}")).1
    }

    #[test]
    fn a_word_from_elsewhere_leads_to_the_command() {
        assert_eq!(hint("cancel 3"), "'windlass job cancel 3' cancels a job");
        assert_eq!(hint("-o json scancel 3 4-7"), "'windlass job cancel 3 4-7' cancels a job");
        assert!(hint("rerun last").starts_with("'windlass job retry last'"));
        assert!(hint("squeue -u ann").starts_with("'windlass jobs' lists"));
        assert!(hint("status").contains("'windlass server status'"));
        assert!(hint("sbatch job.sh").starts_with("'windlass submit' "));
        assert!(hint("hold 3").starts_with("'windlass job hold 3'"));
        assert!(hint("drain box").contains("'windlass worker drain box'"));
        assert!(hint("limit ls").starts_with("'windlass limit list'"));
        assert_eq!(hint("job ls"), "'windlass jobs' lists them");
        assert_eq!(hint("job logs 3"), "'windlass logs 3' is the command");
        assert!(advice("jbos").is_none(), "the parser knows a similar one");
        assert_eq!(hint("queue delete film"), "'windlass queue remove film' is the command");
        assert_eq!(hint("job rm 3"), "'windlass job cancel 3' is the command");
        assert_eq!(hint("rm 3"), "'windlass job cancel 3' cancels a job");
    }

    #[test]
    fn a_flag_from_elsewhere_leads_to_the_flag() {
        assert!(hint("run -c 2 -- make").starts_with("--cpus N"));
        assert!(hint("submit -j 4 -- make").contains("--max-running N"));
        assert!(hint("run -Z -- make").contains("windlass run -- PROGRAM -Z"));
        assert!(!hint("why -Z 3").contains("PROGRAM"));
        assert_eq!(
            hint("run --each a -rf -- ls {}"),
            "a value that begins with a dash is given as --each=-rf"
        );
        assert!(hint("run --output none -- make").starts_with("--show "));
        assert!(hint("submit --output *.o -- make").starts_with("--outputs '*.o' "));
        assert!(advice("jobs --output none").is_none());
        assert!(advice("run --cpu 2 -- make").is_none(), "the parser knows a similar one");
    }

    #[test]
    fn a_number_is_told_its_range() {
        let said = |line: &str| advice(line).unwrap_or_else(|| panic!("no advice on {line}")).0;
        assert_eq!(
            said("run --retries -1 -- true"),
            "invalid value '-1' for '--retries': it must be 0 or more"
        );
        assert_eq!(said("run --nodes -1 -- true"), "invalid value '-1' for '--nodes': it must be 1 or more");
        assert!(said("run --fail-fast -1 -- true").ends_with("a number such as 3, 5%, or kill:3"));
        assert_eq!(said("run --cpus -12 -- true"), "invalid value '-12' for '--cpus': it must be 0 or more");
        assert_eq!(said("logs 3 -n -1"), "invalid value '-1' for '-n': it must be 0 or more");
        assert_eq!(said("limit set maya -1"), "invalid value '-1': it must be 0 or more");
        assert!(said("run --priority high -- true").contains("a whole number, such as 10 or -10"));
        assert!(said("run --gpus two -- true").ends_with("it takes a whole number"));
        assert!(said("run --max-running 0 -- true").ends_with("it must be 1 or more"));
        assert_eq!(range_of("7 is not in 1..=5").unwrap(), "it must be from 1 to 5");
        assert!(advice("run --memory 4X -- true").is_none(), "it says what is wrong");
    }

    #[test]
    fn a_replacement_string_without_values_is_noted() {
        let unused = |line: &str| {
            let command: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            unused_replacement(&command, &["{}", "{.}"]).map(str::to_owned)
        };
        assert_eq!(unused("echo {}").as_deref(), Some("{}"));
        assert_eq!(unused("cc {.} -o x").as_deref(), Some("{.}"));
        for line in ["echo a{}b", "/usr/bin/find . -exec ls {} ;", "xargs -I {} echo {}", "true"] {
            assert_eq!(unused(line), None, "{line}");
        }
    }

    #[test]
    fn tips_name_commands_that_exist() {
        let command = crate::command_line();
        for (typed, tips) in HABITS {
            for (path, _) in *tips {
                assert!(find(&command, path).is_some(), "{path}");
            }
            for word in *typed {
                assert!(find(&command, word).is_none(), "'{word}' is a command");
            }
        }
    }
}
