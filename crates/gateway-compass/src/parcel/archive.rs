//! Archives in cpio's format newc, which a kernel unpacks as its initial file system.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// The name of the last entry of every archive.
const TRAILER: &str = "TRAILER!!!";
/// Headers and contents begin at multiples of this number of bytes.
const ALIGNMENT: usize = 4;

/// An entry of an archive.
pub enum Entry<'a> {
    Directory,
    File { mode: u32, bytes: &'a [u8] },
}

/// An archive that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds an entry. A directory must come before its entries.
    pub fn add(&mut self, name: &str, entry: Entry<'_>) {
        self.entries += 1;
        match entry {
            Entry::Directory => self.write(name, self.entries, 0o040_755, 2, &[]),
            Entry::File { mode, bytes } => self.write(name, self.entries, 0o100_000 | mode, 1, bytes),
        }
    }

    /// Writes thirteen numbers of eight hexadecimal digits, the name with a zero byte, and the contents. All entries
    /// belong to root and have no time, so that equal files give equal archives.
    fn write(&mut self, name: &str, inode: u32, mode: u32, links: u32, contents: &[u8]) {
        let (size, name_size) = (contents.len() as u32, name.len() as u32 + 1);
        let numbers = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(format!("{number:08X}").as_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// Ends the archive, and compresses it by gzip.
    pub fn compressed(mut self) -> Vec<u8> {
        self.write(TRAILER, 0, 0, 1, &[]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&self.bytes).and_then(|()| gzip.finish()).expect("writing to memory does not fail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// Names with modes and contents, as the format's description has them.
    fn unpack(compressed: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let (mut bytes, mut at, mut found) = (Vec::new(), 0, BTreeMap::new());
        GzDecoder::new(compressed).read_to_end(&mut bytes).unwrap();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let number = |n: usize| {
                let digits = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
            let contents = (at + 110 + name_size).next_multiple_of(4);
            at = (contents + size).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(at, bytes.len());
                return found;
            }
            found.insert(name, (mode, bytes[contents..contents + size].to_vec()));
        }
    }

    fn example() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.add("lkp", Entry::Directory);
        archive.add("lkp/a.sh", Entry::File { mode: 0o775, bytes: b"echo hi\n" });
        archive.add("lkp/empty", Entry::File { mode: 0o644, bytes: b"" });
        archive.compressed()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let found = unpack(&example());
        assert_eq!(found["lkp"].0, 0o040_755);
        assert_eq!(found["lkp/a.sh"], (0o100_775, b"echo hi\n".to_vec()));
        assert_eq!(found["lkp/empty"], (0o100_644, Vec::new()));
        assert_eq!(example(), example(), "equal files give equal archives");
    }

    #[test]
    fn cpio_lists_it() {
        let lists = |program: &str, args: &[&str]| {
            let cpio = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut cpio = cpio.ok()?;
            let mut bytes = Vec::new();
            GzDecoder::new(example().as_slice()).read_to_end(&mut bytes).unwrap();
            cpio.stdin.take()?.write_all(&bytes).ok()?;
            let output = cpio.wait_with_output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        match lists("cpio", &["-it"]).or_else(|| lists("busybox", &["cpio", "-it"])) {
            Some(list) => assert_eq!(list.lines().collect::<Vec<_>>(), ["lkp", "lkp/a.sh", "lkp/empty"]),
            None => println!("SKIP reading of an archive: neither cpio nor busybox is here"),
        }
    }
}
