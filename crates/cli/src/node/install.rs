//! `windlass server install --machine`: sets up one server for all users of this machine, as a unit of systemd. Done again
//! it changes only what is not as it should be.

use crate::ui::error::CliError;
use crate::ui::output::print_lines;
use anyhow::Context as _;
use clap::Args;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_server::Config;

/// The name of the unit.
const UNIT: &str = "windlass-machine.service";
/// The unit of packages, for the program in `/usr/bin`.
const UNIT_TEXT: &str = include_str!("../../../../packaging/systemd/windlass-machine.service");
/// The settings, as an administrator finds them at first.
const SETTINGS_TEXT: &str = include_str!("../../../../packaging/etc/machine.toml");
/// The program that the unit names.
const PACKAGED_PROGRAM: &str = "/usr/bin/windlass";
const UNIT_PATH: &str = "/etc/systemd/system/windlass-machine.service";
const SETTINGS_PATH: &str = "/etc/windlass/machine.toml";
const GROUPS_PATH: &str = "/etc/sysusers.d/windlass-machine.conf";
const STATE_PATH: &str = "/var/lib/windlass-machine";
/// The groups that the settings name at first.
const GROUP: &str = "windlass-users";
const ADMINS: &str = "windlass-admins";
/// Characters of a group's name.
const GROUP_CHARS_MAX: usize = 32;

/// Flags of `server install`.
#[derive(Args, Clone, Debug)]
pub struct InstallArgs {
    /// Set up one server for all users of this machine
    #[arg(long)]
    machine: bool,
    /// Group whose members use the server; made if it is missing [default: windlass-users]
    #[arg(long, value_name = "GROUP", value_parser = parse_group, conflicts_with = "uninstall")]
    group: Option<String>,
    /// Group whose members administer the server; made if it is missing [default: windlass-admins]
    #[arg(long, value_name = "GROUP", value_parser = parse_group, conflicts_with = "uninstall")]
    admins: Option<String>,
    /// Write the files below this directory, such as that of an image, and start nothing
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print the files and the commands, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Stop the server and remove its unit; settings, jobs and groups stay
    #[arg(long)]
    uninstall: bool,
}

fn parse_group(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match begins && text.len() <= GROUP_CHARS_MAX && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is not a valid group; one has lower-case letters, digits, dashes and underscores"
        )),
    }
}

/// A file of the installation.
struct PlannedFile {
    path: &'static str,
    text: String,
    /// It is the administrator's once it is there.
    is_kept: bool,
}

/// Runs the command `windlass server install`.
pub fn install(args: &InstallArgs) -> Result<(), CliError> {
    if !args.machine {
        let message = "a server of your own needs no installation".to_owned();
        let hint = "give --machine for one server of all users of this machine".to_owned();
        return Err(CliError::Usage { message, hint: Some(hint) });
    }
    let done = match args.uninstall {
        true => remove(args)?,
        false => set_up(args)?,
    };
    print_lines(done.into_iter())
}

/// Writes the files and starts the server. Returns what was done.
fn set_up(args: &InstallArgs) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let planned = files(args, &program)?;
    if args.dry_run {
        let commands = commands(true).into_iter().map(|command| format!("would run: {}", command.join(" ")));
        let shown = planned.iter().map(|file| match file.is_kept && at(args, file.path).exists() {
            true => format!("would keep {}", file.path),
            false => format!("would write {}:\n{}", file.path, file.text),
        });
        return Ok(shown.chain(commands).collect());
    }
    if args.root.is_none() {
        check_machine()?;
        check_program(&program)?;
    }
    let mut done = Vec::new();
    let mut has_new_unit = false;
    for file in &planned {
        let (said, has_changed) = put(args, file)?;
        has_new_unit |= has_changed && file.path == UNIT_PATH;
        done.push(said);
    }
    if args.root.is_some() {
        return Ok(done);
    }
    for command in commands(has_new_unit) {
        run(&command)?;
        done.push(format!("ran {}", command.join(" ")));
    }
    let group = groups(args)?.0;
    done.push(format!("the machine's server runs; 'usermod -aG {group} USER' lets a user in"));
    Ok(done)
}

/// The files, with the groups of the settings if there are some.
fn files(args: &InstallArgs, program: &Path) -> anyhow::Result<Vec<PlannedFile>> {
    let (group, admins) = groups(args)?;
    let program = program.to_str().context("the path of this program is not text")?;
    anyhow::ensure!(
        !program.contains(|c: char| c.is_whitespace() || "\"'\\%$".contains(c)),
        "systemd cannot run {program}: put the program where its path has no blanks, quotes, % or $"
    );
    let settings = SETTINGS_TEXT.replace(&quoted(GROUP), &quoted(&group));
    Ok(vec![
        PlannedFile {
            path: GROUPS_PATH,
            text: format!("# Of 'windlass server install --machine'.\ng {group} -\ng {admins} -\n"),
            is_kept: false,
        },
        PlannedFile {
            path: SETTINGS_PATH,
            text: settings.replace(&quoted(ADMINS), &quoted(&admins)),
            is_kept: true,
        },
        PlannedFile { path: UNIT_PATH, text: UNIT_TEXT.replace(PACKAGED_PROGRAM, program), is_kept: false },
    ])
}

