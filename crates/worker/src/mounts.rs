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
    /// The cpu controller of version 1, which is often mounted together with others.
    pub cpu_v1: Option<Group>,
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

    /// [`Group::home`] and all groups above it that are mounted. The limits of each hold for the worker.
    pub fn levels(&self) -> impl Iterator<Item = &Path> {
        self.home().ancestors().take_while(move |dir| dir.starts_with(&self.mount))
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
        let (mut v2, mut memory, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for line in mountinfo.lines() {
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let fields: Vec<&str> = front.split(' ').collect();
            let kind: Vec<&str> = back.split(' ').collect();
            let (Some(part), Some(point)) = (fields.get(3), fields.get(4)) else { continue };
            let mount = Mount { part, point: root.join(point.trim_start_matches('/')) };
            let is_v1 = kind.first() == Some(&"cgroup");
            let has = |controller: &str| kind.get(2).is_some_and(|o| o.split(',').any(|o| o == controller));
            memory.extend((is_v1 && has("memory")).then(|| mount.clone()));
            cpu.extend((is_v1 && has("cpu")).then(|| mount.clone()));
            v2.extend((kind.first() == Some(&"cgroup2")).then_some(mount));
        }
        let (mut v2_path, mut memory_path, mut cpu_path) = (None, None, None);
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (id, names, path) = (parts.next(), parts.next().unwrap_or(""), parts.next());
            let has = |controller: &str| names.split(',').any(|name| name == controller);
            if id == Some("0") && names.is_empty() {
                v2_path = path;
            }
            memory_path = if has("memory") { path } else { memory_path };
            cpu_path = if has("cpu") { path } else { cpu_path };
        }
        Mounts { v2: place(v2, v2_path), memory_v1: place(memory, memory_path), cpu_v1: place(cpu, cpu_path) }
    }
}

/// A place where a hierarchy, or a part of it, is mounted.
#[derive(Clone)]
struct Mount<'a> {
    /// The group whose files stand at the mount point.
    part: &'a str,
    point: PathBuf,
}

impl Mount<'_> {
    /// A path of the hierarchy from the mount point on; `None` of a group that is not mounted here.
    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.part.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
    }
}

/// A group where most of the groups above it can be seen. A container has a part of the hierarchy mounted, and some
/// programs mount parts of it once more.
fn place(mounts: Vec<Mount<'_>>, path: Option<&str>) -> Option<Group> {
    let path = path?;
    let holding = mounts.iter().filter(|mount| mount.below(path).is_some());
    let mount = holding.min_by_key(|mount| mount.part.len()).or(mounts.last())?;
    let own = mount.point.join(mount.below(path).unwrap_or(path.trim_start_matches('/')));
    Some(Group { mount: mount.point.clone(), own })
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
    fn finds_the_mount_that_shows_most_of_the_groups_above() {
        let mountinfo = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                         51 31 0:38 /box /run/box/cgroup rw - cgroup2 cgroup2 rw\n\
                         52 31 0:38 /bo /run/bo/cgroup rw - cgroup2 cgroup2 rw\n";
        let v2 = parse(mountinfo, "0::/box/a\n").v2.unwrap();
        assert_eq!(v2.own, Path::new("/sys/fs/cgroup/box/a"));
        let levels: Vec<&Path> = v2.levels().collect();
        assert_eq!(levels, ["/sys/fs/cgroup/box/a", "/sys/fs/cgroup/box", "/sys/fs/cgroup"].map(Path::new));
        let part = "51 31 0:38 /bo /run/bo/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(parse(part, "0::/box\n").v2.unwrap().own, Path::new("/run/bo/cgroup/box"), "not '/x'");
    }

    #[test]
    fn controllers_that_are_mounted_together_are_told_apart() {
        let mountinfo = "33 31 0:29 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                         34 31 0:30 / /c/cpuset rw - cgroup cgroup rw,cpuset\n";
        let mounts = parse(mountinfo, "4:cpuset:/no\n3:cpu,cpuacct:/yes\n");
        assert_eq!(mounts.cpu_v1.unwrap().own, Path::new("/c/cpu,cpuacct/yes"));
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
