//! Sockets for administrators of servers on this machine. The owner of such a socket is an administrator of its
//! server, so tasks of other submitters must not run as that user.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The name of such a socket, in the state directory of a server that asks for tokens.
pub const ADMIN_SOCKET: &str = "admin.sock";
/// The state directory of a server that the packages install.
const PACKAGED_STATE: &str = "/var/lib/windlass";
/// The state directory of a user's server in their home directory, unless they set another.
const USER_STATE: &str = ".local/state/windlass";
/// The kernel's list of all sockets of this machine's processes.
const LIST: &str = "/proc/net/unix";
/// Bytes of the list that are read: more than a machine has.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Columns of the list before the path.
const COLUMNS_BEFORE_PATH: usize = 7;

/// A socket that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminSocket {
    /// Path of the socket in the file system.
    pub path: PathBuf,
    /// Number of its owner.
    pub uid: u32,
}

/// All that are found: those that are open, wherever they are, and those of servers that may start again, where these
/// are as a rule. `home` is the home directory of a user.
pub fn admin_sockets(home: &Path) -> Vec<AdminSocket> {
    let mut list = Vec::new();
    // Without the list the usual places remain.
    _ = File::open(LIST).and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut list));
    let usual = [home.join(USER_STATE), PathBuf::from(PACKAGED_STATE)].map(|state| state.join(ADMIN_SOCKET));
    let found = open_ones(&String::from_utf8_lossy(&list)).into_iter().chain(usual);
    found.filter_map(owned).collect()
}

/// The paths of open ones in the kernel's list. One that a process named by a relative path cannot be found.
fn open_ones(list: &str) -> Vec<PathBuf> {
    let path_of = |line: &str| {
        let mut rest = line;
        for _ in 0..COLUMNS_BEFORE_PATH {
            rest = rest.trim_start().split_once(' ')?.1;
        }
        let path = Path::new(rest);
        (path.is_absolute() && path.ends_with(ADMIN_SOCKET)).then(|| path.to_owned())
    };
    list.lines().skip(1).filter_map(path_of).collect()
}

fn owned(path: PathBuf) -> Option<AdminSocket> {
    // A link would have the owner of something else.
    let found = std::fs::symlink_metadata(&path).ok()?;
    found.file_type().is_socket().then(|| AdminSocket { path, uid: found.uid() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn open_sockets_are_found_in_the_kernel_s_list() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 31337 /home/ann b/admin.sock
0000000000000000: 00000003 00000000 00000000 0001 03   741
0000000000000000: 00000002 00000000 00010000 0001 01     7 @/abstract/admin.sock
0000000000000000: 00000002 00000000 00010000 0001 01     8 state/admin.sock
0000000000000000: 00000002 00000000 00010000 0001 01     9 /run/not-admin.sock
short line";
        assert_eq!(open_ones(list), [PathBuf::from("/home/ann b/admin.sock")]);
        assert!(open_ones("").is_empty());
    }

    #[test]
    fn a_socket_is_its_owner_s_and_a_link_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let path = dir.path().join(ADMIN_SOCKET);
        let _open = UnixListener::bind(&path).unwrap();
        let socket = AdminSocket { path: path.clone(), uid: own };
        assert!(admin_sockets(Path::new("/nonexistent")).contains(&socket), "it is in the list");
        // The list goes on to have the path that it was bound to.
        let moved = dir.path().join("moved.sock");
        std::fs::rename(&path, &moved).unwrap();
        let state = dir.path().join(USER_STATE);
        std::fs::create_dir_all(&state).unwrap();
        std::os::unix::fs::symlink(&moved, state.join(ADMIN_SOCKET)).unwrap();
        assert!(!admin_sockets(dir.path()).iter().any(|found| found.path.starts_with(dir.path())));
        std::fs::remove_file(state.join(ADMIN_SOCKET)).unwrap();
        std::fs::rename(&moved, state.join(ADMIN_SOCKET)).unwrap();
        let usual = AdminSocket { path: state.join(ADMIN_SOCKET), uid: own };
        assert!(admin_sockets(dir.path()).contains(&usual), "its server may start again");
    }
}
