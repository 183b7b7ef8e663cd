//! The generated code is what the generator makes of the protocol's description.

use std::collections::BTreeSet;
use std::path::Path;

const FILES: [&str; 2] =
    ["build/bazel/remote/execution/v2/remote_execution.proto", "google/bytestream/bytestream.proto"];

#[test]
fn generated_code_is_up_to_date() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = protox::compile(FILES, [root.join("proto")])?;
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cas");
    _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out)?;
    // Bytes of blobs are parts of the message that brought them, and are not copied.
    tonic_prost_build::configure().build_transport(false).bytes(".").out_dir(&out).compile_fds(described)?;
    let committed = root.join("src/generated");
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(&out)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let fresh = std::fs::read_to_string(out.join(&name))?;
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(&committed)?;
            std::fs::write(committed.join(&name), &fresh)?;
        }
        assert!(
            std::fs::read_to_string(committed.join(&name))? == fresh,
            "{name} differs from the description; UPDATE_EXPECT=1 writes it again"
        );
        seen.insert(name);
    }
    let mut kept = BTreeSet::new();
    for entry in std::fs::read_dir(&committed)? {
        kept.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    assert_eq!(kept, seen, "nothing describes one of the files");
    Ok(())
}
