//! Values of a config file by their dotted keys. Each is taken once, and the unknown ones remain.

use super::error::ConfigError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use windlass_api::quantity::parse_seconds;
use windlass_api::{Addresses, NAME_PATTERNS_MAX, is_name_pattern};
use windlass_cuebot::{NETWORKS_MAX, Network};

/// Levels of a file at most.
const LEVELS_MAX: usize = 16;

/// The values that were not taken yet.
pub(super) struct Values(BTreeMap<String, Value>);

impl Values {
    pub(super) fn parse(text: &str) -> Result<Values, ConfigError> {
        let whole: Value = match text.trim() {
            "" => Value::Null,
            text => serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?,
        };
        let mut values = Values(BTreeMap::new());
        match whole {
            Value::Null => {}
            Value::Object(_) => values.add(String::new(), whole, 0),
            other => return Err(ConfigError::Yaml(format!("it is {other}, and no mapping"))),
        }
        Ok(values)
    }

    fn add(&mut self, key: String, value: Value, level: usize) {
        match value {
            Value::Object(parts) if level < LEVELS_MAX => {
                for (name, part) in parts {
                    let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                    self.add(key, part, level + 1);
                }
            }
            // A key without a value is as good as absent.
            Value::Null => {}
            value => {
                self.0.insert(key, value);
            }
        }
    }

    /// The keys that were not taken.
    pub(super) fn rest(self) -> Vec<String> {
        self.0.into_keys().collect()
    }

    fn read<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.0.remove(key) else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None if key.ends_with("db_pass") => {
                Err(ConfigError::Value { key: key.to_owned(), value: "(hidden)".to_owned(), expected })
            }
            None => Err(ConfigError::Value { key: key.to_owned(), value: value.to_string(), expected }),
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        self.read(key, "a text", |value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    }

    /// A filter of the log, in the words of [`log_setting`].
    pub(super) fn log_setting(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        let expected = "a level ('off', 'error', 'warn', 'info', 'debug', 'trace'), or levels of parts as in \
                        'scheduler=debug,sqlx=warn'";
        self.read(key, expected, |value| log_setting(value.as_str()?))
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.read(key, "a list of texts", |value| {
            let texts = value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
            texts.collect()
        })
    }

    /// Patterns of users' names. An empty list is refused, because it would leave out all users.
    pub(super) fn name_patterns(&mut self, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.read(key, "a list of up to 100 names of users such as ann or 'film-*'", |value| {
            let texts = value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
            let patterns = texts.collect::<Option<Vec<String>>>()?;
            let is_good = (1..=NAME_PATTERNS_MAX).contains(&patterns.len());
            (is_good && patterns.iter().all(|pattern| is_name_pattern(pattern))).then_some(patterns)
        })
    }

    /// Networks. An empty list is refused, because it would refuse all callers.
    pub(super) fn networks(&mut self, key: &str) -> Result<Option<Vec<Network>>, ConfigError> {
        self.read(key, "a list of up to 256 networks such as '10.1.0.0/16'", |value| {
            let networks = value.as_array()?.iter().map(|text| text.as_str()?.parse::<Network>().ok());
            let networks = networks.collect::<Option<Vec<Network>>>()?;
            (1..=NETWORKS_MAX).contains(&networks.len()).then_some(networks)
        })
    }

    /// A list of mappings with these two keys.
    pub(super) fn pairs(
        &mut self,
        key: &str,
        first: &str,
        second: &str,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let pairs = self.read(key, "a list of mappings with 'show' and 'tag'", |value| {
            let text = |pair: &Value, name: &str| Some(pair.get(name)?.as_str()?.to_owned());
            value.as_array()?.iter().map(|pair| Some((text(pair, first)?, text(pair, second)?))).collect()
        });
        Ok(pairs?.unwrap_or_default())
    }

    pub(super) fn number<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, ConfigError> {
        self.read(key, "a number in its range", |value| match value {
            Value::Number(number) => number.to_string().parse().ok(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        })
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        expected: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        self.read(key, expected, |value| {
            let text = value.as_str()?;
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        })
    }

    pub(super) fn address(&mut self, key: &str) -> Result<Option<SocketAddr>, ConfigError> {
        self.read(key, "ADDRESS:PORT", |value| value.as_str()?.parse().ok())
    }

    pub(super) fn servers(&mut self, key: &str) -> Result<Option<Addresses>, ConfigError> {
        let expected = "HOST:PORT, http://HOST:PORT or a socket's path, or several with commas";
        self.read(key, expected, |value| Addresses::parse(value.as_str()?).ok())
    }

    pub(super) fn address_or_port(&mut self, key: &str) -> Result<Option<SocketAddr>, ConfigError> {
        self.read(key, "ADDRESS:PORT, or a port of this machine", |value| match value {
            Value::Number(port) => {
                Some(SocketAddr::from(([127, 0, 0, 1], u16::try_from(port.as_u64()?).ok()?)))
            }
            value => value.as_str()?.parse().ok(),
        })
    }

    /// Seconds, from a number or from a text with units.
    pub(super) fn seconds(&mut self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(key, "a time such as 500ms, 30s, 5m or 3h", |value| {
            let seconds = value.as_f64().or_else(|| parse_seconds(value.as_str()?).ok())?;
            (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
        })
    }

    /// KiB, from a number of bytes with a unit. As in OpenCue's own scheduler, a unit without an `i` is decimal.
    pub(super) fn kib(&mut self, key: &str) -> Result<Option<i64>, ConfigError> {
        let units = [
            ("kib", 1.0),
            ("mib", 1024.0),
            ("gib", 1024.0 * 1024.0),
            ("tib", 1024.0 * 1024.0 * 1024.0),
            ("kb", 1e3 / 1024.0),
            ("mb", 1e6 / 1024.0),
            ("gb", 1e9 / 1024.0),
            ("b", 1.0 / 1024.0),
            ("", 1.0 / 1024.0),
        ];
        let kib = self.read(key, "a size such as 512MiB or 2GiB", |value| with_unit(value, &units))?;
        Ok(kib.map(|kib| kib as i64))
    }
}

/// A filter of the log as OpenCue's own scheduler takes it: a level, or levels of parts. `None` where a word is not
/// a level: it would count as the name of a part, and nothing else would be logged.
pub fn log_setting(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let mut parts = Vec::new();
    for part in text.split(',').map(str::trim) {
        // The stock default is `debug:sqlx=info`.
        let (first, rest) = match part.split_once(':').map(|(level, rest)| (log_level(level), rest)) {
            Some((Some(level), rest)) => (Some(level.to_owned()), rest),
            _ => (None, part),
        };
        parts.extend(first);
        parts.push(match rest.rsplit_once('=') {
            Some((target, level)) => format!("{target}={}", log_level(level)?),
            None => log_level(rest)?.to_owned(),
        });
    }
    Some(parts.join(","))
}

fn log_level(word: &str) -> Option<&str> {
    match word {
        // As the stock scheduler's documentation has it.
        "warning" => Some("warn"),
        "off" | "error" | "warn" | "info" | "debug" | "trace" => Some(word),
        _ => None,
    }
}

/// A number of at least 0, times its unit.
fn with_unit(value: &Value, units: &[(&str, f64)]) -> Option<f64> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.to_lowercase(),
        _ => return None,
    };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let number: f64 = number.parse().ok()?;
    Some(number * factor)
}
