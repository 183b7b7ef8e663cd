//! Text on the screen: its place, and the style of its meaning.

use crate::commands::top::clean::clean;
use crate::commands::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color as Tint, Modifier, Style};

/// The meaning of a part of the screen, which decides its style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Text without a meaning of its own.
    Plain,
    /// Something of less weight.
    Faint,
    Strong,
    /// A state that is as it should be.
    Good,
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
pub fn put(buffer: &mut Buffer, area: Rect, x: u16, text: &str, style: Style) -> u16 {
    if area.height == 0 || x >= area.right() {
        return x;
    }
    buffer.set_stringn(x, area.y, clean(text), usize::from(area.right() - x), style).0
}

/// The part of an area that is its `n`th line; without height if there is none.
pub fn line(area: Rect, n: u16) -> Rect {
    let height = u16::from(n < area.height);
    Rect { y: area.y + n.min(area.height), height, ..area }
}
