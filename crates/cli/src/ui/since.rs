//! The moment from which on a list is wanted.

use crate::ui::quantity::now_ms;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::str::FromStr;
use windlass_api::client::server_ahead_ms;
use windlass_api::quantity::parse_duration;

/// The value of `--since`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// That many milliseconds before now.
    Ago(u64),
    /// A moment of this machine's clock, in milliseconds since the Unix epoch.
    At(u64),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ms) = parse_duration(text) {
            return Ok(Since::Ago(ms));
        }
        let here = || text.parse::<DateTime>().and_then(|time| time.to_zoned(TimeZone::system()));
        let moment = text.parse::<Timestamp>().or_else(|_| here().map(|time| time.timestamp()));
        let moment = moment.map_err(|_| {
            format!("invalid time '{text}': write 2h, 2026-03-01, '2026-03-01 14:30' or 2026-03-01T14:30:00Z")
        })?;
        Ok(Since::At(u64::try_from(moment.as_millisecond()).unwrap_or(0)))
    }
}

impl Since {
    /// The moment by the server's clock, in milliseconds since the Unix epoch.
    pub fn server_ms(self) -> u64 {
        match self {
            Since::Ago(ms) => now_ms().saturating_sub(ms),
            Since::At(ms) => ms.saturating_add_signed(server_ahead_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_or_a_time() {
        assert_eq!("90s".parse(), Ok(Since::Ago(90_000)));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(Since::At(1000)));
        assert_eq!("1970-01-01T02:00:01+02:00".parse(), Ok(Since::At(1000)));
        for local in ["2026-03-01", "2026-03-01 14:30", "2026-03-01T14:30:05"] {
            assert!(matches!(local.parse(), Ok(Since::At(_))), "{local}");
        }
        for bad in ["", "yesterday", "0s", "2026-13-01"] {
            assert!(bad.parse::<Since>().unwrap_err().contains("write 2h"), "{bad}");
        }
    }
}
