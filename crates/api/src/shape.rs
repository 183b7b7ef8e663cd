//! The shape of a command: the command without what differs from task to task. Steps of one queue, name and shape have
//! one task profile, by which memory and run time are predicted.
//!
//! Word by word, joined by spaces:
//! - The program is the last part of its path. After an interpreter (`sh`, `python3`, …) so is the script.
//! - Replacement strings and references (`{}`, `{/.}`, `{{Task.Param.Frame}}`) become `*`.
//! - A path becomes its last part, and a file's name `*` with its extension: `src/a.c` becomes `*.c`.
//! - Runs of digits become `#`.
//! - An option keeps its name, with a single digit in it, and its value is treated as above: `-O2` stays, `-j16`
//!   becomes `-j#`, `--out=/tmp/x7.png` becomes `--out=*.png`, `-I/usr/include` becomes `-I*`.

use std::iter::Peekable;
use std::str::Chars;

/// Most bytes of a shape.
const BYTES_MAX: usize = 200;
/// Most letters and digits of a file's extension.
const ENDING_MAX: usize = 8;
/// Programs whose first argument that is not an option is the script that they run.
const INTERPRETERS: [&str; 13] =
    ["bash", "busybox", "dash", "java", "julia", "lua", "node", "perl", "php", "python", "ruby", "sh", "zsh"];

/// The shape of a command, at most [`BYTES_MAX`] bytes. A longer one is cut, and ends in `~` and the FNV-1a hash of the
/// whole shape in hex.
pub fn shape_of(command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let program = last_part(program);
    let mut script_to_come =
        INTERPRETERS.contains(&program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
    let mut shape = program.to_owned();
    for argument in arguments {
        // One argument may be a script of several words.
        for word in argument.split_whitespace() {
            shape.push(' ');
            if word.starts_with('-') {
                push_option(&mut shape, word);
            } else if std::mem::take(&mut script_to_come) {
                shape.push_str(last_part(word));
            } else {
                push_value(&mut shape, word);
            }
        }
    }
    bounded(shape)
}

fn bounded(mut shape: String) -> String {
    if shape.len() <= BYTES_MAX {
        return shape;
    }
    let hash = format!("~{:016x}", fnv1a(shape.as_bytes()));
    let mut end = BYTES_MAX - hash.len();
    while !shape.is_char_boundary(end) {
        end -= 1;
    }
    shape.truncate(end);
    shape + &hash
}

/// The hash of Fowler, Noll and Vo in its variant 1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

fn push_option(shape: &mut String, word: &str) {
    let glued = !word.starts_with("--") && word.contains(['/', '.', '{']);
    let name_end = match word.find('=') {
        Some(place) => place + 1,
        // An option of one letter, followed by its value.
        None if glued => word.char_indices().nth(2).map_or(word.len(), |(place, _)| place),
        None => word.len(),
    };
    let (name, value) = word.split_at(name_end);
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c.is_ascii_digit() && skip_digits(&mut chars) > 0 {
            true => shape.push('#'),
            false => shape.push(c),
        }
    }
    push_value(shape, value);
}

/// Skips the digits that come next, and returns how many they were.
fn skip_digits(chars: &mut Peekable<Chars<'_>>) -> usize {
    std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)).count()
}

fn push_value(shape: &mut String, value: &str) {
    let filled = without_references(value);
    let is_path = filled.contains('/');
    let name = filled.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && is_ending(ending)) {
        Some((_, ending)) => {
            shape.push_str("*.");
            shape.push_str(ending);
        }
        None if is_path => shape.push('*'),
        None => {
            let mut chars = name.chars().peekable();
            while let Some(c) = chars.next() {
                if c.is_ascii_digit() {
                    skip_digits(&mut chars);
                }
                shape.push(if c.is_ascii_digit() { '#' } else { c });
            }
        }
    }
}

/// True for what looks like a file's extension, and not like the fraction of a number.
fn is_ending(text: &str) -> bool {
    text.len() <= ENDING_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The text with `*` instead of each replacement string and reference.
fn without_references(text: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        filled.push_str(before);
        let end = match from.starts_with("{{") {
            true => from.find("}}").map(|end| end + 2),
            false => {
                ["{}", "{.}", "{/}", "{//}", "{/.}"].iter().find(|r| from.starts_with(**r)).map(|r| r.len())
            }
        };
        filled.push(if end.is_some() { '*' } else { '{' });
        rest = &from[end.unwrap_or(1)..];
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        shape_of(&words)
    }

    #[test]
    fn what_differs_from_task_to_task_is_left_out() {
        for (line, expected) in [
            ("/usr/bin/gcc -O2 -c a.c -o a.o", "gcc -O2 -c *.c -o *.o"),
            ("gcc -O3 -c a.c -o a.o", "gcc -O3 -c *.c -o *.o"),
            ("cc -c {} -o {.}.o -I/usr/include -Isrc/x", "cc -c * -o *.o -I* -I*"),
            ("cc -std=c++17 -oa.o -j16 -j8", "cc -std=c++# -o*.o -j# -j8"),
            ("render --frame 17 --out=/films/a/f0017.exr", "render --frame # --out=*.exr"),
            ("render -s {{Task.Param.Frame}} -f{{Task.Param.Frame}} x{/.}y", "render -s * -f* x*y"),
            ("python3.11 /opt/train.py --lr 0.5 data1.csv", "python3.11 train.py --lr #.# *.csv"),
            ("sh -c gcc -c b.c", "sh -c gcc -c *.c"),
            ("cargo test --package core", "cargo test --package core"),
            ("build /nix/store/0abc-foo-1.2.drv /data/", "build *.drv *"),
            ("tool {3} {x 7z", "tool {#} {x #z"),
            ("./a/b/", "b"),
            ("/", "/"),
        ] {
            assert_eq!(shape(line), expected, "{line}");
        }
        assert_eq!(shape_of(&[]), "");
        assert_eq!(shape("sh x.sh a"), shape_of(&["sh".into(), "x.sh  a".into()]), "words in one argument");
    }

    #[test]
    fn alike_are_alike_and_others_are_not() {
        let same = |a, b| shape(a) == shape(b);
        assert!(same("gcc -O2 -c a.c -o a.o", "gcc -O2 -c b.c -o b.o"));
        assert!(!same("gcc -O2 -c a.c -o a.o", "gcc -O3 -c a.c -o a.o"));
        assert!(!same("bash build.sh", "bash test.sh"));
        assert!(!same("gcc -c a.c", "gcc -c a.cpp"));
    }

    #[test]
    fn a_long_one_is_told_apart_by_its_hash() {
        let long = |last: &str| shape(&format!("tool {} {last}", "ä ".repeat(300).trim()));
        let (a, b) = (long("x"), long("y"));
        assert_eq!(a.rsplit_once('~').unwrap().0, b.rsplit_once('~').unwrap().0);
        assert!(a != b && a.len() <= BYTES_MAX && a.len() > BYTES_MAX - 4);
        assert_eq!(shape(&"x".repeat(BYTES_MAX)), "x".repeat(BYTES_MAX));
        // The published value of the hash, so that stored shapes stay what they are.
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn any_command_has_a_bounded_shape(command in prop::collection::vec("[ -~äß\n{}./0-9=-]{0,40}", 0..12)) {
            let once = shape_of(&command);
            prop_assert!(once.len() <= BYTES_MAX);
            prop_assert_eq!(once, shape_of(&command));
        }
    }
}
