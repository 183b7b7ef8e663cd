//! The terminal that output goes to: its size, and whether tables are cut to it.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};

/// The size, in columns and rows, of a terminal that does not say its own.
const SIZE_UNKNOWN: (usize, usize) = (80, 24);

/// True once [`show_wide`] was called.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Shows all columns of all tables from now on, uncut: `-o wide`.
pub fn show_wide() {
    WIDE.store(true, Ordering::Relaxed);
}

/// The cells of a line of standard output. `None` sets no bound: for `-o wide`, and where no terminal shows it, so that a
/// script reads all.
pub fn columns() -> Option<usize> {
    (!WIDE.load(Ordering::Relaxed) && io::stdout().is_terminal()).then(|| size().0)
}

/// The columns and rows of the terminal. `COLUMNS` and `LINES` are believed first, as by other programs.
pub fn size() -> (usize, usize) {
    let told = ratatui::crossterm::terminal::size().unwrap_or_default();
    let of = |variable: &str, told: u16, unknown: usize| {
        let wished = std::env::var(variable).ok().and_then(|text| text.trim().parse().ok());
        let known = [wished, Some(usize::from(told))].into_iter().flatten().find(|size| *size > 0);
        known.unwrap_or(unknown)
    };
    (of("COLUMNS", told.0, SIZE_UNKNOWN.0), of("LINES", told.1, SIZE_UNKNOWN.1))
}
