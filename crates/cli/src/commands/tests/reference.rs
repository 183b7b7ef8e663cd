//! The manual's pages of commands and of a worker's settings, made from the command line's definition. The tests compare
//! them with the committed pages; with `UPDATE_EXPECT=1` they write them.

use clap::{Arg, ArgAction, Command};
use std::fmt::Write as _;
use std::path::Path;

const MADE: &str =
    "<!-- Made from the program by a test: see CONTRIBUTING.md, Golden files. Do not edit. -->\n";

/// Compares a page with the committed one, or writes it.
fn compare(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/src/reference/{name} is old: run the tests with UPDATE_EXPECT=1");
}

/// A help text as one cell of a table. Clap's own text has neither markup nor links.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
}

/// The flags of a command that it does not share with all others, the positional arguments first.
fn arguments(command: &Command) -> Vec<&Arg> {
    let own = command.get_arguments().filter(|arg| {
        !arg.is_hide_set() && !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str())
    });
    let (positional, flags): (Vec<&Arg>, Vec<&Arg>) = own.partition(|arg| arg.is_positional());
    positional.into_iter().chain(flags).collect()
}

/// `--flag VALUE`, as it is written on a command line.
fn spelled(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let dots = if matches!(arg.get_action(), ArgAction::Append) && arg.is_positional() { "…" } else { "" };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    match (flags.is_empty(), takes) {
        (true, _) => format!("{}{dots}", values.join(" ")),
        (false, true) => format!("{} {}", flags.join(", "), values.join(" ")),
        (false, false) => flags.join(", "),
    }
}

/// The help of an argument with its default and its choices, which clap keeps apart.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(|help| cell(&help.to_string())).unwrap_or_default();
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
        _ = write!(text, " [default: {}]", defaults.join(" "));
    }
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect();
    if !choices.is_empty() && !arg.is_hide_possible_values_set() && arg.get_action().takes_values() {
        _ = write!(text, " [one of: {}]", choices.join(", "));
    }
    text
}

fn table(page: &mut String, arguments: &[&Arg]) {
    let has_env = arguments.iter().any(|arg| arg.get_env().is_some());
    page.push_str(if has_env {
        "\n| flag | variable | meaning |\n|---|---|---|\n"
    } else {
        "\n| flag | meaning |\n|---|---|\n"
    });
    for arg in arguments {
        let env = arg.get_env().map(|env| format!("`{}`", env.to_string_lossy())).unwrap_or_default();
        let spelled = spelled(arg).replace('|', "\\|");
        match has_env {
            true => _ = writeln!(page, "| `{spelled}` | {env} | {} |", meaning(arg)),
            false => _ = writeln!(page, "| `{spelled}` | {} |", meaning(arg)),
        }
    }
}

fn section(page: &mut String, path: &str, command: &Command) {
    let about = command.get_about().map(|about| cell(&about.to_string())).unwrap_or_default();
    _ = write!(page, "\n## {path}\n\n{about}.\n");
    let usage = command.clone().bin_name(path).render_usage().to_string();
    _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let arguments = arguments(command);
    if !arguments.is_empty() {
        table(page, &arguments);
    }
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        let after: Vec<&str> = after.lines().map(str::trim_end).collect();
        _ = write!(page, "\n```text\n{}\n```\n", after.join("\n"));
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        section(page, &format!("{path} {}", below.get_name()), below);
    }
}

fn commands() -> String {
    let mut command = <crate::Cli as clap::CommandFactory>::command();
    command.build();
    let mut page = format!(
        "{MADE}\n# Commands\n\n`windlass COMMAND --help` says the same. A flag wins over its variable. "
    );
    page.push_str("These flags stand before or after every command:\n");
    let global: Vec<&Arg> =
        command.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set()).collect();
    table(&mut page, &global);
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    _ = write!(page, "\n```text\n{after}\n```\n");
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        section(&mut page, &format!("windlass {}", below.get_name()), below);
    }
    page
}

fn worker() -> String {
    let mut command = <crate::Cli as clap::CommandFactory>::command();
    command.build();
    let start = command.find_subcommand("worker").and_then(|worker| worker.find_subcommand("start")).unwrap();
    let mut page = format!("{MADE}\n# Settings of a worker\n\n");
    page.push_str(
        "`windlass worker start` takes flags and environment variables. As a service the variables are in\n\
         `/etc/windlass/worker.env`, one on each line. Where a flag may be repeated, the variable has its values with commas\n\
         between them. [A farm](../farm.md) explains them.\n",
    );
    table(&mut page, &arguments(start));
    page.push_str("\nWhich server, and how it is reached:\n");
    let global: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set() && arg.get_env().is_some_and(|env| env != "WINDLASS_OUTPUT"))
        .collect();
    table(&mut page, &global);
    let after = start.get_after_help().map(ToString::to_string).unwrap_or_default();
    _ = write!(page, "\n```text\n{after}\n```\n");
    page
}

#[test]
fn the_page_of_commands_is_the_program_s() {
    compare("commands.md", &commands());
}

#[test]
fn the_page_of_a_worker_s_settings_is_the_program_s() {
    compare("worker.md", &worker());
}
