//! The setting `lease`.

use super::setting::{Setting, SettingType, Unit};
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;
use windlass_api::quantity::parse_seconds;

/// How long a worker may be silent before its tasks are run elsewhere.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Lease {
    /// The time in seconds.
    Seconds(f64),
    /// Until an administrator says that the worker is gone.
    Never(Never),
}

/// The word `never`, in the place of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Never {
    /// No lease ends by itself.
    Never,
}

impl Lease {
    /// How long; `None` is for ever.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Lease::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
            Lease::Never(_) => None,
        }
    }
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Lease::Never(Never::Never)),
            _ => Ok(Lease::Seconds(parse_seconds(text)?)),
        }
    }
}

impl SettingType for Lease {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        let (value, number) = match self {
            Lease::Seconds(seconds) => (seconds.to_string(), Some(*seconds)),
            Lease::Never(_) => ("\"never\"".to_owned(), None),
        };
        settings.push(Setting { kind: "`\"never\"`, or seconds", value: Some(value), number, ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        *self = text.parse()?;
        Ok(())
    }
}
