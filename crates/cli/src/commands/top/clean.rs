//! Text from outside, made fit for a terminal. Names, notes and output are chosen by users and tasks: an escape sequence
//! among them must not reach the terminal.

use anstream::adapter::StripBytes;
use std::borrow::Cow;

/// Characters of one line of output that are kept; the rest of the line is dropped.
pub const LINE_CHARS_MAX: usize = 2_000;
/// Columns between tab stops.
const TAB: usize = 8;
/// The sign for the rest of a line.
const CUT: char = '…';

/// True for characters that are not drawn as they are: control characters, and those without a width that change the
/// order or the meaning of their neighbours.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text with such characters escaped, as `\n` or `\u{1b}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    text.chars().for_each(|character| push(&mut cleaned, character));
    Cow::Owned(cleaned)
}

fn push(to: &mut String, character: char) {
    if is_unsafe(character) {
        to.extend(character.escape_default());
    } else {
        to.push(character);
    }
}

/// Makes lines of the bytes of one stream. Escape sequences are dropped, even those that two parts share, and
/// so are bytes that are no text; a line that was
/// begun again with a carriage return, as progress bars do, keeps what was written last.
#[derive(Default)]
pub struct LineMaker {
    strip: StripBytes,
    /// Bytes of a character whose end has not come yet.
    pending: Vec<u8>,
    line: String,
    chars: usize,
    returned: bool,
}

impl LineMaker {
    /// Takes the next bytes in, and hands over the lines that they end.
    pub fn feed(&mut self, bytes: &[u8], mut line_ended: impl FnMut(String)) {
        let mut kept = std::mem::take(&mut self.pending);
        self.strip.strip_next(bytes).for_each(|part| kept.extend_from_slice(part));
        let mut rest = kept.as_slice();
        while !rest.is_empty() {
            let (valid, bad) = match std::str::from_utf8(rest) {
                Ok(valid) => (valid, Some(0)),
                Err(error) => {
                    let (valid, _) = rest.split_at(error.valid_up_to());
                    (std::str::from_utf8(valid).unwrap_or_default(), error.error_len())
                }
            };
            valid.chars().for_each(|character| self.take(character, &mut line_ended));
            rest = &rest[valid.len()..];
            match bad {
                None => {
                    self.pending = rest.to_vec();
                    return;
                }
                Some(0) => {}
                Some(bad) => {
                    self.take(char::REPLACEMENT_CHARACTER, &mut line_ended);
                    rest = &rest[bad..];
                }
            }
        }
    }

    /// The line that has not ended yet; empty if there is none.
    pub fn open_line(&self) -> &str {
        &self.line
    }

    fn take(&mut self, character: char, line_ended: &mut impl FnMut(String)) {
        match character {
            '\n' => {
                line_ended(std::mem::take(&mut self.line));
                (self.chars, self.returned) = (0, false);
                return;
            }
            '\r' => {
                self.returned = true;
                return;
            }
            _ => {}
        }
        if std::mem::take(&mut self.returned) {
            self.line.clear();
            self.chars = 0;
        }
        if self.chars >= LINE_CHARS_MAX {
            if self.chars == LINE_CHARS_MAX {
                self.line.push(CUT);
                self.chars += 1;
            }
            return;
        }
        if character == '\t' {
            let spaces = TAB - self.chars % TAB;
            self.line.extend(std::iter::repeat_n(' ', spaces));
            self.chars += spaces;
        } else {
            push(&mut self.line, character);
            self.chars += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(parts: &[&[u8]]) -> Vec<String> {
        let (mut maker, mut lines) = (LineMaker::default(), Vec::new());
        parts.iter().for_each(|part| maker.feed(part, |line| lines.push(line)));
        lines.push(maker.open_line().to_owned());
        lines
    }

    #[test]
    fn names_are_shown_without_their_effect() {
        assert_eq!(clean("film 1"), "film 1");
        assert_eq!(clean("a\u{1b}[2Jb\n\u{9b}c\u{202e}d"), "a\\u{1b}[2Jb\\n\\u{9b}c\\u{202e}d");
    }

    #[test]
    fn escape_sequences_are_dropped_even_in_two_parts() {
        assert_eq!(lines(&[b"a\x1b[3", b"1mred\x1b[0m\nb\x1b]0;title\x07c"]), ["ared", "bc"]);
        assert_eq!(lines(&[b"caf\xc3", b"\xa9 \xff\n"]), ["café ", ""]);
        assert_eq!(lines(&[b"10%\r20%\r\ndone\ttab"]), ["20%", "done    tab"]);
    }

    #[test]
    fn long_lines_are_cut() {
        let made = lines(&[&[b'x'; 5_000], b"\nnext"]);
        assert_eq!((made[0].chars().count(), made[1].as_str()), (LINE_CHARS_MAX + 1, "next"));
    }

    proptest! {
        #[test]
        fn no_bytes_leave_anything_unsafe(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            for line in lines(&parts) {
                prop_assert!(!line.chars().any(is_unsafe), "{line:?}");
            }
        }

        #[test]
        fn no_text_stays_unsafe(text in any::<String>()) {
            prop_assert!(!clean(&text).chars().any(is_unsafe));
        }
    }
}
