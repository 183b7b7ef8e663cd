//! Line numbers of paths in a TOML text. The text is scanned line by line, and the nearest line that is found is given:
//! it is for messages only.

use windlass_openjd::Key;

/// The line, from 1, of the byte at this offset.
pub fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The line, from 1, to which the path leads, or of its last part that is found; `None` if not even the first is.
pub fn line_of_path(text: &str, path: &[Key]) -> Option<usize> {
    let mut table: Vec<Key> = Vec::new();
    // Each array of tables by its path, with the number of the last entry.
    let mut arrays: Vec<(Vec<Key>, usize)> = Vec::new();
    let mut best: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let header = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(names, _)| names);
        let at = match header {
            Some(names) if is_names(names.trim_start_matches('[')) => {
                let is_entry = names.starts_with('[');
                table = enter(&names_of(names.trim_start_matches('[')), is_entry, &mut arrays);
                table.clone()
            }
            _ => {
                let Some((names, _)) = line.split_once('=').filter(|(names, _)| is_names(names)) else {
                    continue;
                };
                let names = names_of(names).into_iter().map(Key::Field);
                table.iter().cloned().chain(names).collect()
            }
        };
        if path.starts_with(&at) && best.is_none_or(|(parts, _)| at.len() > parts) {
            best = Some((at.len(), number + 1));
        }
    }
    best.map(|(_, line)| line)
}

/// The path of a table. In an array of tables the table is in the last entry; `is_entry`: it is a new entry itself.
fn enter(names: &[String], is_entry: bool, arrays: &mut Vec<(Vec<Key>, usize)>) -> Vec<Key> {
    let mut path = Vec::new();
    for (place, name) in names.iter().enumerate() {
        path.push(Key::Field(name.clone()));
        let known = arrays.iter_mut().find(|(array, _)| *array == path);
        let is_new = is_entry && place + 1 == names.len();
        match known {
            Some((_, last)) => {
                *last += usize::from(is_new);
                path.push(Key::Index(*last));
            }
            None if is_new => {
                arrays.push((path.clone(), 0));
                path.push(Key::Index(0));
            }
            None => {}
        }
    }
    path
}

fn is_names(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-. \t\"'".contains(c))
}

fn names_of(text: &str) -> Vec<String> {
    text.split('.').map(|name| name.trim().trim_matches(['"', '\'']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tables_entries_and_fields() {
        let text = "a = 1\n[b.c]\nd = [\n  \"x=y\",\n]\n[[s]]\nn = 1\n[s.r]\nq = 1\n[[s]]\nm.k = {z = 1}\n";
        let field = |name: &str| Key::Field(name.to_owned());
        let line = |path: &[Key]| line_of_path(text, path);
        assert_eq!(line(&[field("a")]), Some(1));
        assert_eq!(line(&[field("b"), field("c"), field("d"), Key::Index(0)]), Some(3));
        assert_eq!(line(&[field("s"), Key::Index(0), field("r"), field("q")]), Some(9));
        assert_eq!(line(&[field("s"), Key::Index(1)]), Some(10));
        assert_eq!(line(&[field("s"), Key::Index(1), field("m"), field("k"), field("z")]), Some(11));
        assert_eq!(line(&[field("none")]), None);
        assert_eq!(line_at(text, text.find("[[s]]").unwrap()), 6);
    }
}
