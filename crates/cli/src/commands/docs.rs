//! Man pages, made from the command line's own definition.

use crate::ui::error::CliError;
use crate::ui::message::message;
use anyhow::Context as _;
use clap::{Args, Command};
use std::path::PathBuf;

/// Writes a man page for each command.
#[derive(Args, Debug)]
#[command(after_help = "Example: windlass man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the pages; created if needed
    dir: PathBuf,
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
}
