//! The progress of files that are hashed, uploaded or fetched: a line on a terminal, and nothing elsewhere.

use crate::ui::message::keep_clear_of;
use crate::ui::output::count;
use crate::ui::progress;
use crate::ui::quantity::elapsed;
use crate::ui::terminal;
use crate::ui::text::cut;
use indicatif::ProgressBar;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use windlass_core::resources::Bytes;

/// A number of files, and their bytes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileAmount {
    /// The number of files.
    pub files: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

impl FileAmount {
    /// Adds further files to them.
    pub fn add(&mut self, more: FileAmount) {
        self.files = self.files.saturating_add(more.files);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// "12 files, 3.4 MiB".
impl fmt::Display for FileAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", count(self.files, "file"), Bytes(self.bytes))
    }
}

/// Files on their way. Several threads may tell what they have done.
pub struct Transfer {
    doing: &'static str,
    /// What there is in all; `None` where that is not known.
    total: Option<FileAmount>,
    began: Instant,
    files: AtomicU64,
    bytes: AtomicU64,
    line: Option<ProgressBar>,
}

impl Transfer {
    /// Begins. `doing` is the word before the figures, such as "uploading".
    pub fn start(doing: &'static str, total: Option<FileAmount>, is_shown: bool) -> Transfer {
        let line = (is_shown && std::io::stderr().is_terminal()).then(progress::bar);
        if let Some(line) = &line {
            keep_clear_of(Some(line.clone()));
        }
        let began = Instant::now();
        Transfer { doing, total, began, files: AtomicU64::new(0), bytes: AtomicU64::new(0), line }
    }

    /// Counts what was done since the last call.
    pub fn add(&self, files: u64, bytes: u64) {
        let done = FileAmount {
            files: self.files.fetch_add(files, Ordering::Relaxed) + files,
            bytes: self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
        };
        if let Some(line) = &self.line {
            let text = figures(self.doing, done, self.total, self.elapsed_ms());
            // The last column stays empty: a terminal may begin a new line after it.
            line.set_message(cut(&text, terminal::size().0.saturating_sub(1)).into_owned());
        }
    }

    /// What was done until now.
    pub fn done(&self) -> FileAmount {
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        FileAmount { files, bytes }
    }

    /// "in 2.0 s, 12 MiB/s", for the message at the end.
    pub fn pace(&self) -> String {
        let ms = self.elapsed_ms();
        format!("in {}, {}/s", elapsed(ms), Bytes(per_second(self.done().bytes, ms)))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            keep_clear_of(None);
            line.finish_and_clear();
        }
    }
}

fn figures(doing: &str, done: FileAmount, total: Option<FileAmount>, ms: u64) -> String {
    let rate = Bytes(per_second(done.bytes, ms));
    match total {
        Some(total) => format!(
            "{doing} {} of {}, {} of {}, {rate}/s",
            done.files,
            count(total.files, "file"),
            Bytes(done.bytes),
            Bytes(total.bytes)
        ),
        None => format!("{doing} {done}, {rate}/s"),
    }
}

fn per_second(bytes: u64, ms: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1000 / u128::from(ms.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_how_fast() {
        let total = FileAmount { files: 120, bytes: 40 << 20 };
        let done = FileAmount { files: 12, bytes: 10 << 20 };
        assert_eq!(
            figures("uploading", done, Some(total), 2000),
            "uploading 12 of 120 files, 10 MiB of 40 MiB, 5 MiB/s"
        );
        assert_eq!(figures("fetching", done, None, 0), "fetching 12 files, 10 MiB, 9.8 GiB/s");
        assert_eq!(FileAmount { files: 1, bytes: 0 }.to_string(), "1 file, 0 B");
        let transfer = Transfer::start("hashing", None, false);
        transfer.add(1, 5);
        transfer.add(2, 10);
        assert_eq!(transfer.done(), FileAmount { files: 3, bytes: 15 });
    }
}
