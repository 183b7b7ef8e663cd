//! The mounted hierarchies of control groups, and this process's group in each, read from `/proc`. `cgroup` makes the
//! tasks' groups there, and `load` reads pressure and limits there. Nothing here writes to a hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

/// The group in which a systemd unit keeps the agent, beside those of the tasks: `DelegateSubgroup=`.
pub const AGENT_GROUP: &str = "windlass-agent";
/// The group into which agent and keeper move, where the groups of tasks need their place.
pub const MAIN_GROUP: &str = "windlass-main";

/// The hierarchies that Windlass uses; `None` for one that is not mounted.
#[derive(Default)]
pub struct Mounts {
    /// Version 2, which may be mounted without controllers.
    pub v2: Option<Group>,
    /// The memory controller of version 1.
    pub memory_v1: Option<Group>,
}

/// This process's group in a hierarchy.
pub struct Group {
    /// Mount point of the hierarchy.
    pub mount: PathBuf,
    /// Directory of the group.
    pub own: PathBuf,
}

impl Group {
    /// The group in which the agent was started, which is one up if the process has moved down.
    pub fn home(&self) -> &Path {
        let aside = [AGENT_GROUP, MAIN_GROUP].iter().any(|name| self.own.ends_with(name));
        self.own.parent().filter(|_| aside).unwrap_or(&self.own)
    }
}

impl Mounts {
    /// Reads the files of `/proc` below `root`.
    pub fn read(root: &Path) -> Result<Mounts, String> {
        let read = |name: &str| {
            let path = root.join(name);
            fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))
        };
        Ok(Mounts::parse(root, &read("proc/self/mountinfo")?, &read("proc/self/cgroup")?))
    }

    /// `mountinfo` and `own` as in proc(5).
    fn parse(root: &Path, mountinfo: &str, own: &str) -> Mounts {
        let (mut v2, mut memory) = (None, None);
        for line in mountinfo.lines() {
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let fields: Vec<&str> = front.split(' ').collect();
            let kind: Vec<&str> = back.split(' ').collect();
            let (Some(part), Some(point)) = (fields.get(3), fields.get(4)) else { continue };
            let mount = (part.to_string(), root.join(point.trim_start_matches('/')));
            match kind.first() {
                Some(&"cgroup2") => v2 = Some(mount),
                Some(&"cgroup") if kind.get(2).is_some_and(|o| o.split(',').any(|o| o == "memory")) => {
                    memory = Some(mount);
                }
                _ => {}
            }
        }
        let (mut v2_path, mut memory_path) = (None, None);
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (id, names, path) = (parts.next(), parts.next().unwrap_or(""), parts.next());
            if id == Some("0") && names.is_empty() {
                v2_path = path;
            } else if names.split(',').any(|name| name == "memory") {
                memory_path = path;
            }
        }
        Mounts { v2: place(v2, v2_path), memory_v1: place(memory, memory_path) }
    }
}

fn place(mount: Option<(String, PathBuf)>, path: Option<&str>) -> Option<Group> {
    let ((part, mount), path) = (mount?, path?);
    // A container has a part of the hierarchy mounted, and its own path begins with that part.
    let below = path.strip_prefix(part.as_str()).unwrap_or(path);
    let own = mount.join(below.trim_start_matches('/'));
    Some(Group { mount, own })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mountinfo: &str, own: &str) -> Mounts {
        Mounts::parse(Path::new("/"), mountinfo, own)
    }

    #[test]
    fn finds_both_hierarchies_of_a_hybrid_machine() {
        let mountinfo = "35 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let mounts = parse(mountinfo, "4:memory:/box/a\n1:cpu:/\n0::/slice\n");
        assert_eq!(mounts.v2.unwrap().own, Path::new("/sys/fs/cgroup/unified/slice"));
        assert_eq!(mounts.memory_v1.unwrap().own, Path::new("/sys/fs/cgroup/memory/box/a"));
    }

    #[test]
    fn finds_the_part_that_a_container_sees() {
        let mountinfo = "41 31 0:38 /pod/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let mounts = parse(mountinfo, "0::/pod/x/sub\n");
        assert_eq!(mounts.v2.unwrap().own, Path::new("/sys/fs/cgroup/sub"));
        assert!(mounts.memory_v1.is_none());
    }

    #[test]
    fn a_process_that_stepped_aside_was_started_one_group_up() {
        let home = |own: &str| Group { mount: "/g".into(), own: own.into() }.home().to_owned();
        assert_eq!(home("/g/a.service/windlass-agent"), Path::new("/g/a.service"));
        assert_eq!(home("/g/windlass-main"), Path::new("/g"));
        assert_eq!(home("/g/a"), Path::new("/g/a"));
    }

    #[test]
    fn nothing_is_found_in_garbage() {
        let mounts = parse("x\n - \n1 2 3 - cgroup2\n", ":::\n\n0:\n");
        assert!(mounts.v2.is_none() && mounts.memory_v1.is_none());
    }
}
