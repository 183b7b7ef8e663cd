//! Queries of lists: how many entries a part has, which states are meant, and where the next part begins.

use crate::api_error::ApiError;
use serde::de::DeserializeOwned;
use windlass_api::{ErrorCode, Page, state_word};

/// Entries of one part of a list.
pub(super) const PAGE_MAX: usize = 1000;
/// Entries of a list where the caller does not say.
pub(super) const PAGE_DEFAULT: usize = 100;

/// How much of a list a caller gets.
pub(super) fn page_size(asked: Option<usize>) -> Result<usize, ApiError> {
    within("limit", asked, PAGE_DEFAULT, PAGE_MAX)
}

/// A number of a query from 1 to `max`.
pub(super) fn within<N>(name: &str, asked: Option<N>, default: N, max: N) -> Result<N, ApiError>
where
    N: PartialOrd + From<u8> + std::fmt::Display,
{
    match asked {
        None => Ok(default),
        Some(n) if n >= N::from(1) && n <= max => Ok(n),
        Some(n) => {
            let why = format!("{name} must be from 1 to {max}, not {n}");
            Err(ApiError::new(ErrorCode::BadRequest, why))
        }
    }
}

/// The states that a query names, separated by commas. `words` are all that there are.
pub(super) fn parse_states<T: DeserializeOwned>(text: &str, words: &str) -> Result<Vec<T>, ApiError> {
    let states = text.split(',').map(|word| {
        serde_json::from_value(state_word(word.trim()).into()).map_err(|_| {
            ApiError::new(ErrorCode::BadRequest, format!("there is no state '{word}'")).hint(words)
        })
    });
    states.collect()
}

/// A part of a list of which one entry more was asked for than is given.
pub(super) fn part<T>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
