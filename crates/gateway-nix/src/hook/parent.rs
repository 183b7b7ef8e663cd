//! The Nix that started this hook: its process, and the user for whom a daemon works.

use std::fs;
use std::path::PathBuf;

fn of_parent(file: &str) -> Option<Vec<u8>> {
    fs::read(PathBuf::from(format!("/proc/{}/{file}", std::os::unix::process::parent_id()))).ok()
}

/// The name of this machine.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A name for this run of Nix, which all its hooks share: the machine, the process and its start time.
pub fn name() -> String {
    let host = host();
    // The name of the program, in brackets, may contain any characters. The start time is the 20th word after it.
    let stat = of_parent("stat").unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let start = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(19)).unwrap_or("0");
    format!("{host}-{}-{start}", std::os::unix::process::parent_id())
}

/// The user for whom a daemon of Nix builds. The daemon shows the process number of its client as its first argument.
pub fn daemon_s_peer() -> Option<String> {
    let cmdline = of_parent("cmdline")?;
    let mut words = cmdline.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word));
    let program = words.next()?;
    if !program.contains("nix-daemon") && !program.ends_with("/nix") && program != "nix" {
        return None;
    }
    let peer: u32 = words.next()?.parse().ok()?;
    let status = fs::read_to_string(format!("/proc/{peer}/status")).ok()?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?;
    user_name(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)
        .or_else(|| Some(format!("uid-{uid}")))
}

fn user_name(passwd: &str, uid: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

/// The number of files that the parent may have open.
pub fn open_files_max() -> Option<u64> {
    let limits = of_parent("limits")?;
    let limits = String::from_utf8_lossy(&limits).into_owned();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbroken\n";
        assert_eq!(user_name(passwd, "1000").as_deref(), Some("ann"));
        assert_eq!(user_name(passwd, "10"), None);
    }

    #[test]
    fn a_run_has_one_name() {
        assert_eq!(name(), name());
        assert!(name().split('-').next_back().unwrap().parse::<u64>().unwrap() > 0);
        assert!(open_files_max().is_none_or(|files| files > 0));
    }
}
