//! Draws the state. A drawing depends on the state and on the size of the terminal alone.

mod cells;
mod header;
mod overlay;
mod paint;
mod panes;
mod table;

pub use panes::why_height;

use crate::commands::top::keys::Screen;
use crate::commands::top::state::State;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The least size of a terminal.
pub const WIDTH_MIN: u16 = 80;
/// The least height of a terminal in lines.
pub const HEIGHT_MIN: u16 = 24;

/// Draws the whole screen of the state.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        return too_small(buffer, area);
    }
    let areas = state.areas();
    if areas.footer.bottom() > area.height || areas.footer.width > area.width {
        // The terminal shrank, and the message that says so is on its way.
        return;
    }
    header::draw(buffer, state, &areas);
    match (state.screen, state.shown_detail()) {
        (_, Some(detail)) => {
            panes::summary(buffer, state, detail, areas.summary);
            table::draw(buffer, state, &detail.tasks, &areas);
        }
        (Screen::Workers, None) => table::draw(buffer, state, &state.workers, &areas),
        (Screen::Jobs, None) => table::draw(buffer, state, &state.jobs.list, &areas),
        (Screen::Queues, None) => table::draw(buffer, state, &state.queues, &areas),
        (Screen::Why, None) => panes::why(buffer, state, areas.rows),
        (Screen::Logs, None) => panes::logs(buffer, state, areas.rows),
    }
    overlay::footer(buffer, state, areas.footer);
    overlay::draw(buffer, state, area);
}

fn too_small(buffer: &mut Buffer, area: Rect) {
    let lines = [
        "windlass top needs a terminal".to_owned(),
        format!("of {WIDTH_MIN}x{HEIGHT_MIN} or more;"),
        format!("this one is {}x{}", area.width, area.height),
    ];
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_stringn(area.x, y, line, area.width.into(), Style::new());
    }
}
