//! Where a process listens, as the kernel says.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a socket that listens, in tables of TCP.
const LISTENS: &str = "0A";
/// The flag of one, in the table of unix sockets.
const ACCEPTS: u32 = 1 << 16;

/// All sockets on which a process listens, as `tcp ADDRESS:PORT` and `unix PATH`.
pub fn of(pid: u32) -> BTreeSet<String> {
    let inodes = inodes(pid);
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        for line in lines(table) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[3] == LISTENS && inodes.contains(words[9]) {
                found.insert(format!("tcp {}", address(words[1])));
            }
        }
    }
    for line in lines("unix") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(words[3], 16).unwrap();
        if flags & ACCEPTS != 0 && inodes.contains(words[6]) {
            found.insert(format!("unix {}", words.get(7).unwrap_or(&"")));
        }
    }
    found
}

/// The numbers of the sockets that a process has.
fn inodes(pid: u32) -> BTreeSet<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let names = links.map(|link| link.display().to_string());
    let inodes = names.filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()));
    inodes.collect()
}

/// The lines of a table of the kernel's, without its head. A kernel without IPv6 has no table of it.
fn lines(table: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// An address as the kernel writes it: words of four bytes in the order of this machine, and a port.
fn address(written: &str) -> SocketAddr {
    let (ip, port) = written.split_once(':').unwrap();
    let word = |at: usize| u32::from_str_radix(&ip[at..at + 8], 16).unwrap().to_ne_bytes();
    let port = u16::from_str_radix(port, 16).unwrap();
    match ip.len() {
        8 => SocketAddr::from((Ipv4Addr::from(word(0)), port)),
        _ => {
            let bytes: Vec<u8> = (0..4).flat_map(|n| word(8 * n)).collect();
            SocketAddr::from((Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()), port))
        }
    }
}
