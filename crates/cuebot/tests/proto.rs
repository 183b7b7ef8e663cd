//! The generated messages are what the generator makes of the descriptions, and what is described is served.

use std::path::{Path, PathBuf};
use windlass_cuebot::served_paths;

/// The packages of OpenCue that are described.
const PACKAGES: [&str; 12] = [
    "comment",
    "criterion",
    "cue",
    "depend",
    "facility",
    "host",
    "job",
    "limit",
    "report",
    "service",
    "show",
    "subscription",
];

/// The directory of the descriptions, and the files in it.
fn descriptions() -> std::io::Result<(PathBuf, Vec<String>)> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(proto.join("cuebot"))? {
        files.push(format!("cuebot/{}", entry?.file_name().to_string_lossy()));
    }
    Ok((proto, files))
}

#[test]
fn the_calls_that_are_described_are_those_that_are_served() -> Result<(), Box<dyn std::error::Error>> {
    let (proto, files) = descriptions()?;
    let mut described = Vec::new();
    for file in protox::compile(&files, [&proto])?.file {
        for service in &file.service {
            let interface = format!("/{}.{}", file.package(), service.name());
            described.extend(service.method.iter().map(|call| format!("{interface}/{}", call.name())));
        }
    }
    described.sort();
    let mut served = served_paths();
    served.sort_unstable();
    assert_eq!(served, described);
    Ok(())
}

#[test]
fn generated_messages_are_up_to_date() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (proto, files) = descriptions()?;
    let described = protox::compile(&files, [&proto])?;
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuebot");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out)?;
    // The calls are routed by a table of our own, so that only messages are generated.
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .build_transport(false)
        .out_dir(&out)
        .compile_fds(described)?;
    let committed = root.join("src/generated");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(&out)? {
        let name = entry?.file_name();
        let fresh = std::fs::read_to_string(out.join(&name))?;
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(&committed)?;
            std::fs::write(committed.join(&name), &fresh)?;
        }
        assert!(
            std::fs::read_to_string(committed.join(&name))? == fresh,
            "{} differs from the description; UPDATE_EXPECT=1 writes it again",
            name.to_string_lossy()
        );
        seen.push(name.to_string_lossy().trim_end_matches(".rs").to_owned());
    }
    seen.sort();
    assert_eq!(seen, PACKAGES);
    Ok(())
}
