//! JSON from clients, read within bounds of memory.
//!
//! A value takes much more memory than its text: an empty object is three bytes of text, and some hundred in memory. So the
//! values of a text are counted before it is read, and one with too many is refused.

use serde::de::DeserializeOwned;

/// How much a text may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonLimits {
    /// Values, and names of values.
    pub values_max: usize,
    /// Objects among these values.
    pub objects_max: usize,
}

impl JsonLimits {
    /// Of a submission: a job may name millions of values, and 100,000 waits of steps for others.
    pub const SUBMISSION: JsonLimits = JsonLimits { values_max: 4_000_000, objects_max: 200_000 };
    /// Of a request to a gateway, most of whose bytes are a few large texts.
    pub const GATEWAY: JsonLimits = JsonLimits { values_max: 60_000, objects_max: 10_000 };
}

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum BadJson {
    #[error("it holds more than {max} {what}; give fewer")]
    TooMany { what: &'static str, max: usize },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads a text.
///
/// # Errors
///
/// It holds more than the limits, or something else than expected.
pub fn read_json<T: DeserializeOwned>(text: &[u8], limits: JsonLimits) -> Result<T, BadJson> {
    check(text, limits)?;
    Ok(serde_json::from_slice(text)?)
}

/// Counts by the punctuation outside of strings. In what is not JSON it may count wrongly, which is refused anyway.
fn check(text: &[u8], JsonLimits { values_max, objects_max }: JsonLimits) -> Result<(), BadJson> {
    let (mut values, mut objects) = (0, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' => (values, objects) = (values + 1, objects + 1),
            b'[' | b',' | b':' => values += 1,
            _ => {}
        }
        if values > values_max {
            return Err(BadJson::TooMany { what: "values", max: values_max });
        }
        if objects > objects_max {
            return Err(BadJson::TooMany { what: "objects", max: objects_max });
        }
    }
    Ok(())
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const SMALL: JsonLimits = JsonLimits { values_max: 6, objects_max: 2 };

    #[test]
    fn what_is_in_strings_is_not_counted() {
        let read = |text: &str| read_json::<Value>(text.as_bytes(), SMALL);
        assert_eq!(read(r#"{"a": "[[[{{{,,,:::\"{{{"}"#).unwrap(), json!({"a": "[[[{{{,,,:::\"{{{"}));
        assert!(matches!(read("[1,2,3,4,5,6,7]"), Err(BadJson::TooMany { what: "values", max: 6 })));
        assert!(matches!(read("[{},{},{}]"), Err(BadJson::TooMany { what: "objects", max: 2 })));
        assert!(matches!(read("[[["), Err(BadJson::Json(_))));
    }

    fn size_of(value: &Value) -> (usize, usize) {
        match value {
            Value::Array(all) => all.iter().map(size_of).fold((1, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            Value::Object(all) => all.values().map(size_of).fold((1, 1), |a, b| (a.0 + b.0 + 1, a.1 + b.1)),
            _ => (1, 0),
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any::<i32>().prop_map(Value::from), "[\\[\\]{},:\"\\\\a]{0,4}".prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[{,:\"]{0,3}", inner, 0..5)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// As many are counted as there are, or a few more, since each value has a mark of its own.
        #[test]
        fn no_value_is_missed(value in values()) {
            let text = serde_json::to_vec(&value).unwrap();
            let (values, objects) = size_of(&value);
            let fits = |values_max, objects_max| check(&text, JsonLimits { values_max, objects_max }).is_ok();
            prop_assert!(fits(2 * values, objects));
            prop_assert!(objects == 0 || !fits(2 * values, objects - 1));
            prop_assert!(values < 3 || !fits(values / 2 - 1, objects));
        }

        #[test]
        fn any_bytes_are_counted(text in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = check(&text, SMALL);
        }
    }
}
