//! The person's browser, in which an address is opened that signs in.

use crate::node::paths::Paths;
use crate::system;
use anyhow::Context as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_api::client::percent_encoded;

/// The program that opens an address in the person's browser.
const OPENER: &str = "xdg-open";
/// The file that leads the browser to the board, in the directory of the server's socket.
const PAGE: &str = "board.html";

/// The program that opens a browser, if there is a display to open it on.
pub fn opener() -> Option<PathBuf> {
    opener_if(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn opener_if(is_set: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let has_display = is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    let path = std::env::var_os("PATH").filter(|_| has_display)?;
    std::env::split_paths(&path).map(|dir| dir.join(OPENER)).find(|program| program.is_file())
}

/// Opens the address. All users of the machine can read the arguments of a process, so the browser gets the address in
/// a file that only this user can read.
pub fn open(opener: &Path, url: &str) -> anyhow::Result<()> {
    let paths = Paths::for_user()?;
    paths.create()?;
    let dir = paths.socket.parent().context("the socket has no directory")?;
    let page = dir.join(PAGE);
    write(&page, url).with_context(|| format!("cannot write {}", page.display()))?;
    let mut command = Command::new(opener);
    command.arg(file_url(&page)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The browser may be its child, and stays when this program's terminal goes.
    command.process_group(0);
    command.spawn().with_context(|| format!("cannot start {}", opener.display()))?;
    Ok(())
}

fn write(page: &Path, url: &str) -> std::io::Result<()> {
    let fresh = page.with_extension("new");
    _ = std::fs::remove_file(&fresh);
    let mut file = system::new_file(&fresh, false)?;
    let url = url.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    write!(
        file,
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>Windlass</title>\n\
         <p><a href=\"{url}\">The board</a></p>\n"
    )?;
    std::fs::rename(&fresh, page)
}

/// The `file:` address of a path.
fn file_url(path: &Path) -> String {
    format!("file://{}", percent_encoded(path.as_os_str().as_encoded_bytes(), b"/-_.~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_display_nothing_is_opened() {
        assert_eq!(opener_if(|_| false), None);
    }

    #[test]
    fn the_page_is_for_its_user_alone_and_leads_to_the_board() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("board.html");
        write(&page, "http://old/#code=1").unwrap();
        write(&page, "http://127.0.0.1:1/?a=\"<&#code=1_2").unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("url=http://127.0.0.1:1/?a=&quot;&lt;&amp;#code=1_2\""), "{text}");
        let mode = std::fs::metadata(&page).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }

    #[test]
    fn a_path_becomes_an_address() {
        assert_eq!(file_url(Path::new("/run/a b/ä#.html")), "file:///run/a%20b/%C3%A4%23.html");
    }
}
