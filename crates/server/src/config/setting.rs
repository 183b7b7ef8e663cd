//! A setting is defined once, by the macro `settings`: its name, type, default, unit, bounds and meaning. From that
//! definition come the type that the server's file is read into, assignment by path (`--set` and variables), the check
//! of bounds, and the page of the manual.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_api::SetQueue;
use windlass_api::quantity::{parse_days, parse_minutes, parse_seconds, parse_size};

/// The unit of a number in the file. A text for `--set` or a variable may name another unit, as in `2GiB` or `12h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Unit {
    /// The setting's own sentence tells the unit, such as percent.
    #[default]
    Plain,
    /// Sizes, as [`parse_size`] reads them.
    Bytes,
    /// Durations, as [`parse_seconds`] reads them.
    Seconds,
    /// Durations, as [`parse_minutes`] reads them.
    Minutes,
    /// Durations, as [`parse_days`] reads them.
    Days,
}

/// One setting with its value, or a table of settings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Setting {
    /// Its path in the file, such as `load.max_cpu_pressure`; empty for the whole file.
    pub path: String,
    /// The type of its value, in words of the manual; empty for a table.
    pub kind: &'static str,
    /// Its value, written as in the file. `None` where it is not set, and for a table.
    pub value: Option<String>,
    pub(super) number: Option<f64>,
    pub(super) unit: Unit,
    /// The smallest and the largest number that is taken.
    pub(super) bounds: Option<(f64, f64)>,
    /// What it does, in one or two sentences.
    pub meaning: &'static str,
    /// The name of its flag and its variable in earlier releases, where that is not its path: `max_cpu_pressure`.
    pub(super) formerly: Option<&'static str>,
}

impl Setting {
    /// Its path as one word, as in the names of variables.
    fn word(&self) -> String {
        self.path.replace('.', "_")
    }

    /// True if it is a table, whose settings follow it.
    pub fn is_table(&self) -> bool {
        self.kind.is_empty()
    }

    pub(super) fn inside(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The environment variables that set it: `WINDLASS_LOAD_MAX_CPU_PRESSURE`, and the name of earlier releases.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let words = [Some(self.word()), self.formerly.map(str::to_owned)];
        words.into_iter().flatten().map(|word| format!("WINDLASS_{}", word.to_ascii_uppercase()))
    }

    /// The numbers that are taken, in words; `None` if all are.
    pub fn range(&self) -> Option<String> {
        self.bounds.map(|(min, max)| match max.is_infinite() {
            true => format!("at least {min}"),
            false => format!("from {min} to {max}"),
        })
    }

    /// Says why its value is refused.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.bounds, self.number, self.range()) {
            (Some((min, max)), Some(number), Some(range)) if !(min..=max).contains(&number) => {
                Err(format!("{} must be {range}, not {number}", self.path))
            }
            _ => Ok(()),
        }
    }
}

/// The setting that a flag means, such as one of an earlier release: `max-cpu-pressure`. `None` if no setting has that
/// name.
pub(super) fn setting_of_flag(settings: Vec<Setting>, flag: &str) -> Option<Setting> {
    let flag = flag.replace('-', "_");
    let mut begins_so = None;
    for setting in settings.into_iter().filter(|setting| !setting.is_table()) {
        if setting.formerly == Some(flag.as_str()) || setting.word() == flag {
            return Some(setting);
        }
        let last = setting.path.rsplit('.').next().unwrap_or_default();
        if begins_so.is_none() && last.starts_with(&flag) {
            begins_so = Some(setting);
        }
    }
    begins_so
}

/// The smallest and the largest number of a range.
pub(super) fn bounds<T: Copy + Into<f64>>(range: RangeInclusive<T>) -> (f64, f64) {
    ((*range.start()).into(), (*range.end()).into())
}

pub(super) trait SettingType {
    /// Lists the setting that `at` tells of, or the table with the settings inside.
    fn list(&self, at: Setting, settings: &mut Vec<Setting>);

    /// Assigns a text to the setting at `path` below this table; the path is empty for a single setting. A list or a table
    /// of names gets what the text has besides.
    fn assign(&mut self, path: &str, text: &str, unit: Unit) -> Result<(), String>;
}

impl SettingType for bool {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        settings.push(Setting { kind: "true or false", value: Some(self.to_string()), ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        *self = match text {
            "true" | "1" | "yes" | "on" => true,
            "false" | "0" | "no" | "off" => false,
            _ => return Err(format!("'{text}' is neither true nor false")),
        };
        Ok(())
    }
}

impl SettingType for f64 {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        let kind = match at.unit {
            Unit::Plain => "number",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Minutes => "minutes",
            Unit::Days => "days",
        };
        settings.push(Setting { kind, value: Some(self.to_string()), number: Some(*self), ..at });
    }

    fn assign(&mut self, _: &str, text: &str, unit: Unit) -> Result<(), String> {
        *self = match unit {
            Unit::Seconds => parse_seconds(text)?,
            Unit::Minutes => parse_minutes(text)?,
            Unit::Days => parse_days(text)?,
            Unit::Plain | Unit::Bytes => {
                text.parse().map_err(|_| format!("'{text}' is not a valid number"))?
            }
        };
        Ok(())
    }
}

