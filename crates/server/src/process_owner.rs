//! The user whose process is at the other end of a connection from this machine.
//!
//! All users of a machine share its loopback addresses, and a browser sends a cookie to every port of a host. So a
//! session that was made from this machine is for processes of the user who made it: one that another user got hold of
//! is of no use. The board's port of one user's server is for that user's processes from the start.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use tokio::sync::Semaphore;

/// The tables of connections of this machine. One from a socket that could have used IPv6 is in the second.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// Times that the tables are read: a table that changes meanwhile may miss a line.
const READS_MAX: usize = 3;
/// The state of a connection that both ends have.
const ESTABLISHED: &str = "01";

/// Looks at a time: each reads a table of all connections, and many at once must not take the time of other requests.
static LOOKS: Semaphore = Semaphore::const_new(1);
/// The result of the last look. It serves all who asked before it began: a flood of connections costs few looks.
static LAST: Mutex<Option<ClientUsers>> = Mutex::new(None);

/// The users whose processes have connections to an address of this machine.
struct ClientUsers {
    server: SocketAddr,
    /// When the tables were opened.
    begun: Instant,
    users: BTreeMap<SocketAddr, u32>,
}

/// The user whose process made a connection from this machine; `None` if that is not known.
pub(crate) async fn user_at(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    for _ in 0..READS_MAX {
        let asked = Instant::now();
        // Nobody closes the semaphore.
        let _turn = LOOKS.acquire().await;
        let found = match known_since(asked, client, server) {
            Some(found) => found,
            None => {
                // The tables may be long.
                tokio::task::spawn_blocking(move || look(server)).await.ok()?;
                known_since(asked, client, server).flatten()
            }
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// What a look that began since then says of a client; `None` where there was none.
fn known_since(asked: Instant, client: SocketAddr, server: SocketAddr) -> Option<Option<u32>> {
    let last = LAST.lock();
    let last = last.as_ref().filter(|last| last.server == server && last.begun >= asked)?;
    Some(last.users.get(&client).copied())
}

fn look(server: SocketAddr) {
    let begun = Instant::now();
    let tables = TABLES.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let users = tables.flat_map(|table| users_of(&table, server)).collect();
    *LAST.lock() = Some(ClientUsers { server, begun, users });
}

/// Whether a process of that user may use what is this process's user's.
pub(crate) fn is_own_or_root(user: Option<u32>) -> bool {
    user.is_some_and(|user| user == rustix::process::geteuid().as_raw() || user == 0)
}

/// The users whose sockets have connections to a server, by their addresses.
fn users_of(table: &str, server: SocketAddr) -> BTreeMap<SocketAddr, u32> {
    let lines = table.lines().skip(1);
    let users = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        let mut words = words.skip(3);
        let (user, inode) = (words.next()?, words.nth(1)?);
        // A socket that its process has closed has no file, and counts as root's.
        let is_open = state == ESTABLISHED && inode != "0";
        (is_open && address(remote)? == server).then_some(())?;
        Some((address(local)?, user.parse().ok()?))
    });
    users.collect()
}

/// An address of a table: hexadecimal, four bytes at a time in the order of bytes of this machine. One of IPv6 that
/// stands for one of IPv4 is that.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':').filter(|(host, _)| host.is_ascii())?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(&host[at..at + 8], 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match host.len() {
        8 => word(0)?.into(),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = std::array::from_fn(|at| words[at / 4][at % 4]);
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[tokio::test]
    async fn a_connection_over_ipv6_is_found() {
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            return println!("SKIP a_connection_over_ipv6_is_found: this machine has no IPv6");
        };
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, from) = listener.accept().unwrap();
        assert_eq!(user_at(from, server.local_addr().unwrap()).await, Some(own()));
    }

    #[tokio::test]
    async fn our_own_connection_is_found_and_a_closed_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        let to = server.local_addr().unwrap();
        assert_eq!(user_at(from, to).await, Some(own()));
        assert!(is_own_or_root(Some(own())) && is_own_or_root(Some(0)) && !is_own_or_root(None));
        assert!(!is_own_or_root(Some(own() + 1)));
        assert_eq!(user_at(to, SocketAddr::from(([127, 0, 0, 1], 1))).await, None);
        drop(client);
        assert_eq!(user_at(from, to).await, None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_line_says_whose_it_is() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 71 1 0 100 0\n   \
             1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 72 1 0 100 0\n   \
             2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 73 1 0 100 0\n   \
             3: 0100007F:C351 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0\n   \
             4: 0100007F:C352 0100007F:1F90 08 00000000:00000000 00:00000000 00000000  1000        0 74 1 0 100 0\n";
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let users = users_of(table, here(8080));
        let of = |port| users.get(&here(port)).copied();
        assert_eq!((of(50_000), of(50_001), of(50_002), of(50_003)), (Some(1001), None, None, None));
        let mapped = address("0000000000000000FFFF00000100007F:1F90");
        assert_eq!((mapped, address("0100007F:1F90")), (Some(here(8080)), Some(here(8080))));
        let v6 = address("00000000000000000000000001000000:1F90");
        assert_eq!(v6, Some((Ipv6Addr::LOCALHOST, 8080).into()));
    }

    proptest! {
        #[test]
        fn any_table_is_read(table in "\\PC{0,200}", words in prop::collection::vec("[0-9A-F:]{1,40}", 0..20)) {
            let none = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            _ = users_of(&table, none);
            _ = users_of(&format!("x\n{}", words.join(" ")), none);
            words.iter().for_each(|word| _ = address(word));
        }
    }
}
