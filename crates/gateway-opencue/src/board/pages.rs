//! What requests of the board may ask for, and the pages that answer them.

use super::trouble::BoardTrouble;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use serde_json::Value;
use tokio_postgres::Row;
use windlass_api::Page;

/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// Entries of a page where the request names no number.
const PAGE_DEFAULT: usize = 100;
/// Characters of a filter, of a name and of a cursor.
const TEXT_CHARS_MAX: usize = 512;
/// A host that reports and counts as up, in a statement about rows `s` of `host_stat`. `$1` is the age in seconds at
/// which a host counts as silent.
pub(super) const IS_UP: &str =
    "coalesce(s.str_state = 'UP' AND s.ts_ping > now() - make_interval(secs => $1), false)";
/// Frames by state as OpenCue counts them, in a statement about rows `s` of counts.
const COUNTS: &str = "json_build_object('waiting', s.int_waiting_count, 'running', s.int_running_count,
    'depend', s.int_depend_count, 'dead', s.int_dead_count, 'succeeded', s.int_succeeded_count,
    'eaten', s.int_eaten_count, 'checkpoint', s.int_checkpoint_count)";

/// A statement with the parts that several have.
pub(super) fn statement(text: &str) -> String {
    text.replace("{counts}", COUNTS).replace("{is_up}", IS_UP)
}

/// The first column of a row, which is JSON as text.
pub(super) fn entry(row: &Row) -> Value {
    serde_json::from_str(row.get(0)).unwrap_or_default()
}

/// A page of rows, of which one more was read than it has. Each row is an entry and its cursor.
pub(super) fn page(rows: &[Row], size: usize) -> Page<Value> {
    part(rows.iter().map(|row| (entry(row), row.get(1))).collect(), size)
}

fn part(mut entries: Vec<(Value, String)>, size: usize) -> Page<Value> {
    let more = entries.len() > size;
    entries.truncate(size);
    let next = entries.last().filter(|_| more).map(|(_, cursor)| cursor.clone());
    Page { items: entries.into_iter().map(|(entry, _)| entry).collect(), next }
}

/// The number of entries of a page.
pub(super) fn page_size(asked: Option<usize>) -> Result<usize, BoardTrouble> {
    match asked {
        None => Ok(PAGE_DEFAULT),
        Some(size) if (1..=PAGE_MAX).contains(&size) => Ok(size),
        Some(size) => Err(BoardTrouble::Asked(format!("limit must be from 1 to {PAGE_MAX}, not {size}"))),
    }
}

pub(super) fn key(path: Result<Path<String>, PathRejection>) -> Result<String, BoardTrouble> {
    let Path(shown) = path?;
    text("the path", Some(shown))?.ok_or_else(|| BoardTrouble::Asked("the path has no name".to_owned()))
}

/// A text of a request, which PostgreSQL can hold. An empty one is `None`.
pub(super) fn text(name: &str, text: Option<String>) -> Result<Option<String>, BoardTrouble> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.contains('\0') {
        return Err(BoardTrouble::Asked(format!("{name} must not contain the character NUL")));
    }
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err(BoardTrouble::Asked(format!("{name} has more than {TEXT_CHARS_MAX} characters")));
    }
    Ok(Some(text))
}

/// A cursor of a number, a dot and a key.
pub(super) fn read_cursor(shown: Option<String>) -> Result<(Option<i64>, Option<String>), BoardTrouble> {
    let Some(shown) = text("cursor", shown)? else { return Ok((None, None)) };
    let parts = shown.split_once('.').and_then(|(number, key)| Some((number.parse().ok()?, key.to_owned())));
    let (number, key) =
        parts.ok_or_else(|| BoardTrouble::Asked(format!("'{shown}' is not a valid cursor")))?;
    Ok((Some(number), Some(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_as_many_entries_as_asked_for_within_bounds() {
        assert_eq!(page_size(None).unwrap(), PAGE_DEFAULT);
        assert_eq!(page_size(Some(PAGE_MAX)).unwrap(), PAGE_MAX);
        for size in [0, PAGE_MAX + 1] {
            assert!(page_size(Some(size)).is_err(), "{size}");
        }
        let entries = |numbers: &[i32]| {
            numbers.iter().map(|number| (Value::from(*number), number.to_string())).collect::<Vec<_>>()
        };
        let all = part(entries(&[1, 2, 3]), 2);
        assert_eq!((all.items, all.next), (vec![Value::from(1), Value::from(2)], Some("2".to_owned())));
        let last = part(entries(&[3]), 2);
        assert_eq!((last.items, last.next), (vec![Value::from(3)], None));
    }

    proptest! {
        #[test]
        fn a_cursor_is_read_as_it_was_written(number: i64, key in "[!-~]{1,36}") {
            let (read, read_key) = read_cursor(Some(format!("{number}.{key}"))).unwrap();
            prop_assert_eq!((read, read_key), (Some(number), Some(key)));
        }

        #[test]
        fn any_text_is_taken_or_refused(shown in "(?s).{0,600}") {
            let taken = text("name", Some(shown.clone()));
            prop_assert_eq!(taken.is_err(), shown.contains('\0') || shown.chars().count() > TEXT_CHARS_MAX);
            let _ = read_cursor(Some(shown));
        }
    }
}
