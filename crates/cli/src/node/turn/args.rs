//! The flags of `windlass turn`, also where it is a wrapper without arguments of its own.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_api::quantity::{parse_cpus, parse_size};

/// The name under which this program is a wrapper, for settings that hold the path of a program alone.
pub const NAME: &str = "windlass-turn";
/// The variable with further flags of a wrapper of that name.
pub const FLAGS_VARIABLE: &str = "WINDLASS_TURN_ARGS";

/// Waits for a command's turn on this machine, and runs it in its place.
#[derive(Args, Clone, Debug, Default)]
#[command(
    after_help = "The command has this terminal, these descriptors and this environment. Its exit code is that of 'turn'.
A launcher of compilers: CMAKE_C_COMPILER_LAUNCHER='windlass;turn;--memory;auto;--'. Where a setting holds a path
alone, as RUSTC_WRAPPER does, it names a link to windlass that is called windlass-turn. 'windlass turn --install DIR'
makes it. It is 'windlass turn --memory auto --', with further flags from WINDLASS_TURN_ARGS."
)]
pub struct TurnArgs {
    /// Memory to book: 500M, 2GiB, or auto, which is what earlier commands like it needed [default: none]
    #[arg(long, value_name = "SIZE|auto", overrides_with = "memory")]
    pub memory: Option<TurnMemory>,
    /// Cpus to book [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_cpus, overrides_with = "cpus")]
    pub cpus: Option<f64>,
    /// Queue in which it waits [default: your own]
    #[arg(long, value_name = "NAME", overrides_with = "queue")]
    pub queue: Option<String>,
    /// Hold one of this limit while it runs, such as a licence; may be repeated
    #[arg(long, value_name = "NAME")]
    pub limit: Vec<String>,
    /// Fail where it gets no turn, instead of running at once
    #[arg(long)]
    pub strict: bool,
    /// Make a link named windlass-turn in this directory, and run nothing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub install: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required_unless_present = "install", trailing_var_arg = true, num_args = 1.., value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The value of `--memory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnMemory {
    /// What earlier commands of its shape needed.
    Auto,
    /// A number of bytes.
    Size(u64),
}

impl FromStr for TurnMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(TurnMemory::Auto),
            _ => parse_size(text).map(TurnMemory::Size).map_err(|bad| format!("{bad} (or auto)")),
        }
    }
}

/// The words of a wrapper without arguments of its own, from its name on.
pub fn wrapper_line(flags: &str, command: Vec<OsString>) -> Vec<OsString> {
    let own = [NAME, "--memory", "auto"].into_iter().chain(flags.split_whitespace()).chain(["--"]);
    own.map(OsString::from).chain(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        turn: TurnArgs,
    }

    fn parse(words: Vec<OsString>) -> TurnArgs {
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).turn
    }

    #[test]
    fn a_wrapper_has_the_flags_of_its_variable_and_the_words_of_the_command() {
        let command = ["rustc", "--crate-name", "w", "--memory", "1"].map(OsString::from).to_vec();
        let plain = parse(wrapper_line("", command.clone()));
        assert_eq!((plain.memory, plain.cpus, plain.strict), (Some(TurnMemory::Auto), None, false));
        assert_eq!(plain.command, command);
        let flags = "--memory 2GiB  --cpus 2 --queue film --cpus 0.5 --limit a --limit b --strict";
        let set = parse(wrapper_line(flags, command.clone()));
        assert_eq!((set.memory, set.cpus), (Some(TurnMemory::Size(2 << 30)), Some(0.5)));
        assert_eq!((set.queue.as_deref(), set.strict), (Some("film"), true));
        assert_eq!((set.limit, set.command), (vec!["a".to_owned(), "b".to_owned()], command));
    }

    #[test]
    fn what_contradicts_is_refused() {
        let line = |text: &str| Line::try_parse_from(text.split_whitespace());
        assert!(line("x --memory some -- true").is_err());
        assert!(line("x --install d true").is_err());
        assert!(line("x").is_err() && line("x --strict").is_err());
        assert!(line("x --install d").is_ok() && line("x true --memory").is_ok());
    }
}
