//! Draws the state. A drawing depends on the state and on the size of the terminal alone.

mod cells;
mod header;
mod overlay;
mod panes;
mod table;

pub use panes::why_height;

use crate::commands::top::clean::clean;
use crate::commands::top::keys::Screen;
use crate::commands::top::state::State;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color as Tint, Modifier, Style};

/// The least size of a terminal.
pub const WIDTH_MIN: u16 = 80;
/// The least height of a terminal in lines.
pub const HEIGHT_MIN: u16 = 24;
/// Lines of the header.
const HEADER: u16 = 4;

/// Where the parts of the screen are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Areas {
    /// The server, totals and the names of the screens.
    pub header: Rect,
    /// The holds on the whole farm; without height if there are none.
    pub holds: Rect,
    /// The subject of the list.
    pub caption: Rect,
    /// The summary of the job or worker that Enter opened.
    pub summary: Rect,
    /// The heads of columns; without height where there are none.
    pub heads: Rect,
    /// The rows, or the lines of a text.
    pub rows: Rect,
    /// Keys, notices, and what is typed.
    pub footer: Rect,
}

/// Where the parts are. Whatever does not fit has no height.
pub fn areas(state: &State) -> Areas {
    let (width, height) = state.size;
    let mut left = Rect { x: 0, y: 0, width, height };
    let mut take = |lines: u16| {
        let part = Rect { height: lines.min(left.height), ..left };
        left = Rect { y: left.y + part.height, height: left.height - part.height, ..left };
        part
    };
    let is_held = state.overview.as_ref().is_some_and(|overview| !overview.holds.is_empty());
    let (header, holds, caption) = (take(HEADER), take(u16::from(is_held)), take(1));
    let summary = take(state.shown_detail().map_or(0, panes::summary_height));
    let heads = take(u16::from(!matches!(state.screen, Screen::Why | Screen::Logs)));
    let rows = take(height.saturating_sub(heads.y + heads.height + 1));
    Areas { header, holds, caption, summary, heads, rows, footer: take(1) }
}

/// Draws the whole screen of the state.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        return too_small(buffer, area);
    }
    let areas = areas(state);
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

/// The meaning of a part of the screen, which decides its style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Text without a meaning of its own.
    Plain,
    /// Something of less weight.
    Faint,
    /// A head or a name.
    Strong,
    /// A state that is as it should be.
    Good,
    /// Work that is in progress.
    Busy,
    /// It is held, or deserves a look.
    Held,
    /// A failure that needs attention.
    Bad,
    /// The queue with this place among the signs.
    Queue(usize),
}

/// The signs of queues, by their place. A sign tells queues apart without colours.
const SIGNS: [char; 6] = ['#', '=', '+', '*', '%', '@'];
/// Colours of queues, which people who do not see red and green apart can tell apart, too.
const QUEUE_TINTS: [Tint; 6] =
    [Tint::Cyan, Tint::Yellow, Tint::Magenta, Tint::LightBlue, Tint::White, Tint::LightYellow];

/// The sign of a queue.
pub fn sign_of(place: usize) -> char {
    SIGNS[place % SIGNS.len()]
}

/// The style of a tone.
pub fn style(state: &State, tone: Tone) -> Style {
    let style = Style::new();
    let (tint, modifier) = match tone {
        Tone::Plain => (None, Modifier::empty()),
        Tone::Faint => (None, Modifier::DIM),
        Tone::Strong => (None, Modifier::BOLD),
        Tone::Good => (Some(Tint::Green), Modifier::empty()),
        Tone::Busy => (Some(Tint::Cyan), Modifier::empty()),
        Tone::Held => (Some(Tint::Yellow), Modifier::empty()),
        Tone::Bad => (Some(Tint::LightRed), Modifier::BOLD),
        Tone::Queue(place) => (Some(QUEUE_TINTS[place % QUEUE_TINTS.len()]), Modifier::empty()),
    };
    let style = style.add_modifier(modifier);
    match tint.filter(|_| state.colour) {
        Some(tint) => style.fg(tint),
        None => style,
    }
}

/// Writes a text that may come from outside; answers the column behind it.
fn put(buffer: &mut Buffer, area: Rect, x: u16, text: &str, style: Style) -> u16 {
    if area.height == 0 || x >= area.right() {
        return x;
    }
    buffer.set_stringn(x, area.y, clean(text), usize::from(area.right() - x), style).0
}

/// The part of an area that is its `n`th line; without height if there is none.
fn line(area: Rect, n: u16) -> Rect {
    let height = u16::from(n < area.height);
    Rect { y: area.y + n.min(area.height), height, ..area }
}
