//! How a task finds its jobserver: by the path of a named pipe, or by two descriptors that it inherits. Pure.
//!
//! make 4.4 and later, ninja 1.13 and later, and cargo understand the path, and it works in every process below the
//! task. Earlier releases of make end with an error when they meet it, also where another program started them, such as
//! a build script of cargo. They take two descriptors, and so do all later ones; ninja does not.

use crate::process::JOBSERVER_FDS;
use crate::protocol::JobserverForm;

/// The first release of GNU make that understands the path of a pipe.
pub const MAKE_WITH_PATH: [u32; 2] = [4, 4];

/// Programs that start another one, which their own arguments name.
const PREFIXES: [&str; 7] = ["env", "nice", "time", "ionice", "stdbuf", "timeout", "setsid"];
/// Shells whose script may be one plain command.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "ksh"];

/// Whether a task gets the path of the pipe; two descriptors if not. `make_takes_path` says that no make on this worker
/// fails on a path.
pub fn takes_path(form: JobserverForm, command: &[String], make_takes_path: bool) -> bool {
    match form {
        JobserverForm::Fifo => true,
        JobserverForm::Pipes => false,
        JobserverForm::Auto => make_takes_path || is_ninja(command),
    }
}

/// The value of `MAKEFLAGS`. The space in front says that no flags of one letter come first.
pub fn flags(processes: u32, path: Option<&str>) -> String {
    let [read, write] = JOBSERVER_FDS;
    match path {
        Some(path) => format!(" -j{processes} --jobserver-auth=fifo:{path}"),
        None => format!(" -j{processes} --jobserver-auth={read},{write}"),
    }
}

/// Whether all clients read a path as it is. They split the flags at spaces, and make takes `$` and `\` for its own.
pub fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@:,=%".contains(c) || !c.is_ascii())
        && !path.contains(char::is_whitespace)
}

/// Whether the command is ninja, or a program that starts it in any case.
fn is_ninja(command: &[String]) -> bool {
    let script = command.first().filter(|first| SHELLS.contains(&base(first))).and_then(|_| {
        let at = command.iter().position(|word| word == "-c")?;
        command.get(at + 1)
    });
    let words: Vec<&str> = match script {
        Some(script) => script.split_whitespace().collect(),
        None => command.iter().map(String::as_str).collect(),
    };
    let is_option = |word: &str| {
        word.starts_with('-') || word.contains('=') || word.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut rest = words.iter().skip_while(|word| PREFIXES.contains(&base(word)) || is_option(word));
    match rest.next().map(|word| base(word)) {
        Some("ninja" | "ninja-build" | "samu") => true,
        Some("meson") => rest.any(|word| *word == "compile"),
        _ => false,
    }
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(form: JobserverForm, command: &str, make_takes_path: bool) -> bool {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        takes_path(form, &command, make_takes_path)
    }

    #[test]
    fn an_old_make_never_meets_a_path_unless_it_was_asked_for() {
        use JobserverForm::{Auto, Fifo, Pipes};
        for command in ["make", "cargo build", "sh -c ./build", "cmake --build ."] {
            assert!(!takes(Auto, command, false) && takes(Auto, command, true), "{command}");
        }
        assert!(takes(Fifo, "make", false) && !takes(Pipes, "ninja", true));
    }

    #[test]
    fn ninja_is_found_behind_what_starts_it() {
        let auto = JobserverForm::Auto;
        let all =
            ["ninja", "/usr/bin/ninja -C out", "env A=1 nice -n 5 samu", "timeout 10 meson compile -C b"];
        for command in all {
            assert!(takes(auto, command, false), "{command}");
        }
        let script = ["bash", "-e", "-c", "time ninja all"].map(str::to_owned);
        assert!(takes_path(auto, &script, false));
        for command in ["meson setup b", "make ninja", "env", "sh", "sh -c"] {
            assert!(!takes(auto, command, false), "{command}");
        }
    }

    #[test]
    fn the_flags_are_those_that_clients_read() {
        assert_eq!(flags(16, Some("/w/1.0.1")), " -j16 --jobserver-auth=fifo:/w/1.0.1");
        assert_eq!(flags(2, None), " -j2 --jobserver-auth=40,41");
        assert!(is_plain("/var/lib/windlass-x/jobservers/1.0.1"));
        for odd in ["/a b", "/a$b", "/a\\b", "/a\nb", "/a'b", "/a\u{a0}b"] {
            assert!(!is_plain(odd), "{odd:?}");
        }
    }
}
