//! The areas of the screen.

use ratatui::layout::Rect;

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

impl Areas {
    /// The areas of a terminal of these columns and rows. Whatever does not fit has no height. `holds`, `summary` and
    /// `heads` are the lines that those parts ask for.
    pub fn of((width, height): (u16, u16), holds: u16, summary: u16, heads: u16) -> Areas {
        let mut left = Rect { x: 0, y: 0, width, height };
        let mut take = |lines: u16| {
            let part = Rect { height: lines.min(left.height), ..left };
            left = Rect { y: left.y + part.height, height: left.height - part.height, ..left };
            part
        };
        let (header, holds, caption) = (take(HEADER), take(holds), take(1));
        let (summary, heads) = (take(summary), take(heads));
        let rows = take(height.saturating_sub(heads.y + heads.height + 1));
        Areas { header, holds, caption, summary, heads, rows, footer: take(1) }
    }
}
