//! A writer that keeps one event of the log on one line. Events carry text from outside: names, addresses, messages of
//! machines. A line break in such text would forge a line, and other control characters would move or hide text on a
//! terminal. The writer escapes them for every event and form of the log, so no place that logs has to remember it.

use std::borrow::Cow;
use std::io::{self, Write};

/// Writes each event as one line.
pub struct OneLine<W> {
    to: W,
    /// Whether the form of the log has colours. It escapes those of the text by itself.
    has_colours: bool,
}

impl<W: Write> OneLine<W> {
    /// A writer that passes whole lines on to `to`.
    pub fn new(to: W, has_colours: bool) -> Self {
        OneLine { to, has_colours }
    }
}

impl<W: Write> Write for OneLine<W> {
    /// Takes a whole event with the line break at its end, as the layer of log lines writes it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        match escape(line, self.has_colours) {
            Cow::Borrowed(_) => self.to.write_all(text.as_bytes())?,
            Cow::Owned(shown) => self.to.write_all((shown + end).as_bytes())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The text without characters that end a line, move the cursor, or change the direction of what follows.
fn escape(text: &str, has_colours: bool) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(at) = rest.find(is_unsafe) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let colour = if has_colours { colour_bytes(from) } else { 0 };
        if colour > 0 {
            shown.push_str(&from[..colour]);
            rest = &from[colour..];
            continue;
        }
        let mut chars = from.chars();
        shown.extend(chars.next().into_iter().flat_map(char::escape_default));
        rest = chars.as_str();
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Bytes of the sequence that sets a colour, with which the text begins; 0 if it begins otherwise.
fn colour_bytes(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(numbers.len());
    if numbers[end..].starts_with('m') { "\u{1b}[".len() + end + "m".len() } else { 0 }
}

/// Control characters of both ranges, separators of lines, and marks that change the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Text by which a machine tries to forge a line, clear the screen and turn the text around.
    const FORGED: &str =
        "done\n2026-11-26T00:00:00Z  INFO all is well\r\u{1b}[2J\u{9b}2K\u{2028}\u{202e}evil\t\u{0}";

    #[derive(Clone, Default)]
    struct LoggedBytes(Arc<Mutex<Vec<u8>>>);

    impl Write for LoggedBytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log after two events with the text: as a message, as a field, and as the name of a span.
    fn logged(form: &str) -> String {
        let kept = LoggedBytes::default();
        let (to, has_colours) = (kept.clone(), form == "colours");
        let lines =
            fmt::layer().with_ansi(has_colours).with_writer(move || OneLine::new(to.clone(), has_colours));
        let events = || {
            let _span = tracing::info_span!("request", path = FORGED).entered();
            tracing::warn!("a machine says: {FORGED}");
            tracing::warn!(said = FORGED, name = %FORGED, shown = ?FORGED, "a machine says something");
        };
        match form {
            "json" => {
                tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.json()), events)
            }
            _ => tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), events),
        }
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn whatever_is_logged_an_event_is_one_line() {
        for form in ["text", "colours", "json"] {
            let log = logged(form);
            assert_eq!(log.matches('\n').count(), 2, "{form}: {log:?}");
            assert!(log.contains("a machine says") && log.contains("evil"), "{form}: {log:?}");
            let rest = log.replace('\n', "");
            let hidden: Vec<char> = rest.chars().filter(|c| is_unsafe(*c) && *c != '\u{1b}').collect();
            assert!(hidden.is_empty(), "{form}: {hidden:?}");
            assert!(form == "colours" || !log.contains('\u{1b}'), "{form}: {log:?}");
            assert!(!log.contains("\u{1b}[2J"), "{form}: {log:?}");
        }
    }

    #[test]
    fn colours_of_the_form_stay_and_nothing_else_does() {
        let line = "\u{1b}[2m12:00\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m x\u{1b}[2Jy\u{1b}]0;title\u{7}\u{1b}[";
        let shown = escape(line, true);
        assert_eq!(
            shown,
            "\u{1b}[2m12:00\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m x\\u{1b}[2Jy\\u{1b}]0;title\\u{7}\\u{1b}["
        );
        assert!(!escape(line, false).contains('\u{1b}'));
        assert!(matches!(escape("plain text, größer als 你好", false), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_written_ends_as_it_did() {
        let kept = LoggedBytes::default();
        let mut writer = OneLine::new(kept.clone(), false);
        assert_eq!(writer.write(b"a\nb\n").unwrap(), 4);
        assert_eq!(writer.write(b"c").unwrap(), 1);
        writer.flush().unwrap();
        assert_eq!(*kept.0.lock().unwrap(), b"a\\nb\nc");
    }
}
