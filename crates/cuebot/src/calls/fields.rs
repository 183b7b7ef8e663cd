//! What the fields of calls may hold: keys, lists, texts and cores, with their bounds.

use crate::cuebot::Cuebot;
use crate::names;
use crate::trouble::CallError;
use tokio_postgres::types::ToSql;

/// Rows of one list at most.
pub(super) const ROWS_MAX: i64 = 100_000;
/// Entries of a list that a client sends. A job may have this number of frames.
pub(super) const ENTRIES_MAX: usize = crate::frames::FRAMES_MAX;

/// What a call answers. `()` is a message without fields: calls that only change something answer with it.
pub(super) type Answer<T> = Result<T, CallError>;

/// The key of a row that a client names. It has it from an earlier answer.
pub(super) fn id<'a>(what: &'static str, id: Option<&'a String>) -> Result<&'a str, CallError> {
    match id {
        Some(id) if !id.is_empty() => Ok(id),
        _ => Err(CallError::Value(format!("the call names no {what}"))),
    }
}

/// Sets one value of one row. Nothing that a client sends is part of the statement.
pub(super) async fn set(
    cuebot: &Cuebot,
    statement: &'static str,
    what: &'static str,
    key: Option<&String>,
    value: &(dyn ToSql + Sync),
) -> Result<(), CallError> {
    let key = id(what, key)?;
    CallError::unless_found(cuebot.pool.get().await?.execute(statement, &[&key, value]).await?, what, key)
}

/// Cores as clients have them. A negative number stands for a missing cap, and has no hundredths.
pub(super) fn cores(hundredths: i32) -> f32 {
    if hundredths < 0 { -1.0 } else { hundredths as f32 / 100.0 }
}

/// Cores of an amount that is never negative.
pub(super) fn all_cores(hundredths: i64) -> f32 {
    hundredths as f32 / 100.0
}

/// Hundredths of cores, as the tables have them.
pub(super) fn hundredths(cores: f32) -> Result<i32, CallError> {
    if !cores.is_finite() || !(-1.0..=1e6).contains(&cores) {
        return Err(CallError::Value(format!("{cores} is not a valid number of cores")));
    }
    Ok((cores * 100.0).round() as i32)
}

/// Hundredths of cores as the tables have them; -1 for a missing cap.
pub(super) fn hundredths_or_none(cores: f32) -> Result<i32, CallError> {
    Ok(if cores < 0.0 { -1 } else { hundredths(cores)? })
}

/// Refuses a list with too many entries.
pub(super) fn few(what: &'static str, entries: usize) -> Result<(), CallError> {
    if entries > ENTRIES_MAX {
        return Err(CallError::Value(format!("the call names {entries} {what}; at most {ENTRIES_MAX} fit")));
    }
    Ok(())
}

/// Refuses tags that the tables cannot hold.
pub(super) fn tags(tags: &[String]) -> Result<(), CallError> {
    few("tags", tags.len())?;
    for tag in tags {
        names::plain("tag", tag, 1, names::width::TAG)?;
    }
    Ok(())
}

/// Refuses a text that does not fit its column.
pub(super) fn text(what: &'static str, given: &str, max: usize) -> Result<(), CallError> {
    let length = given.chars().count();
    if length > max {
        return Err(CallError::Value(format!("the {what} has {length} characters; at most {max} fit")));
    }
    if given.contains('\0') {
        return Err(CallError::Value(format!("the {what} has a NUL character, which no table holds")));
    }
    Ok(())
}

/// A text that fits its column.
pub(super) fn fitting(what: &'static str, given: &str, max: usize) -> Result<String, CallError> {
    text(what, given, max)?;
    Ok(given.to_owned())
}

/// Refuses a name that is empty, has more than one line, or does not fit its column.
pub(super) fn name(what: &'static str, given: &str, max: usize) -> Result<(), CallError> {
    text(what, given, max)?;
    if given.trim().is_empty() || given.chars().any(char::is_control) {
        return Err(CallError::Value(format!("the {what} is empty or has control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_its_column_is_refused_before_it_is_sent() {
        assert!(text("message", &"é".repeat(10), 10).is_ok());
        assert!(text("message", "12345678901", 10).is_err());
        assert!(text("message", "a\0b", 10).is_err());
        assert!(name("group", " ", 10).is_err() && name("group", "a\nb", 10).is_err());
        assert!(few("frames", ENTRIES_MAX).is_ok() && few("frames", ENTRIES_MAX + 1).is_err());
    }

    #[test]
    fn no_cap_is_minus_one_on_both_sides() {
        assert_eq!((cores(-1), cores(250)), (-1.0, 2.5));
        assert_eq!((hundredths_or_none(-1.0).ok(), hundredths_or_none(2.5).ok()), (Some(-1), Some(250)));
        assert!(hundredths_or_none(f32::NAN).is_err() && hundredths(1e9).is_err());
    }
}
