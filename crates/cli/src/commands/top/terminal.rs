//! The terminal, which is taken at the start and given back in every case.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are written at once: more than a screen, so that no half of one is seen.
const WRITTEN_BYTES: usize = 1 << 17;

/// True while the terminal is taken.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal as a target for drawings.
pub type DrawnTerminal = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// Gives the terminal back when it is dropped.
pub struct TakenTerminal {
    /// The terminal as a target for drawings.
    pub terminal: DrawnTerminal,
}

impl TakenTerminal {
    /// Takes the terminal. A panic gives it back before it is told, for what it says would be lost with the screen.
    pub fn take() -> io::Result<Self> {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            told(panic);
        }));
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
        let terminal = taken.and_then(|()| {
            Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(WRITTEN_BYTES, stdout())))
        });
        match terminal {
            Ok(terminal) => Ok(TakenTerminal { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, once.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // If the terminal is gone, there is nothing to give back.
        _ = disable_raw_mode();
        _ = leave(&mut stdout());
    }
}

fn leave(out: &mut impl Write) -> io::Result<()> {
    execute!(out, LeaveAlternateScreen, Show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_before_comes_back_with_its_cursor() {
        let mut written = Vec::new();
        leave(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "\u{1b}[?1049l\u{1b}[?25h");
    }
}
