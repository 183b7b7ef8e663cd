//! The end of a token, and from when on it is told: to its holder with each answer, and of workers to operators.

use windlass_core::Time;
use windlass_store::TokenRecord;

/// Longest time by which an end is told ahead: a week, in nanoseconds.
const AHEAD_MAX_NS: u64 = 7 * 86_400 * 1_000_000_000;
/// An end is told in the last tenth of a token's life, if that is less than [`AHEAD_MAX_NS`].
const LIFE_PARTS: u64 = 10;

/// When a token ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenEnd {
    /// When it ends, and whether that is told.
    pub at: Time,
    /// From when on it is told.
    pub told_from: Time,
}

impl TokenEnd {
    /// `None` of a token that lasts until it is revoked.
    pub fn of(token: &TokenRecord) -> Option<TokenEnd> {
        let at = token.expires?;
        let ahead_ns = (at.0.saturating_sub(token.created.0) / LIFE_PARTS).min(AHEAD_MAX_NS);
        Some(TokenEnd { at, told_from: Time(at.0 - ahead_ns) })
    }

    /// Whether it is told now.
    pub fn is_told(self, now: Time) -> bool {
        now >= self.told_from
    }

    /// What is told of it.
    pub fn text(self, now: Time) -> String {
        let minutes = (self.at.0.saturating_sub(now.0)) as f64 / 6e10;
        match minutes / 60.0 {
            ..1.0 => format!("expires in {minutes:.1} minutes"),
            hours @ ..48.0 => format!("expires in {hours:.1} hours"),
            hours => format!("expires in {:.1} days", hours / 24.0),
        }
    }

    /// The value of [`windlass_api::TOKEN_END_HEADER`].
    pub fn header(self) -> String {
        format!("{} {}", self.at.as_ms(), self.told_from.as_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600 * 1_000_000_000;

    fn end(life_hours: u64) -> TokenEnd {
        TokenEnd::of(&token(Some(Time((1_000 + life_hours) * HOUR_NS)))).unwrap()
    }

    fn token(expires: Option<Time>) -> TokenRecord {
        TokenRecord {
            id: "ab".to_owned(),
            hash: Default::default(),
            role: "worker".to_owned(),
            user: "ann".to_owned(),
            worker: None,
            serves: Default::default(),
            for_users: Default::default(),
            queue: None,
            cache: None,
            note: String::new(),
            created: Time(1_000 * HOUR_NS),
            expires,
            revoked: None,
        }
    }

    #[test]
    fn an_end_is_told_in_the_last_tenth_of_a_life_and_a_week_ahead_at_most() {
        for (life_hours, told_hours) in [(1, 0.1), (240, 24.0), (24 * 70, 168.0), (24 * 3650, 168.0)] {
            let end = end(life_hours);
            assert_eq!((end.at.0 - end.told_from.0) as f64 / HOUR_NS as f64, told_hours, "{life_hours}");
            assert!(end.is_told(end.told_from) && !end.is_told(Time(end.told_from.0 - 1)));
        }
        assert_eq!(TokenEnd::of(&token(None)), None);
        let end = end(240);
        assert_eq!(end.text(end.told_from), "expires in 24.0 hours");
        assert_eq!(end.text(Time(end.at.0 - 72 * HOUR_NS)), "expires in 3.0 days");
        assert_eq!(end.text(Time(end.at.0 + 1)), "expires in 0.0 minutes");
        assert_eq!(end.header(), "4464000000 4377600000");
    }
}
