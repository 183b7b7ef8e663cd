//! The generated code is what the generator makes of the protocol's description.

use std::path::Path;

#[test]
fn generated_code_is_up_to_date() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = protox::compile(["windlass/worker/v1/worker.proto"], [root.join("proto")])?;
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tonic_prost_build::configure().build_transport(false).out_dir(out).compile_fds(described)?;
    let fresh = std::fs::read_to_string(out.join("windlass.worker.v1.rs"))?;
    let committed = root.join("src/generated/windlass.worker.v1.rs");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(root.join("src/generated"))?;
        std::fs::write(&committed, &fresh)?;
    }
    assert!(
        std::fs::read_to_string(committed)? == fresh,
        "the generated code differs from the description; UPDATE_EXPECT=1 writes it again"
    );
    Ok(())
}