macro_rules! integers {
    ($($integer:ty),+) => { $(
        impl SettingType for $integer {
            fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
                let kind = if at.unit == Unit::Bytes { "bytes" } else { "integer" };
                settings.push(Setting { kind, value: Some(self.to_string()), number: Some(*self as f64), ..at });
            }

            fn assign(&mut self, _: &str, text: &str, unit: Unit) -> Result<(), String> {
                let digits = match unit {
                    Unit::Bytes => parse_size(text)?.to_string(),
                    _ => text.to_owned(),
                };
                *self = digits.parse().map_err(|_| format!("'{text}' is not a valid whole number"))?;
                Ok(())
            }
        }
    )+ };
}

integers!(u32, u64, usize, i32);

impl SettingType for String {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        let value = (!self.is_empty()).then(|| format!("\"{self}\""));
        settings.push(Setting { kind: "text", value, ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        text.clone_into(self);
        Ok(())
    }
}

impl SettingType for PathBuf {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        self.display().to_string().list(at, settings);
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        *self = text.into();
        Ok(())
    }
}

impl<T: FromStr<Err: Display> + Display> SettingType for Vec<T> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        let texts: Vec<String> = self.iter().map(|text| format!("\"{text}\"")).collect();
        let value = (!texts.is_empty()).then(|| format!("[{}]", texts.join(", ")));
        settings.push(Setting { kind: "list of texts", value, ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        for part in text.split(',') {
            self.push(part.trim().parse::<T>().map_err(|why| format!("'{part}': {why}"))?);
        }
        Ok(())
    }
}

impl SettingType for BTreeMap<String, PathBuf> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        settings.push(Setting { kind: "table, `NAME = \"DIR\"`", ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        for part in text.split(',') {
            let (name, path) = part.split_once('=').ok_or_else(|| format!("write NAME=DIR, not '{part}'"))?;
            self.insert(name.trim().to_owned(), path.into());
        }
        Ok(())
    }
}

/// Queues are set in the file, and on the running server by `windlass queue set`.
impl SettingType for BTreeMap<String, SetQueue> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        settings.push(Setting { path: at.inside("NAME"), ..at });
    }

    fn assign(&mut self, _: &str, _: &str, _: Unit) -> Result<(), String> {
        Err("only the file sets queues".to_owned())
    }
}

/// A setting without a default. The settings of a table have theirs even where the table is absent.
impl<T: SettingType + Default> SettingType for Option<T> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        let (path, before) = (at.path.clone(), settings.len());
        match self {
            Some(value) => value.list(at, settings),
            None => {
                T::default().list(at, settings);
                for setting in settings[before..].iter_mut().filter(|setting| setting.path == path) {
                    (setting.value, setting.number) = (None, None);
                }
            }
        }
    }

    fn assign(&mut self, path: &str, text: &str, unit: Unit) -> Result<(), String> {
        self.get_or_insert_default().assign(path, text, unit)
    }
}

pub(super) fn assign_word<T: for<'de> Deserialize<'de>>(setting: &mut T, text: &str) -> Result<(), String> {
    let word: StrDeserializer<'_, WordError> = text.into_deserializer();
    *setting = T::deserialize(word).map_err(|why| why.to_string())?;
    Ok(())
}

/// Makes a type with one word for each variant a [`SettingType`].
macro_rules! words {
    ($name:ident, $kind:literal) => {
        const _: () = {
            use $crate::config::setting::*;

            impl SettingType for $name {
                fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
                    let value = Some(format!("\"{self:?}\"").to_lowercase());
                    settings.push(Setting { kind: $kind, value, ..at });
                }

                fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
                    assign_word(self, text)
                }
            }
        };
    };
}

/// Defines a table of settings: its type with all defaults, and what [`SettingType`] tells of it. The documentation of a
/// field is the setting's meaning in the manual.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:expr
                    $(, unit $unit:ident)? $(, within $bounds:expr)? $(, formerly $formerly:literal)?;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, PartialEq, Debug, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )+ }
            }
        }

        const _: () = {
            use $crate::config::setting::*;

            impl SettingType for $name {
                fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
                    settings.push(at.clone());
                    $(
                        let of_field = Setting {
                            path: at.inside(stringify!($field)),
                            meaning: concat!($($doc),+).trim_start(),
                            $( unit: Unit::$unit, )?
                            $( bounds: Some(bounds($bounds)), )?
                            $( formerly: Some($formerly), )?
                            ..Setting::default()
                        };
                        self.$field.list(of_field, settings);
                    )+
                }

                fn assign(&mut self, path: &str, text: &str, unit: Unit) -> Result<(), String> {
                    let (field, below) = path.split_once('.').unwrap_or((path, ""));
                    $(
                        if field == stringify!($field) {
                            return self.$field.assign(below, text, unit);
                        }
                    )+
                    Err(format!("there is no setting '{field}'"))
                }
            }
        };
    };
}

pub(super) use settings;
pub(super) use words;
