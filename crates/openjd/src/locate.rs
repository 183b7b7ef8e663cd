//! Line numbers of paths in a template. The library parses into values without positions, so the text is
//! scanned again: by indentation in block style, by brackets in flow style, which includes JSON. The scan is
//! not a parser. It returns the nearest line that it finds and never fails on malformed text. `error` uses it
//! for messages only.

/// One step of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// The value of the field with this name.
    Field(String),
    /// The list's entry with this index, from 0.
    Index(usize),
}

/// The line, from 1, to which the path leads, or of its last part that is found. `None` if not even the first is.
pub fn line_of(text: &str, path: &[Key]) -> Option<usize> {
    let first = text.trim_start();
    let offset = if first.starts_with('{') {
        in_flow(text, text.len() - first.len(), path)
    } else {
        in_blocks(text, path)
    };
    offset.map(|at| text[..at].matches('\n').count() + 1)
}

/// The first line, from line `from` on, that begins with this field.
pub fn line_of_key(text: &str, field: &str, from: usize) -> Option<usize> {
    for (n, line) in text.lines().enumerate().skip(from - 1) {
        let line = line.trim_start_matches([' ', '-', '{', ',']).trim_start_matches('"');
        let rest = line.strip_prefix(field).map(|rest| rest.trim_start_matches('"').trim_start());
        if rest.is_some_and(|rest| rest.starts_with(':')) {
            return Some(n + 1);
        }
    }
    None
}

/// A path as text: `steps[0] -> script`.
pub fn show_path(path: &[Key]) -> String {
    let mut text = String::new();
    for key in path {
        match key {
            Key::Index(n) => text.push_str(&format!("[{n}]")),
            Key::Field(name) if text.is_empty() => text.push_str(name),
            Key::Field(name) => text.push_str(&format!(" -> {name}")),
        }
    }
    text
}

/// Parses the path at the beginning of a sentence, `steps[0] -> script: reason`. Returns the path and the
/// reason, or no path and the whole sentence.
pub fn parse_path(sentence: &str) -> (Vec<Key>, &str) {
    let nothing = (Vec::new(), sentence);
    let Some((head, reason)) = sentence.split_once(": ") else { return nothing };
    let mut path = Vec::new();
    for part in head.split(" -> ") {
        let (name, indices) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return nothing;
        }
        path.push(Key::Field(name.to_owned()));
        for index in indices.split(['[', ']']).filter(|index| !index.is_empty()) {
            let Ok(n) = index.parse() else { return nothing };
            path.push(Key::Index(n));
        }
    }
    // A single word with a colon may begin any sentence, so it does not count as a path.
    if path.len() > 1 { (path, reason) } else { nothing }
}

/// A line in block style: its offset, the indentation of its text, and the text.
struct Line<'a> {
    at: usize,
    indent: usize,
    says: &'a str,
}

fn in_blocks(text: &str, path: &[Key]) -> Option<usize> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let says = line.trim();
        if !says.is_empty() && !says.starts_with('#') && says != "---" {
            lines.push(Line { at, indent: line.len() - line.trim_start().len(), says });
        }
        at += line.len();
    }
    let mut found = None;
    let mut rest = lines.as_mut_slice();
    for (n, key) in path.iter().enumerate() {
        let indent = rest.first()?.indent;
        let is_entry =
            |line: &Line<'_>| line.indent == indent && (line.says == "-" || line.says.starts_with("- "));
        let begins: Vec<usize> = match key {
            Key::Index(_) => (0..rest.len()).filter(|i| is_entry(&rest[*i])).collect(),
            Key::Field(_) => {
                (0..rest.len()).filter(|i| rest[*i].indent == indent && !is_entry(&rest[*i])).collect()
            }
        };
        let place = match key {
            Key::Index(n) => Some(*n),
            Key::Field(name) => begins.iter().position(|i| value_of(rest[*i].says, name).is_some()),
        };
        let Some(begin) = place.and_then(|place| begins.get(place)).copied() else { return found };
        let end = begins.iter().copied().find(|i| *i > begin).unwrap_or(rest.len());
        found = Some(rest[begin].at);
        rest = &mut rest[begin..end];
        let line = &mut rest[0];
        let (value, moved) = match key {
            Key::Index(_) => {
                let value = line.says[1..].trim_start();
                (value, line.says.len() - value.len())
            }
            Key::Field(name) => (value_of(line.says, name).unwrap_or(""), 0),
        };
        if value.starts_with(['{', '[']) {
            let from = line.at + line.indent + (line.says.len() - value.len());
            return in_flow(text, from, &path[n + 1..]).or(found);
        }
        match key {
            // The text after the dash is the first line of the entry.
            Key::Index(_) if !value.is_empty() => (line.says, line.indent) = (value, line.indent + moved),
            _ => rest = &mut rest[1..],
        }
    }
    found
}

