//! Words of the core on the wire: texts in JSON, enums in the OpenAPI document.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use windlass_core::explain::{Cause, Word};

macro_rules! on_the_wire {
    ($(#[$doc:meta])* $name:ident = $of:ty, $words:expr, $parse:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub $of);

        impl $name {
            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                self.0.as_str()
            }
        }

        impl From<$of> for $name {
            fn from(word: $of) -> Self {
                $name(word)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = Cow::<str>::deserialize(from)?;
                let known = $parse(&word);
                known.map($name).ok_or_else(|| D::Error::custom(format!("'{word}' is not one of the words")))
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words: Vec<&str> = $words.collect();
                ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).enum_values(Some(words)).into()
            }
        }

        impl ToSchema for $name {}
    };
}

on_the_wire! {
    /// One word for why a task, or work for a worker, is where it is. Newer servers may know more words.
    WhyWord = Word, Word::ALL.iter().map(|word| word.as_str()),
    |word: &str| Some(Word::parse(word))
}

on_the_wire! {
    /// Why a task failed, in one word. Newer servers may know more words.
    CauseWord = Cause, Cause::ALL.iter().map(|(_, word)| *word),
    |word: &str| Some(Cause::parse(word))
}

/// Gives an enum without fields its words on the wire, as serde writes them; with `of`, also the conversion from the
/// core's enum of the same variants.
macro_rules! words_of {
    ($name:ident of $core:ty: $($variant:ident $word:literal),+) => {
        $crate::word::words_of!($name: $($variant $word),+);

        impl From<$core> for $name {
            fn from(from: $core) -> Self {
                type Core = $core;
                match from {
                    $(Core::$variant => $name::$variant,)+
                }
            }
        }
    };
    ($name:ident: $($variant:ident $word:literal),+) => {
        impl $name {
            /// All that there are, in their order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The word in texts for people, which are in British English.
            pub fn shown(self) -> &'static str {
                match self.as_str() {
                    "canceled" => $crate::word::CANCELLED,
                    word => word,
                }
            }
        }
    };
}

pub(crate) use words_of;

/// How texts for people spell `canceled`, which stays the word on the wire and in the database.
pub(crate) const CANCELLED: &str = "cancelled";

/// The word on the wire of a state that a person may have written as texts show it.
pub fn state_word(written: &str) -> &str {
    if written == CANCELLED { "canceled" } else { written }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_serde() {
        use crate::{
            CacheRight, End, HeldBack, JobState, Jobserver, Kind, Role, TaskState, TurnsBy, WorkerState,
        };
        fn check<T: Copy + Serialize>(all: &[T], as_str: fn(T) -> &'static str) {
            for word in all {
                assert_eq!(serde_json::to_value(word).unwrap(), as_str(*word));
            }
        }
        check(CacheRight::ALL, CacheRight::as_str);
        check(End::ALL, End::as_str);
        check(HeldBack::ALL, HeldBack::as_str);
        check(Jobserver::ALL, Jobserver::as_str);
        check(JobState::ALL, JobState::as_str);
        check(Kind::ALL, Kind::as_str);
        check(Role::ALL, Role::as_str);
        check(TaskState::ALL, TaskState::as_str);
        check(TurnsBy::ALL, TurnsBy::as_str);
        check(WorkerState::ALL, WorkerState::as_str);
    }

    #[test]
    fn a_state_is_written_in_both_spellings_and_shown_in_one() {
        use crate::{End, JobState, TaskState};
        assert_eq!((JobState::Canceled.as_str(), JobState::Canceled.shown()), ("canceled", "cancelled"));
        assert_eq!((TaskState::Canceled.shown(), End::Canceled.shown()), ("cancelled", "cancelled"));
        assert_eq!(TaskState::Running.shown(), "running");
        for written in ["canceled", "cancelled"] {
            assert_eq!(state_word(written), TaskState::Canceled.as_str());
        }
        assert_eq!(state_word("failed"), "failed");
    }

    #[test]
    fn words_are_texts_and_newer_ones_do_no_harm() {
        assert_eq!(serde_json::to_string(&WhyWord(Word::LicenceBusy)).unwrap(), "\"licence_busy\"");
        for word in Word::ALL {
            let text = serde_json::to_string(&WhyWord(*word)).unwrap();
            assert_eq!(serde_json::from_str::<WhyWord>(&text).unwrap(), WhyWord(*word));
        }
        assert_eq!(serde_json::from_str::<WhyWord>("\"quantum\"").unwrap(), WhyWord(Word::Other));
    }
}
