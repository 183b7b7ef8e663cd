//! Completions and man pages, both made from the command line's own definition.

use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::output::print_text;
use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(
    after_help = "Example: windlass completion bash > ~/.local/share/bash-completion/completions/windlass"
)]
pub struct CompletionArgs {
    /// Shell to generate completions for
    shell: Shell,
}

/// Writes a man page for each command.
#[derive(Args, Debug)]
#[command(after_help = "Example: windlass man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the pages; created if needed
    dir: PathBuf,
}

/// Runs the command `windlass completion`.
pub fn completion(args: &CompletionArgs, mut command: Command) -> Result<(), CliError> {
    // Generated in memory: the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "windlass", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

/// Runs the command `windlass man`.
pub fn man(args: &ManArgs, command: Command) -> Result<(), CliError> {
    let dir = args.dir.display();
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot create {dir}"))?;
    clap_mangen::generate_to(command, &args.dir).with_context(|| format!("cannot write to {dir}"))?;
    message!("man pages are in {dir}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        crate::Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_a_help_text() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help text", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&crate::Cli::command());
    }

    #[test]
    fn completions_exist_for_every_shell() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::Cli::command(), "windlass", &mut script);
            assert!(String::from_utf8(script).unwrap().contains("submit"));
        }
    }
}