/// The text after `name:`, if the line begins with that.
fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let quoted = |quote: char| line.strip_prefix(quote)?.strip_prefix(name)?.strip_prefix(quote);
    let rest = quoted('"').or_else(|| quoted('\'')).or_else(|| line.strip_prefix(name))?;
    let value = rest.trim_start().strip_prefix(':')?;
    (value.is_empty() || value.starts_with(' ')).then(|| value.trim_start())
}

/// Follows the path through brackets, from the offset of a value.
fn in_flow(text: &str, mut at: usize, path: &[Key]) -> Option<usize> {
    let mut found = None;
    for key in path {
        let mut place = 0;
        at = skip_space(text, at);
        let closes = match text[at..].chars().next() {
            Some('{') => '}',
            Some('[') => ']',
            _ => return found,
        };
        at += 1;
        loop {
            at = skip_space(text, at);
            let begin = at;
            if at >= text.len() || text[at..].starts_with(closes) {
                return found;
            }
            let mut name = None;
            if closes == '}' {
                at = skip_value(text, at);
                name = Some(text[begin..at].trim().trim_matches(['"', '\'']));
                at = skip_space(text, at);
                at += usize::from(text[at..].starts_with(':'));
                at = skip_space(text, at);
            }
            let is_it = match key {
                Key::Field(field) => name == Some(field.as_str()),
                Key::Index(n) => name.is_none() && *n == place,
            };
            if is_it {
                found = Some(begin);
                break;
            }
            let before = at;
            at = skip_space(text, skip_value(text, at));
            at += usize::from(text[at..].starts_with(','));
            if at == before {
                return found;
            }
            place += 1;
        }
    }
    found
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    at + (rest.len() - rest.trim_start().len())
}

/// The offset of the end of the value that begins at `at`.
fn skip_value(text: &str, at: usize) -> usize {
    let mut depth = 0usize;
    let mut quote = None;
    let mut escaped = false;
    for (n, c) in text[at..].char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']' | ',' | ':') if depth == 0 => return at + n,
            (None, '}' | ']') => depth -= 1,
            (None, _) => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, path: &str) -> Option<usize> {
        let (path, _) = parse_path(&format!("{path}: x"));
        line_of(text, &path)
    }

    #[test]
    fn lines_of_blocks() {
        let text = "# a template\nname: x\nsteps:\n- name: one\n  script:\n    data: |\n      steps:\n      - name: no\n  \
                    \n  list: [a, b]\n-\n  name: two\n  args: {a: 1,\n   b: 2}\n";
        assert_eq!(line(text, "steps[0] -> name"), Some(4));
        assert_eq!(line(text, "steps[0] -> script -> data"), Some(6));
        assert_eq!(line(text, "steps[0] -> list[1]"), Some(10));
        assert_eq!(line(text, "steps[1] -> name"), Some(12));
        assert_eq!(line(text, "steps[1] -> args -> b"), Some(14));
        assert_eq!(line(text, "steps[1] -> absent -> deep"), Some(11));
        assert_eq!(line(text, "steps[7] -> name"), Some(3));
    }

    #[test]
    fn lines_of_json() {
        let text = "{\n \"name\": \"a, {b\\\"\",\n \"steps\": [\n  {\"name\": \"x\"},\n  {\n   \"name\": [1,\n    2]}]}";
        assert_eq!(line(text, "steps[0] -> name"), Some(4));
        assert_eq!(line(text, "steps[1] -> name"), Some(6));
        assert_eq!(line(text, "steps[1] -> name[1]"), Some(7));
        assert_eq!(line(text, "steps[2] -> name"), Some(3));
    }

    #[test]
    fn a_sentence_without_a_path_stays_whole() {
        assert_eq!(parse_path("no: path"), (Vec::new(), "no: path"));
        assert_eq!(parse_path("steps[x]: y").1, "steps[x]: y");
    }
}
