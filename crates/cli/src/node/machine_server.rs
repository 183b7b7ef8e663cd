//! The server of all users of this machine, as their commands find it. It is used where it lets the user in; all others
//! have servers of their own.

use crate::ui::message::message;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windlass_api::client::Address;

/// Where its unit lets it listen.
const SOCKET: &str = "/run/windlass-machine/server.sock";
/// The variable that names another place.
const SOCKET_VARIABLE: &str = "WINDLASS_MACHINE_SOCKET";
/// The name of the user's own server where an address is asked for.
const OWN: &str = "own";
/// How long a server that is restarted may take. Its directory is there meanwhile.
const RESTART_MAX: Duration = Duration::from_secs(5);
/// Between two looks for its socket.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The user asked for their own server.
static OWN_IS_NAMED: AtomicBool = AtomicBool::new(false);
/// The socket that was found. A command stays with one server: another one does not know its jobs.
static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();

/// True of the name of the user's own server, which is used from then on.
pub fn is_own_named(named: &str) -> bool {
    let is_own = named == OWN;
    if is_own {
        OWN_IS_NAMED.store(true, Ordering::Relaxed);
    }
    is_own
}

/// The socket of the machine's server; `None` where there is none for this user, or where they have said that they want
/// their own.
pub fn socket() -> Option<PathBuf> {
    FOUND.get_or_init(|| find(RESTART_MAX)).clone()
}

/// The same for a caller that cannot wait for a server that is restarted.
pub fn socket_at_once() -> Option<PathBuf> {
    FOUND.get_or_init(|| find(Duration::ZERO)).clone()
}

/// True of an address where the server knows by itself who its clients are.
pub fn is_at(address: &Address) -> bool {
    matches!(address, Address::Unix(path) if *path == place())
}

fn place() -> PathBuf {
    std::env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

fn find(patience: Duration) -> Option<PathBuf> {
    // A state directory of its own has a server of its own.
    let has_own = ["WINDLASS_STATE", "WINDLASS_RUNTIME"].iter().any(|name| std::env::var_os(name).is_some());
    if has_own || OWN_IS_NAMED.load(Ordering::Relaxed) {
        return None;
    }
    let socket = place();
    let until = Instant::now() + patience;
    loop {
        match look(&socket) {
            Look::LetsIn => return Some(socket),
            Look::NotForUs => return None,
            Look::Restarts if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Look::Restarts if patience.is_zero() => return None,
            Look::Restarts => {
                let path = socket.display();
                message!("note: the machine's server at {path} does not answer; your own is used");
                return None;
            }
        }
    }
}

/// What is found at the machine's socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    LetsIn,
    /// There is no such server, or it does not let this user in.
    NotForUs,
    /// It does not listen, and may be about to.
    Restarts,
}

fn look(socket: &Path) -> Look {
    let Some(dir) = socket.parent().filter(|dir| is_trusted(dir)) else { return Look::NotForUs };
    match UnixStream::connect(socket) {
        Ok(_) => Look::LetsIn,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Look::Restarts,
            ErrorKind::NotFound if dir.is_dir() => Look::Restarts,
            _ => Look::NotForUs,
        },
    }
}

/// True of a directory in which nobody but root and this user can put a socket: another user could impersonate the
/// server.
fn is_trusted(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir)
        .is_ok_and(|found| found.is_dir() && [0, own].contains(&found.uid()) && found.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_machine_s_server_is_used_where_it_listens_and_nobody_else_could() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let socket = run.join("server.sock");
        assert_eq!(look(&socket), Look::NotForUs);
        std::fs::create_dir(&run).unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&run, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o755);
        assert_eq!(look(&socket), Look::Restarts, "its unit has made the directory");
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(look(&socket), Look::LetsIn);
        set_mode(0o777);
        assert_eq!(look(&socket), Look::NotForUs, "any user could have made that socket");
        set_mode(0o755);
        drop(listener);
        assert_eq!(look(&socket), Look::Restarts);
    }
}