fn quoted(group: &str) -> String {
    format!("\"{group}\"")
}

/// The group of users and that of administrators. Settings that are there count, and flags do not change them.
fn groups(args: &InstallArgs) -> anyhow::Result<(String, String)> {
    let path = at(args, SETTINGS_PATH);
    let asked = [(&args.group, GROUP), (&args.admins, ADMINS)];
    let [group, admins] = asked.map(|(asked, usual)| asked.clone().unwrap_or_else(|| usual.to_owned()));
    if !path.exists() {
        return Ok((group, admins));
    }
    let machine = Config::read(&path)?.machine;
    let machine = machine.with_context(|| format!("{} has no table [machine]", path.display()))?;
    for (asked, set, name) in
        [(&args.group, &machine.group, "group"), (&args.admins, &machine.admins, "admins")]
    {
        anyhow::ensure!(
            asked.as_ref().is_none_or(|asked| asked == set),
            "{} has {name} = \"{set}\": change it there, and leave out --{name}",
            path.display()
        );
    }
    Ok((machine.group, machine.admins))
}

/// What is run once the files are there. A unit that was changed under a running server is taken over by a restart.
fn commands(has_new_unit: bool) -> Vec<Vec<&'static str>> {
    let start = if has_new_unit { "restart" } else { "start" };
    vec![
        vec!["systemd-sysusers", GROUPS_PATH],
        vec!["systemctl", "daemon-reload"],
        vec!["systemctl", "enable", UNIT],
        vec!["systemctl", start, UNIT],
    ]
}

/// Stops the server and removes its unit. Returns what was done.
fn remove(args: &InstallArgs) -> anyhow::Result<Vec<String>> {
    let removed = [UNIT_PATH, GROUPS_PATH];
    let has_unit = at(args, UNIT_PATH).exists();
    let stop = ["systemctl", "disable", "--now", UNIT];
    let reload = ["systemctl", "daemon-reload"];
    let is_here = args.root.is_none();
    if args.dry_run {
        let files = removed.map(|path| format!("would remove {path}"));
        let commands = [&stop[..], &reload[..]].map(|command| format!("would run: {}", command.join(" ")));
        return Ok(files.into_iter().chain(commands).collect());
    }
    let mut done = Vec::new();
    if is_here {
        check_machine()?;
        if has_unit {
            run(&stop)?;
            done.push(format!("ran {}; running tasks go on", stop.join(" ")));
        }
    }
    for path in removed {
        match std::fs::remove_file(at(args, path)) {
            Ok(()) => done.push(format!("removed {path}")),
            Err(error) if error.kind() == ErrorKind::NotFound => done.push(format!("{path} is not there")),
            Err(error) => return Err(error).with_context(|| format!("cannot remove {path}")),
        }
    }
    if is_here {
        run(&reload)?;
    }
    done.push(format!("{SETTINGS_PATH}, the jobs in {STATE_PATH} and the groups stay"));
    Ok(done)
}

/// The path on the machine or in the image that is set up.
fn at(args: &InstallArgs, path: &str) -> PathBuf {
    match &args.root {
        Some(root) => root.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}

/// Writes a file unless it is as it should be. Returns what was done, and whether the file was changed.
fn put(args: &InstallArgs, file: &PlannedFile) -> anyhow::Result<(String, bool)> {
    let path = at(args, file.path);
    match std::fs::read_to_string(&path) {
        Ok(text) if text == file.text => return Ok((format!("{} is as it should be", file.path), false)),
        Ok(_) if file.is_kept => return Ok((format!("kept {}", file.path), false)),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let fresh = path.with_extension("new");
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(&fresh, &file.text)?;
        // Whatever the umask is: the program of another user reads it, too.
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o644))?;
        std::fs::rename(&fresh, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok((format!("wrote {}", file.path), true))
}

fn check_machine() -> anyhow::Result<()> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "only root can set up or remove the machine's server: run it with sudo, or see it with --dry-run"
    );
    anyhow::ensure!(
        Path::new("/run/systemd/system").is_dir(),
        "systemd does not run on this machine: --root / writes the files, and 'windlass server start --config \
         {SETTINGS_PATH} --state {STATE_PATH}' is what the unit runs"
    );
    Ok(())
}

/// Refuses a program that a user who is not root could replace: root runs it.
fn check_program(program: &Path) -> anyhow::Result<()> {
    for path in program.ancestors() {
        let found =
            std::fs::symlink_metadata(path).with_context(|| format!("cannot access {}", path.display()))?;
        anyhow::ensure!(
            found.uid() == 0 && found.mode() & 0o022 == 0,
            "root would run {}, and others than root may write to {}: 'install -m 755 {} /usr/local/bin/windlass', \
             and let that one install itself",
            program.display(),
            path.display(),
            program.display()
        );
    }
    Ok(())
}

fn run(command: &[&str]) -> anyhow::Result<()> {
    let words = command.join(" ");
    let status = Command::new(command[0]).args(&command[1..]).status();
    let status = status.with_context(|| format!("cannot run '{words}'"))?;
    anyhow::ensure!(status.success(), "'{words}' failed with {status}");
    Ok(())
}
