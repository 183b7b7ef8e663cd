//! The manual's reference pages are made from their sources: the server's settings from their types, the requests from
//! the description of the interface, the metrics from their registration. With `UPDATE_EXPECT=1` the tests write the
//! pages, otherwise they compare them.

mod metrics;
mod requests;
mod settings;

use std::path::{Path, PathBuf};

/// The first line of each page.
const MADE: &str =
    "<!-- Made from the sources by a test: see CONTRIBUTING.md, Golden files. Do not edit. -->\n";

/// A file of the tree.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compares a page with the committed one, or writes it.
fn compare(name: &str, page: &str) {
    let path = file("docs/src/reference").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/src/reference/{name} is old: run this test with UPDATE_EXPECT=1");
}

/// A text as one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
