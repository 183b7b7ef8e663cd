//! The release of GNU make on this machine. `keeper` needs it: releases before 4.4 end with an error where they find the
//! path of a named pipe in their flags. The question is asked in the background, because a program on a file server that
//! is gone never answers.

use crate::late::{NoAnswer, run_within};
use std::process::Command;
use std::time::Duration;

/// How long make may take to tell its release.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The release, as make tells it. `Some(None)` says that there is no make, and `None` that it cannot be found out, or is
/// another make than GNU's.
pub fn make_version() -> Option<Option<[u32; 2]>> {
    let mut command = Command::new("make");
    // This process may itself run under make, whose flags an earlier release may not understand.
    for flags in ["MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS"] {
        command.env_remove(flags);
    }
    match run_within(command.arg("--version"), ANSWER_MAX) {
        Ok(said) => parse(&String::from_utf8_lossy(&said)).map(Some),
        Err(NoAnswer::Start(e)) if e.kind() == std::io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

/// The release in a line such as `GNU Make 4.4.1`; `None` of another make.
fn parse(said: &str) -> Option<[u32; 2]> {
    let mut numbers = said.lines().next()?.strip_prefix("GNU Make ")?.split('.');
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u32>().ok()
    };
    Some([number(numbers.next()?)?, numbers.next().and_then(number).unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_in_the_first_line() {
        assert_eq!(parse("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n"), Some([4, 3]));
        assert_eq!(parse("GNU Make 4.4.1\n"), Some([4, 4]));
        assert_eq!([parse("GNU Make 5"), parse("GNU Make 4.10rc1\n")], [Some([5, 0]), Some([4, 10])]);
        assert_eq!([parse(""), parse("bmake 2020\nGNU Make 4.3\n"), parse("GNU Make x")], [None; 3]);
    }
}
