//! The overlays of the screen: the list of keys, and questions. The footer shows the typed text.

use crate::commands::top::draw::paint::{Tone, line, put, style};
use crate::commands::top::keys::{BINDINGS, Screen};
use crate::commands::top::state::{Overlay, State};
use crate::ui::text::wrap;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Widget};

/// Columns of a question.
const QUESTION: u16 = 60;
/// Columns of the keys in the help.
const KEYS: u16 = 20;

/// Draws what is asked, over everything else.
pub fn draw(buffer: &mut Buffer, state: &State, area: Rect) {
    match &state.overlay {
        None | Some(Overlay::Filter(..)) => {}
        Some(Overlay::Help(top)) => help(buffer, state, area, *top),
        Some(Overlay::Confirm(question, _)) => {
            let mut lines: Vec<String> = question.clone();
            lines.extend([String::new(), "y: yes   n: no".to_owned()]);
            boxed(buffer, state, area, &lines);
        }
        Some(Overlay::Note(question, deed)) => {
            let mut lines: Vec<String> = question.clone();
            let note = deed.clone().note().map(|note| note.clone()).unwrap_or_default();
            lines.push("A note for those who ask why; it may stay empty:".to_owned());
            lines.extend([format!("> {note}_"), String::new(), "Enter: yes   Esc: no".to_owned()]);
            boxed(buffer, state, area, &lines);
        }
    }
}

/// A box in the middle; answers what is inside.
fn frame(buffer: &mut Buffer, state: &State, area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    let block = Block::bordered().style(style(state, Tone::Plain));
    let inside = block.inner(place);
    block.render(place, buffer);
    inside
}

fn boxed(buffer: &mut Buffer, state: &State, area: Rect, lines: &[String]) {
    let cleaned = lines.iter().map(|line| crate::commands::top::clean::clean(line));
    let wrapped: Vec<String> = cleaned.flat_map(|line| wrap(&line, usize::from(QUESTION - 4), 0)).collect();
    let inside = frame(buffer, state, area, QUESTION, wrapped.len() as u16 + 2);
    for (n, text) in wrapped.iter().enumerate() {
        let tone = if n == 0 { Tone::Strong } else { Tone::Plain };
        put(buffer, line(inside, n as u16), inside.x + 1, text, style(state, tone));
    }
}

fn help(buffer: &mut Buffer, state: &State, area: Rect, top: usize) {
    let inside = frame(buffer, state, area, area.width.min(100), BINDINGS.len() as u16 + 4);
    let rows = usize::from(inside.height.saturating_sub(2));
    let top = top.min(BINDINGS.len().saturating_sub(rows));
    put(
        buffer,
        inside,
        inside.x + 1,
        "Keys; those that are faint do nothing on this screen",
        style(state, Tone::Strong),
    );
    for (n, binding) in BINDINGS.iter().skip(top).take(rows).enumerate() {
        let area = line(inside, n as u16 + 1);
        let works = binding.on.is_empty() || binding.on.contains(&state.screen);
        let tone = if works { Tone::Plain } else { Tone::Faint };
        put(buffer, area, inside.x + 1, binding.shown, style(state, Tone::Strong));
        let x = put(buffer, area, inside.x + KEYS, binding.text, style(state, tone));
        let on: Vec<&str> = binding.on.iter().map(|screen| screen.title()).collect();
        let text = format!(" ({})", on.join(", "));
        if !on.is_empty() && usize::from(x) + text.len() <= usize::from(area.right()) {
            put(buffer, area, x, &text, style(state, Tone::Faint));
        }
    }
    let more =
        if top + rows < BINDINGS.len() { "j, k: more keys; any other key closes" } else { "any key closes" };
    put(buffer, line(inside, inside.height.saturating_sub(1)), inside.x + 1, more, style(state, Tone::Faint));
}

/// Draws the last line: what is typed, what is said, or the keys of the screen.
pub fn footer(buffer: &mut Buffer, state: &State, area: Rect) {
    if let Some(Overlay::Filter(text, _)) = &state.overlay {
        put(buffer, area, 0, &format!("/{text}_   Enter: keep   Esc: as before"), style(state, Tone::Strong));
        return;
    }
    if let Some(notice) = &state.notice {
        let tone = if notice.is_bad { Tone::Bad } else { Tone::Good };
        put(buffer, area, 0, &notice.text, style(state, tone));
        return;
    }
    let keys = match (state.screen, state.shown_detail().is_some()) {
        (Screen::Workers, false) => "Enter open  w why  d drain/resume  / filter  s sort  r reverse",
        (Screen::Workers, true) => "Enter l output  w why  d drain/resume  / filter  Esc back",
        (Screen::Jobs, false) => "Enter open  w why  l output  c cancel  a active  / filter",
        (Screen::Jobs, true) => "Enter l output  w why  c cancel  / filter  s sort  Esc back",
        (Screen::Queues, _) => "Enter jobs  p pause/resume  / filter  s sort  r reverse",
        (Screen::Why, _) => "j k scroll  l output  Esc back",
        (Screen::Logs, _) => "j k scroll  G follow  ← → aside  / lines with  w why  Esc back",
    };
    put(buffer, area, 0, &format!("{keys}  ? help  q quit"), style(state, Tone::Faint));
}
