//! Lists as tables. Only the rows in the window are laid out.

use crate::commands::top::areas::Areas;
use crate::commands::top::clean::clean;
use crate::commands::top::draw::paint::{Tone, line, put, sign_of, style};
use crate::commands::top::keys::Screen;
use crate::commands::top::list::{Listed, RowList, fit_columns};
use crate::commands::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

/// A part of a cell.
pub type Piece = (String, Tone);

/// A row that can be drawn.
pub trait DrawnRow: Listed {
    /// The text of a column that is `width` cells wide.
    fn cell(&self, state: &State, column: usize, width: usize) -> Vec<Piece>;
    /// The text in place of rows if there are none.
    fn empty(state: &State) -> &'static str;
    /// The noun for one row.
    const WHAT: &'static str;
}

/// Draws a list with its caption.
pub fn draw<T: DrawnRow>(buffer: &mut Buffer, state: &State, list: &RowList<T>, areas: &Areas) {
    caption(buffer, state, list, areas.caption);
    let columns = fit_columns(T::COLUMNS, areas.rows.width);
    let mut x = areas.heads.x;
    let strong = style(state, Tone::Strong).add_modifier(Modifier::UNDERLINED);
    for (n, width) in &columns {
        let spec = &T::COLUMNS[*n];
        // The order is said in the caption, too: a terminal may not show this.
        let of = if list.sort == Some(*n) { strong.add_modifier(Modifier::REVERSED) } else { strong };
        cell(buffer, areas.heads, x, *width, spec.right, &[(spec.title.to_owned(), Tone::Strong)], |_| of);
        x += width + 1;
    }
    let failed = state.failure.is_some() && list.rows().is_empty();
    if list.len() == 0 && state.read_ms.is_some() && !failed {
        let text =
            if list.rows().is_empty() { T::empty(state) } else { "nothing passes the filter; Esc clears it" };
        put(buffer, line(areas.rows, 0), 1, text, style(state, Tone::Faint));
    }
    for (y, (is_selected, row)) in list.window(usize::from(areas.rows.height)).enumerate() {
        let area = line(areas.rows, y as u16);
        let mut x = area.x;
        for (n, width) in &columns {
            let pieces = row.cell(state, *n, usize::from(*width));
            cell(buffer, area, x, *width, T::COLUMNS[*n].right, &pieces, |tone| style(state, tone));
            x += width + 1;
        }
        if is_selected {
            buffer.set_style(area, style(state, Tone::Plain).add_modifier(Modifier::REVERSED));
        }
    }
}

fn cell(
    buffer: &mut Buffer,
    area: Rect,
    x: u16,
    width: u16,
    right: bool,
    pieces: &[Piece],
    of: impl Fn(Tone) -> ratatui::style::Style,
) {
    let total: usize = pieces.iter().map(|(text, _)| Span::raw(clean(text)).width()).sum();
    let pad = usize::from(width).saturating_sub(total) as u16;
    let area = Rect { width: (x + width).min(area.right()).saturating_sub(area.x), ..area };
    let mut at = if right { x + pad } else { x };
    for (text, tone) in pieces {
        at = put(buffer, area, at, text, of(*tone));
    }
    if total > usize::from(width) && width > 1 {
        put(buffer, area, x + width - 1, "…", of(pieces.last().map_or(Tone::Plain, |(_, tone)| *tone)));
    }
}

/// The caption: the subject of the list, the part that is shown, and its order.
fn caption<T: DrawnRow>(buffer: &mut Buffer, state: &State, list: &RowList<T>, area: Rect) {
    let is_jobs = state.screen == Screen::Jobs && state.shown_detail().is_none();
    let more = match state.shown_detail() {
        Some(detail) => detail.more,
        None => is_jobs && state.jobs.has_more(),
    };
    let mut text = format!(" {}{} {}", list.len(), if more { "+" } else { "" }, T::WHAT);
    if list.len() != 1 {
        text.push('s');
    }
    if is_jobs && state.jobs.active {
        text.push_str(", active ones alone");
    }
    if list.len() > 0 {
        text.push_str(&format!(", at {}", list.place() + 1));
    }
    if !state.filter().is_empty() {
        text.push_str(&format!(", filter: {}", state.filter()));
    }
    match list.sort {
        Some(column) if more => text.push_str(&format!(", those read by {}", T::COLUMNS[column].title)),
        Some(column) => text.push_str(&format!(", by {}", T::COLUMNS[column].title)),
        None => {}
    }
    if list.reversed {
        text.push_str(", reversed");
    }
    let mut x = put(buffer, area, 0, &text, style(state, Tone::Plain));
    if let Some(failure) = &state.failure {
        x = put(buffer, area, x, &format!("  cannot read: {failure}"), style(state, Tone::Bad));
    }
    if state.screen == Screen::Workers && state.shown_detail().is_none() {
        legend(buffer, state, Rect { x: x + 2, width: area.width.saturating_sub(x + 2), ..area });
    }
}

/// The signs of the queues that hold most.
fn legend(buffer: &mut Buffer, state: &State, area: Rect) {
    let Some(overview) = &state.overview else { return };
    let mut x = area.x;
    for holds in &overview.cpus.by_queue {
        let Some(place) = state.queue_signs.iter().position(|queue| *queue == holds.queue) else { continue };
        let text = format!("{} {}", sign_of(place), clean(&holds.queue));
        if usize::from(x) + Span::raw(&text).width() > usize::from(area.right()) {
            break;
        }
        x = put(buffer, area, x, &text, style(state, Tone::Queue(place))) + 2;
    }
}
