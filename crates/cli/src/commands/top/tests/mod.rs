//! The whole of it without a terminal and without a server.

mod drawing;
mod keyboard;
mod robustness;
pub mod sample;

use crate::commands::top::draw;
use crate::commands::top::state::State;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

/// The screen as it is drawn.
pub fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

/// Its text, without spaces at the ends of lines.
pub fn text(buffer: &Buffer) -> String {
    let lines = (0..buffer.area.height).map(|y| {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
            }
            skip =
                ratatui::text::Span::raw(symbol).width().saturating_sub(1).max(skip) - usize::from(skip > 0);
        }
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}
