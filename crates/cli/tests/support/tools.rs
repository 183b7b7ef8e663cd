//! Programs that drive the board in a real browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory of the board with its tools, or a line that says what is missing.
pub fn of_board(test: &str) -> Option<PathBuf> {
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../board").canonicalize().unwrap();
    let has = |program: &str| {
        let command =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        command.is_ok_and(|status| status.success())
    };
    let missing = match () {
        () if !has("node") => "node is missing: install nodejs",
        () if !has("chromium") => "chromium is missing: install chromium",
        () if !board.join("node_modules/playwright-core").is_dir() => "run 'npm ci' in board",
        () => return Some(board),
    };
    println!("SKIP {test}: {missing}");
    None
}
