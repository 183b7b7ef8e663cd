//! Puts the board's pages into the server: all files of `board/dist`, as they are and compressed, with a tag of their
//! content. The files are committed, so no program of their making is needed here.

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let root = Path::new(&var("CARGO_MANIFEST_DIR")).join("../../board/dist");
    let out = PathBuf::from(var("OUT_DIR"));
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut paths = Vec::new();
    find(&root, &mut paths);
    paths.sort();
    assert!(paths.contains(&root.join("index.html")), "{} has no index.html", root.display());
    let mut table = String::from("&[\n");
    for (number, path) in paths.iter().enumerate() {
        let below = path.strip_prefix(&root).expect("it was found below the root");
        let plain = read(path);
        let tag: String = Sha256::digest(&plain).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let packed = pack(&plain);
        let gzip = match packed.len() < plain.len() {
            true => {
                let to = out.join(format!("page-{number}.gz"));
                std::fs::write(&to, packed).expect("the directory of the build can be written to");
                format!("Some(include_bytes!({to:?}))")
            }
            false => "None".to_owned(),
        };
        let path = path.canonicalize().expect("it was read");
        writeln!(
            table,
            "EmbeddedFile {{ path: \"/{}\", kind: {:?}, tag: {tag:?}, plain: include_bytes!({path:?}), gzip: {gzip} }},",
            below.display(),
            kind(below),
        )
        .expect("writing to a string cannot fail");
    }
    table.push(']');
    std::fs::write(out.join("pages.rs"), table).expect("the directory of the build can be written to");
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn find(dir: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir);
    let entries = entries.unwrap_or_else(|e| panic!("the board's pages are not in {}: {e}", dir.display()));
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() { find(&path, into) } else { into.push(path) }
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// The same bytes give the same result on each machine: no time of day is in it.
fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("writing to memory cannot fail")
}

/// What a browser is told that a file is. Browsers do not guess, so a kind that is not listed is a mistake.
fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "webmanifest") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => panic!("the kind of {} is not known: add it to crates/server/build.rs", path.display()),
    }
}
