//! The name of a job that was given none: its program, or what a shell runs as a script.

/// Characters of the name of a program. A whole shell line may stand in its place.
const PROGRAM_CHARS_MAX: usize = 60;

/// Characters of a name that is made from a script.
const NAME_CHARS_MAX: usize = 30;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// What a script begins with before it does its work.
const PREPARATIONS: [&str; 11] =
    ["set", "cd", "export", "umask", "ulimit", "source", ".", "trap", "module", "mkdir", ":"];

/// Words before the program of a command that say how it is run.
const MODIFIERS: [&str; 5] = ["exec", "time", "nohup", "env", "{"];

/// The name of a job that runs this command.
pub fn name_of(command: &[String]) -> String {
    let Some(program) = command.first().map(|program| base(program)) else { return String::new() };
    let named = if SHELLS.contains(&program) { of_shell(&command[1..]) } else { String::new() };
    if named.is_empty() { program.chars().take(PROGRAM_CHARS_MAX).collect() } else { named }
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of `sh -c SCRIPT` and of `sh FILE`; empty if there is neither. Flags may stand before, as in `bash -euo
/// pipefail -c SCRIPT`.
fn of_shell(arguments: &[String]) -> String {
    let Some(place) = arguments.iter().position(|argument| !is_option(argument)) else {
        return String::new();
    };
    // Behind a file stand arguments of its own, which may look like the flag.
    let is_script = arguments[..place].iter().any(|argument| is_command_flag(argument));
    match is_script {
        true => of_script(&arguments[place]),
        false => base(&arguments[place]).chars().take(NAME_CHARS_MAX).collect(),
    }
}

fn is_option(argument: &str) -> bool {
    argument.starts_with(['-', '+']) || argument == "pipefail"
}

/// True of `-c` and of flags with it, such as `-ec`.
fn is_command_flag(argument: &str) -> bool {
    argument
        .strip_prefix('-')
        .is_some_and(|flags| flags.contains('c') && flags.chars().all(|flag| flag.is_ascii_alphabetic()))
}

/// The program of the first command that does work; empty if there is none. Its arguments are left out: others may see
/// the name of a job, and not what it runs.
fn of_script(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let commands = lines.flat_map(|line| line.split([';', '|', '&', '<', '>']));
    let mut first = String::new();
    for command in commands {
        match program_of(command) {
            None => {}
            Some(program) if !PREPARATIONS.contains(&program) => return fitted(program),
            Some(program) if first.is_empty() => first = fitted(program),
            Some(_) => {}
        }
    }
    first
}

/// The program of a command, behind assignments and what says how it is run.
fn program_of(command: &str) -> Option<&str> {
    let is_before = |word: &&str| MODIFIERS.contains(word) || is_assignment(word);
    command.split_whitespace().find(|word| !is_before(word))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// A program without its directory and without what only the shell reads.
fn fitted(program: &str) -> String {
    let is_shown = |c: &char| !c.is_control() && !"'\"\\`()".contains(*c);
    base(program).chars().filter(is_shown).take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(words: &[&str]) -> String {
        let command: Vec<String> = words.iter().map(ToString::to_string).collect();
        name_of(&command)
    }

    #[test]
    fn a_program_names_its_job() {
        assert_eq!(of(&["/usr/bin/cc", "-c", "a.c"]), "cc");
        assert_eq!(of(&["bash"]), "bash");
        assert_eq!(of(&["bash", "-x", "/films/build.sh", "-c", "x"]), "build.sh");
        assert_eq!(of(&["python3", "-c", "print(1)"]), "python3");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn a_script_names_its_job_by_its_first_program() {
        assert_eq!(of(&["sh", "-c", "cc -O2 a.c"]), "cc");
        assert_eq!(of(&["/bin/bash", "-euo", "pipefail", "-c", "make -j4 && make install"]), "make");
        assert_eq!(of(&["sh", "-ec", "# builds\nset -u\ncd src; CC=clang exec /opt/bin/ninja all"]), "ninja");
        assert_eq!(
            of(&["sh", "-c", "echo 'hello there' >&2; exit 3"]),
            "echo",
            "others do not see what it says"
        );
        assert_eq!(of(&["sh", "-c", "sort < a | uniq -c"]), "sort");
        assert_eq!(of(&["sh", "-c", "cd /films"]), "cd");
        assert_eq!(of(&["sh", "-c", " ;; "]), "sh");
    }

    proptest! {
        /// The properties of a name: it is short, it is one line, and it is never empty where there is a program.
        #[test]
        fn names_of_scripts_are_short_and_not_empty(script in "(?s).{0,80}", words in "[a-z ./;|&='\"$\n]{0,80}") {
            for script in [script, words] {
                let name = name_of(&["sh".to_owned(), "-c".to_owned(), script]);
                prop_assert!(!name.is_empty() && name.chars().count() <= NAME_CHARS_MAX, "{:?}", name);
                prop_assert!(!name.contains(char::is_control), "{:?}", name);
            }
        }
    }
}
