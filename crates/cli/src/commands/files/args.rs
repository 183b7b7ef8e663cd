//! Flags for files of tasks, and the fields of a job in a file that mean the same.

use crate::system;
use crate::ui::error::CliError;
use crate::ui::message::message;
use clap::{Args, ValueHint};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use windlass_api::StepFiles;
use windlass_cas::tree::PathGlobs;

/// The files of the tasks of a command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub struct FileArgs {
    /// Give each task this file or directory, or what this pattern matches, in a new directory of its own, in which it then
    /// runs; NAME is the path there [default: the path below the current directory]; may be repeated
    #[arg(
        long, alias = "inputs", value_name = "PATH[=NAME]", value_hint = ValueHint::AnyPath,
        conflicts_with_all = ["file", "nodes"]
    )]
    pub input: Vec<String>,
    /// Take also what .gitignore, .ignore and .windlassignore leave out
    #[arg(long, requires = "input")]
    pub no_ignore: bool,
    /// Keep what matches this pattern in the task's own directory when it ends, for 'windlass job fetch'; may be repeated
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["file", "nodes"])]
    pub outputs: Vec<String>,
    /// Give each task this file as its standard input; - is that of this command
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "nodes"])]
    pub stdin: Option<String>,
}

/// How outputs are written to a directory.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PutArgs {
    /// Put the outputs of all tasks into DIR itself, and not those of each into a directory there
    #[arg(long)]
    pub flat: bool,
    /// Overwrite files that are there with other content
    #[arg(long)]
    pub force: bool,
}

/// Where `run` writes the outputs of its tasks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub struct FetchArgs {
    /// Get the outputs of each task as soon as it has ended, into DIR [default: the current directory]; of several tasks
    /// each has a directory there
    #[arg(
        long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = ".",
        value_hint = ValueHint::DirPath, conflicts_with = "detach"
    )]
    pub fetch: Option<PathBuf>,
    #[command(flatten)]
    pub put: PutArgs,
}

/// Files of this machine for one step, which are uploaded before the job is submitted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepInputs {
    /// The step's place in the job.
    #[serde(skip)]
    pub step: usize,
    /// `PATH[=NAME]`, below the current directory.
    pub inputs: Vec<String>,
    /// Whether ignore files count for nothing.
    pub no_ignore: bool,
    /// The file with the standard input of each task; `-` is that of this command.
    pub stdin_file: Option<String>,
}

/// The names of its fields in a job file, beside those that the server knows.
pub const LOCAL_FIELDS: [&str; 3] = ["inputs", "no_ignore", "stdin_file"];

impl FileArgs {
    /// What the step says of files before anything is uploaded; `None` if its tasks have none.
    pub fn of_step(&self) -> Result<Option<StepFiles>, CliError> {
        if self.input.is_empty() && self.outputs.is_empty() && self.stdin.is_none() {
            return Ok(None);
        }
        PathGlobs::parse(&self.outputs).map_err(|error| CliError::usage(format!("--outputs: {error}")))?;
        Ok(Some(StepFiles { outputs: self.outputs.clone(), ..StepFiles::default() }))
    }

    /// What is to be uploaded for the one step of a command.
    pub fn inputs(&self) -> Option<StepInputs> {
        if self.input.is_empty() && self.stdin.is_none() {
            return None;
        }
        let stdin_file = self.stdin.clone();
        Some(StepInputs { step: 0, inputs: self.input.clone(), no_ignore: self.no_ignore, stdin_file })
    }
}

impl FetchArgs {
    /// The directory, which is created here: a mistake in its name is told before anything runs.
    pub fn directory(&self) -> Result<Option<PathBuf>, CliError> {
        let Some(dir) = &self.fetch else {
            let PutArgs { flat, force } = self.put;
            return match flat || force {
                true => {
                    Err(CliError::usage("--flat and --force say how --fetch writes outputs: give it, too"))
                }
                false => Ok(None),
            };
        };
        std::fs::create_dir_all(dir).map_err(|error| CliError::Usage {
            message: format!("--fetch: cannot use the directory {}: {error}", dir.display()),
            hint: Some(
                "name a directory that you may write to; it is created if it does not exist".to_owned(),
            ),
        })?;
        Ok(Some(dir.clone()))
    }
}

/// The working directory of tasks that have files: a path inside their own directory.
pub fn directory_inside(chosen: Option<&Path>) -> Result<String, CliError> {
    let Some(path) = chosen else { return Ok(".".to_owned()) };
    match path.to_str() {
        Some(text) if !path.has_root() => Ok(text.to_owned()),
        Some(text) => Err(CliError::Usage {
            message: format!("--cwd {text}: a task with files runs in a directory of its own"),
            hint: Some("give a path inside it, such as --cwd src, or leave --cwd out".to_owned()),
        }),
        None => Err(CliError::usage(format!("the working directory {} is not valid UTF-8", path.display()))),
    }
}

/// Says once that standard input is not passed on.
///
/// It is not passed on by itself, for three reasons. A task with a standard input has files, and so runs in another
/// directory than without. A loop of a shell whose list is on standard input would lose the rest of it, as with ssh. And
/// where the other end of a pipe stays open, as under some services, the upload would never end.
#[derive(Debug)]
pub struct UnreadInput {
    may_tell: bool,
}

impl UnreadInput {
    /// Nothing is told if `is_read`, because this command reads its standard input itself, and to those who want no
    /// messages.
    pub fn new(is_read: bool, is_quiet: bool) -> UnreadInput {
        UnreadInput { may_tell: !is_read && !is_quiet }
    }

    /// Tells it if there is something to read now. What is before this command in a pipe may be slower than it, so this is
    /// called again at the end.
    pub fn tell(&mut self) {
        if self.may_tell && system::has_input() {
            self.may_tell = false;
            message!(
                "note: tasks do not get this standard input; '--stdin -' passes it on, and '</dev/null' ends this note"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_tasks_with_files_is_inside_their_own() {
        let inside = |chosen: Option<&str>| directory_inside(chosen.map(Path::new));
        assert_eq!(inside(None).unwrap(), ".");
        assert_eq!(inside(Some("src/a")).unwrap(), "src/a");
        let refused = inside(Some("/srv")).unwrap_err();
        assert!(refused.exit_code() == 2 && refused.hint().unwrap().contains("--cwd src"), "{refused}");
    }

    #[test]
    fn flags_are_the_files_of_the_step() {
        assert_eq!(FileArgs::default().of_step().unwrap(), None);
        assert_eq!(FileArgs::default().inputs(), None);
        let args = FileArgs { outputs: vec!["*.o".to_owned()], ..FileArgs::default() };
        assert_eq!(args.of_step().unwrap().unwrap().outputs, ["*.o"]);
        assert_eq!(args.inputs(), None, "nothing is uploaded");
        let args = FileArgs { stdin: Some("-".to_owned()), ..FileArgs::default() };
        assert_eq!(args.of_step().unwrap(), Some(StepFiles::default()));
        assert_eq!(args.inputs().unwrap().stdin_file.as_deref(), Some("-"));
        let args = FileArgs { outputs: vec!["../*".to_owned()], ..FileArgs::default() };
        let refused = args.of_step().unwrap_err();
        assert!(refused.message().contains("'..' would lead out"), "{refused}");
    }
}
