//! Authenticates a server's own user over TCP without configuration: the server writes a token into its state
//! directory, which only its user can read, and which is valid only while the server runs.

use crate::node::paths::Paths;
use crate::system;
use anyhow::Context as _;
use std::io::Write as _;
use std::path::Path;
use windlass_api::client::Address;

/// Writes the token of the server that listens at `address`, over that of an earlier server.
pub fn write(path: &Path, address: &str, token: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("token.new");
    _ = std::fs::remove_file(&fresh);
    let written = system::new_file(&fresh, false).and_then(|mut file| write!(file, "{address}\n{token}\n"));
    let moved = written.and_then(|()| std::fs::rename(&fresh, path));
    moved.with_context(|| format!("cannot write {}", path.display()))
}

/// The token of this user's own server, if that server is at the address. Another server on this machine, or one
/// behind a tunnel, does not get it.
pub fn for_address(address: &Address) -> Option<String> {
    read(&Paths::for_user().ok()?.state, address)
}

/// The same for the server with that state directory.
pub fn read(state: &Path, address: &Address) -> Option<String> {
    let path = Paths::for_state(state.to_owned()).token();
    of(&std::fs::read_to_string(path).ok()?, address)
}

fn of(text: &str, address: &Address) -> Option<String> {
    let (at, token) = text.trim_end().split_once('\n')?;
    let (own, asked) = (port_here(&Address::parse(at))?, port_here(address)?);
    (own == asked).then(|| token.to_owned())
}

/// The port of a TCP address of this machine.
fn port_here(address: &Address) -> Option<u16> {
    let Address::Http(base) = address else { return None };
    let port = base.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.filter(|_| address.is_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_wrote_it_is_shown_it() {
        let shown = |at: &str| of("https://127.0.0.1:7117\nwl_a_b\n", &Address::parse(at));
        for at in ["127.0.0.1:7117", "localhost:7117", "https://localhost:7117", "http://[::1]:7117"] {
            assert_eq!(shown(at).as_deref(), Some("wl_a_b"), "{at}");
        }
        for at in ["127.0.0.1:7118", "farm.example:7117", "unix:/run/x", "localhost"] {
            assert_eq!(shown(at), None, "{at}");
        }
        assert_eq!(of("", &Address::parse("127.0.0.1:7117")), None);
    }

    #[test]
    fn nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.token");
        write(&path, "127.0.0.1:1", "one").unwrap();
        write(&path, "127.0.0.1:2", "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "127.0.0.1:2\ntwo\n");
        let mode = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }
}
