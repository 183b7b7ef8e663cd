//! Text for a terminal: its width in cells, cut, wrapped and coloured.

use anstyle::{AnsiColor, Style};
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr as _;

/// Characters that are looked at for each cell. A letter may have some marks, which take no cell, but not any number.
const CHARS_PER_CELL_MAX: usize = 8;

/// The number of cells that a text without control characters takes in a line of a terminal. A wide character takes two,
/// a mark on a letter takes none.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// The text, or as much of it as fits that many cells with a `…` at its end.
pub fn cut(text: &str, cells: usize) -> Cow<'_, str> {
    if width(text) <= cells {
        return Cow::Borrowed(text);
    }
    match cells.checked_sub(1) {
        None => Cow::Borrowed(""),
        Some(room) => Cow::Owned(format!("{}…", &text[..prefix(text, room)])),
    }
}

/// The end of the longest beginning of a text that fits that number of cells.
fn prefix(text: &str, cells: usize) -> usize {
    let mut end = 0;
    for (n, (at, character)) in text.char_indices().enumerate() {
        let next = at + character.len_utf8();
        if n >= cells.saturating_mul(CHARS_PER_CELL_MAX) || width(&text[..next]) > cells {
            break;
        }
        end = next;
    }
    end
}

/// A text in lines of at most that many cells, those after the first indented by `indent` cells. A word that is longer
/// than a line is divided.
pub fn wrap(text: &str, cells: usize, indent: usize) -> Vec<String> {
    let indent = " ".repeat(indent.min(cells / 2));
    let (mut lines, mut line, mut filled) = (Vec::new(), String::new(), 0);
    for word in text.split(' ') {
        let mut rest = word;
        loop {
            let length = width(rest);
            let gap = usize::from(filled > indent.len() || (lines.is_empty() && filled > 0));
            if filled + gap + length <= cells {
                if gap > 0 {
                    line.push(' ');
                }
                line.push_str(rest);
                filled += gap + length;
                break;
            }
            let is_empty = gap == 0;
            if is_empty {
                // A line takes one character at least, or there would be no end.
                let first = rest.chars().next().map_or(0, char::len_utf8);
                let at = prefix(rest, cells.saturating_sub(filled)).max(first);
                line.push_str(&rest[..at]);
                rest = &rest[at..];
            }
            lines.push(std::mem::replace(&mut line, indent.clone()));
            filled = indent.len();
            if is_empty && rest.is_empty() {
                break;
            }
        }
    }
    if filled > indent.len() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// A text for one line: control characters are escaped, and what exceeds that many cells is cut.
pub fn fit(text: &str, cells: Option<usize>) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    match cells {
        Some(cells) => cut(&escaped, cells).into_owned(),
        None => escaped,
    }
}

/// A state in its colour.
pub fn paint(state: &str) -> String {
    let style = match state {
        "succeeded" | "up" | "ok" => AnsiColor::Green.on_default(),
        "failed" | "suspect" | "missing" => AnsiColor::Red.on_default(),
        "running" | "booked" => AnsiColor::Cyan.on_default(),
        "held" | "draining" | "canceled" | "note" => AnsiColor::Yellow.on_default(),
        "skipped" | "waiting" => Style::new().dimmed(),
        _ => Style::new(),
    };
    format!("{style}{state}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_keep_to_their_line() {
        assert_eq!(fit("a\nb\u{1b}[31m", None), "a\\nb\\u{1b}[31m");
        assert_eq!(fit("größer", Some(4)), "grö…");
        assert_eq!(fit("four", Some(4)), "four");
    }

    #[test]
    fn wide_characters_take_two_cells() {
        assert_eq!(width("日本語"), 6);
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本語", 1), "…");
        assert_eq!(cut("日本語", 0), "");
    }

    #[test]
    fn texts_are_wrapped_at_words() {
        assert_eq!(wrap("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(wrap("onetwothree", 4, 0), ["onet", "woth", "ree"]);
        assert_eq!(wrap("日本語", 4, 0), ["日本", "語"]);
        assert_eq!(wrap("", 4, 2), [""]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_and_no_letter_is_lost(
            text in "[a-z語é ]{0,80}",
            cells in 2_usize..30,
            indent in 0_usize..40,
        ) {
            let lines = wrap(&text, cells, indent);
            prop_assert!(lines.iter().all(|line| width(line) <= cells.max(3)), "{:?}", lines);
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }

        #[test]
        fn a_text_that_is_cut_fits_and_says_so(text in "\\PC{0,60}", cells in 1_usize..40) {
            let shown = cut(&text, cells);
            prop_assert!(width(&shown) <= cells, "{:?}", shown);
            prop_assert!(shown == text || shown.ends_with('…'), "{:?}", shown);
        }
    }
}
