//! The transcript of a run, line by line, and a hash of all lines, by which two runs are compared. A violation shows
//! the last lines. Every part of the simulation adds lines; nothing reads them for a decision.

use std::collections::VecDeque;

/// Lines that a violation shows.
const LAST_LINES: usize = 60;

#[derive(Clone, Debug)]
pub struct Transcript {
    now_ns: u64,
    lines: VecDeque<String>,
    keep_all: bool,
    hash: u64,
}

impl Transcript {
    /// An empty transcript that keeps all lines, or only those that a violation shows.
    pub fn new(keep_all: bool) -> Self {
        // FNV-1a, which is short and the same on every machine.
        Transcript { now_ns: 0, lines: VecDeque::new(), keep_all, hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Sets the time of the lines from now on.
    pub fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    pub fn line(&mut self, text: &str) {
        let (ms, us) = (self.now_ns / 1_000_000, self.now_ns / 1000 % 1000);
        let line = format!("{ms:>8}.{us:03} {text}");
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.lines.len() >= LAST_LINES && !self.keep_all {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// The last lines, as a violation shows them.
    pub fn last_lines(&self) -> Vec<String> {
        self.lines.iter().skip(self.lines.len().saturating_sub(LAST_LINES)).cloned().collect()
    }

    /// The hash of all lines so far, kept or not.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
