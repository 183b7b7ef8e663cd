//! A job's fields as YAML: one key a line, because scripts look for lines such as `do_not_reboot: 1`.

use crate::format::Fields;
use serde_json::Value;

/// Words that some version of YAML does not read as texts.
const RESERVED: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ".inf"];

/// The fields as a YAML document.
pub fn to_yaml(fields: &Fields) -> String {
    let mut text = String::from("---\n");
    put_map(&mut text, fields, 0);
    text
}

fn put_map(text: &mut String, fields: &Fields, depth: usize) {
    for (key, value) in fields {
        text.push_str(&"  ".repeat(depth));
        text.push_str(&scalar_text(key));
        text.push(':');
        put_value(text, value, depth);
    }
}

fn put_value(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(inner) if !inner.is_empty() => {
            text.push('\n');
            put_map(text, inner, depth + 1);
        }
        Value::Array(all) if !all.is_empty() => {
            text.push('\n');
            for entry in all {
                text.push_str(&"  ".repeat(depth));
                text.push_str("- ");
                // An entry of a list is JSON on one line, which is YAML, too.
                text.push_str(&line_of(entry));
                text.push('\n');
            }
        }
        value => {
            text.push(' ');
            text.push_str(&line_of(value));
            text.push('\n');
        }
    }
}

/// A value on one line.
fn line_of(value: &Value) -> String {
    match value {
        Value::String(one) => scalar_text(one),
        other => escaped(other),
    }
}

/// JSON with escapes for the characters that JSON allows in texts and YAML does not.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    let one = |c: char| match c {
        c if c.is_control() || "\u{feff}\u{2028}\u{2029}\u{fffe}\u{ffff}".contains(c) => {
            format!("\\u{:04x}", c as u32)
        }
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

/// A text without quotes if YAML reads it as that text, otherwise with quotes.
fn scalar_text(text: &str) -> String {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-./@+,".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && text.chars().all(inside)
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { escaped(&Value::from(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    #[test]
    fn scripts_find_their_lines() {
        let fields = json!({"do_not_reboot": 1, "suite": "iperf", "on": "yes", "hw": {"nr_cpu": "2", "memory": "8G"},
            "list": ["a", "b: c", {"x": [1]}], "empty": {}, "none": null, "version": "22.03", "a b": "x\ny"});
        let text = to_yaml(fields.as_object().unwrap());
        for line in ["do_not_reboot: 1", "suite: iperf", "  memory: \"8G\"", "- a", "version: \"22.03\""] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert_eq!(read(&text), fields);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(key in "[ -~]{1,8}", value in "\\PC{0,12}", more in ".{0,6}") {
            let fields = json!({key: {"v": value.clone()}, "list": [value, more]});
            prop_assert_eq!(read(&to_yaml(fields.as_object().unwrap())), fields);
        }
    }
}
