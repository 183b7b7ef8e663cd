//! The hook's output to Nix. An answer is a line that begins with `# `. A message or an activity is a line of JSON
//! after `@nix `. All of it goes to standard error, which Nix reads to its end.

use serde_json::json;
use std::io::Write as _;

/// The levels of Nix's messages.
const ERROR: u8 = 0;
const WARNING: u8 = 1;
const INFO: u8 = 3;

/// Shows Nix one activity at a time.
#[derive(Debug)]
pub struct Words {
    next_id: u64,
    shown: Option<(u64, String)>,
}

impl Default for Words {
    fn default() -> Self {
        // Numbers of activities must differ between processes. Nix's own hook counts from its process number as well.
        Words { next_id: u64::from(std::process::id()) << 32 | 1 << 31, shown: None }
    }
}

impl Words {
    /// Writes a line. Errors are ignored, because a reader that is gone needs no line.
    pub fn line(text: &str) {
        let mut line = String::with_capacity(text.len() + 1);
        line.push_str(text);
        line.push('\n');
        // In one piece, so that no output of other processes comes between.
        _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Shows a warning. The build goes on.
    pub fn warn(text: &str) {
        Words::message(WARNING, &format!("windlass: {text}"));
    }

    /// Shows the error with which the hook ends.
    pub fn fail(text: &str) {
        Words::message(ERROR, &format!("error: windlass: {text}"));
    }

    fn message(level: u8, text: &str) {
        Words::line(&format!("@nix {}", json!({"action": "msg", "level": level, "msg": text})));
    }

    /// Shows a text in the place of the one before.
    pub fn show(&mut self, text: &str) {
        if self.shown.as_ref().is_some_and(|(_, shown)| shown == text) {
            return;
        }
        self.clear();
        let id = self.next_id;
        self.next_id += 1;
        Words::line(&format!(
            "@nix {}",
            json!({"action": "start", "id": id, "level": INFO, "type": 0, "text": text})
        ));
        self.shown = Some((id, text.to_owned()));
    }

    /// Removes the text that is shown.
    pub fn clear(&mut self) {
        if let Some((id, _)) = self.shown.take() {
            Words::stop(id);
        }
    }

    /// Ends an activity of the build.
    pub fn stop(id: u64) {
        Words::line(&format!("@nix {}", json!({"action": "stop", "id": id})));
    }
}

/// A line without the codes of colours.
pub fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        // The code ends with a letter.
        if rest.next() == Some('[') {
            _ = rest.find(char::is_ascii_alphabetic);
        }
    }
    plain
}
