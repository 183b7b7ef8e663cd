//! Scripted transcripts against their golden files; `UPDATE_EXPECT=1` writes them again.

use std::fs;
use std::path::{Path, PathBuf};
use windlass_sim::script::run_script;

fn scripts() -> std::io::Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The first line in which two texts differ, for a message that says where to look.
fn first_difference(expected: &str, actual: &str) -> String {
    let pairs = expected.lines().map(Some).chain([None]).zip(actual.lines().map(Some).chain([None]));
    let different = pairs.enumerate().find(|(_, (expected, actual))| expected != actual);
    different.map_or_else(
        || "one is longer".to_owned(),
        |(line, (expected, actual))| {
            format!("line {}:\n  expected {expected:?}\n  actual   {actual:?}", line + 1)
        },
    )
}

#[test]
fn scripts_play_as_written() -> Result<(), Box<dyn std::error::Error>> {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    let paths = scripts()?;
    assert!(paths.len() >= 12, "the scripts are gone");
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let expected = fs::read_to_string(&path)?;
        let actual = run_script(&expected).map_err(|error| format!("{name}: {error}"))?;
        if update {
            fs::write(&path, actual)?;
        } else if actual != expected {
            wrong.push(format!("{name}, {}\n--- actual ---\n{actual}", first_difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_line_that_is_no_command_is_named() {
    for (script, message) in [
        ("> fly", "line 1: 'fly' is not a command"),
        ("\n> submit tasks=many", "line 2: tasks: 'many' is not a number"),
        ("> advance soon", "line 1: 'soon' is not a time; one looks like 10ms, 5s or 2m"),
        ("> finish 1", "line 1: '1' is not a task id; one looks like 12.3 (job 12, task 3)"),
    ] {
        let error = run_script(script).map_err(|error| error.to_string());
        assert_eq!(error, Err(message.to_owned()));
    }
}
