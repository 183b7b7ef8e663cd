//! What a tool answers, in no more bytes than a model can use.
//!
//! - An answer has at most [`ANSWER_BYTES_MAX`] bytes, whatever the farm says.
//! - What is cut says so, in the text, which every client shows.
//! - The structured content keeps its form: texts and lists become shorter, and fields stay.

use serde_json::{Map, Value, json};

/// Bytes of a tool's result. What reads it is a model, and a list of a million tasks would fill its memory. [`CUT`] names it.
pub const ANSWER_BYTES_MAX: usize = 32 << 10;
/// Bytes of each of its two parts, the text and the structured content. The rest is for the fields around them.
pub const PART_BYTES_MAX: usize = ANSWER_BYTES_MAX / 2 - (1 << 10);
/// Fields of an object that was cut. No type has as many; maps of names to amounts may.
const FIELDS_MAX: usize = 40;
/// Bytes of a text and entries of a list in structured content that is too large, tried one after the other.
const SHORTER: [(usize, usize); 5] = [(4_000, 200), (1_000, 50), (300, 20), (80, 6), (24, 2)];
/// What the text of an answer ends with that was cut.
const CUT: &str = "\n(cut: an answer has at most 32 KiB; ask for fewer entries or lines at a time)";

/// What a tool answers.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolAnswer {
    /// The answer for people, and for clients that know text alone.
    pub text: String,
    /// The same as the tool's output schema has it.
    pub structured: Value,
}

impl ToolAnswer {
    /// The fields of the result of a call.
    pub fn fields(self) -> Map<String, Value> {
        let Some((structured, is_shorter)) = fit(self.structured) else {
            return error_fields("the answer is too large even when it is cut; ask for less at a time");
        };
        let begin = head(&self.text, PART_BYTES_MAX);
        let is_cut = is_shorter || begin.len() < self.text.len();
        let text = if is_cut { format!("{begin}{CUT}") } else { self.text };
        fields_of(json!({
            "content": [{"type": "text", "text": text}],
            "structuredContent": structured,
            "isError": false,
        }))
    }
}

/// The fields of the result of a call that failed. The model reads the text, and can mend what it asked for.
pub fn error_fields(text: &str) -> Map<String, Value> {
    let text = head(text, PART_BYTES_MAX);
    fields_of(json!({"content": [{"type": "text", "text": text}], "isError": true}))
}

/// True if a part of an answer with this text, or this value written as JSON, need not be cut.
pub fn fits(text: &str) -> bool {
    text.len() <= PART_BYTES_MAX && text.chars().map(escaped_bytes).sum::<usize>() <= PART_BYTES_MAX
}

/// The last characters of a text that have at most that many bytes as JSON.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    let mut left = bytes_max;
    for (at, c) in text.char_indices().rev() {
        match left.checked_sub(escaped_bytes(c)) {
            Some(rest) => left = rest,
            None => return &text[at + c.len_utf8()..],
        }
    }
    text
}

/// The first characters of a text that have at most that many bytes as JSON.
fn head(text: &str, bytes_max: usize) -> &str {
    let mut left = bytes_max;
    for (at, c) in text.char_indices() {
        match left.checked_sub(escaped_bytes(c)) {
            Some(rest) => left = rest,
            None => return &text[..at],
        }
    }
    text
}

/// Bytes of a character in a JSON string.
fn escaped_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// The value in at most [`PART_BYTES_MAX`], and whether it was cut; `None` if even short texts and lists are too much.
fn fit(value: Value) -> Option<(Value, bool)> {
    let is_small = |value: &Value| value.to_string().len() <= PART_BYTES_MAX;
    if is_small(&value) {
        return Some((value, false));
    }
    let mut tried = SHORTER.iter().map(|(bytes, items)| shorter(&value, *bytes, *items));
    tried.find(is_small).map(|value| (value, true))
}

fn shorter(value: &Value, bytes_max: usize, items_max: usize) -> Value {
    let inside = |value: &Value| shorter(value, bytes_max, items_max);
    match value {
        Value::String(text) => match head(text, bytes_max) {
            begin if begin.len() < text.len() => Value::String(format!("{begin}…")),
            _ => value.clone(),
        },
        Value::Array(items) => Value::Array(items.iter().take(items_max).map(inside).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().take(FIELDS_MAX);
            Value::Object(kept.map(|(name, value)| (name.clone(), inside(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The fields of a value that is written as an object.
pub fn fields_of(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(fields: Map<String, Value>) -> usize {
        Value::Object(fields).to_string().len()
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[a-z]{0,9}", "[\\x00-\\x1f\"é]{0,9}", "x{3000,9000}", "\u{1}{3000,9000}"];
        let leaf = prop_oneof![any::<u64>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(4, 300, 40, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..40).prop_map(Value::Array),
                proptest::collection::btree_map("[a-z]{1,12}", inner, 0..50)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_answer_is_over_its_bound(
            structured in values(),
            text in "\\PC{0,40}|[\\x00-\\x1f\n]{0,40}",
            times in 0usize..2000,
        ) {
            let answer = ToolAnswer { text: text.repeat(times), structured };
            prop_assert!(bytes_of(answer.fields()) <= ANSWER_BYTES_MAX);
            prop_assert!(bytes_of(error_fields(&text.repeat(times))) <= ANSWER_BYTES_MAX);
        }

        #[test]
        fn ends_of_a_text_have_the_bytes_that_they_take(
            text in "\\PC{0,30}|[\\x00-\\x1f\"]{0,30}",
            most in 0usize..60,
        ) {
            for end in [head(&text, most), tail(&text, most)] {
                prop_assert!(Value::from(end).to_string().len() - 2 <= most);
            }
            prop_assert!(text.starts_with(head(&text, most)) && text.ends_with(tail(&text, most)));
            prop_assert_eq!(fits(&text), Value::from(&*text).to_string().len() - 2 <= PART_BYTES_MAX);
        }
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let items: Vec<Value> = (0..5_000).map(|n| json!({"id": format!("1.{n}")})).collect();
        let fields = ToolAnswer { text: "tasks".to_owned(), structured: json!({"items": items}) }.fields();
        let kept = fields["structuredContent"]["items"].as_array().unwrap().len();
        assert_eq!(kept, 200);
        assert!(fields["content"][0]["text"].as_str().unwrap().starts_with("tasks\n(cut:"));
        let small = ToolAnswer { text: "t".to_owned(), structured: json!({"n": 1}) }.fields();
        assert_eq!(small["content"][0]["text"], "t");
    }
}
