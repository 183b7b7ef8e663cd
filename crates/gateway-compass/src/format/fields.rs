//! The fields of a job or a host, and their values as text.

/// The JSON object of a job or a host.
pub type Fields = serde_json::Map<String, serde_json::Value>;

/// A field as text: a text, a number or a truth value; `None` for others.
pub fn text_of(fields: &Fields, key: &str) -> Option<String> {
    scalar(fields.get(key)?)
}

/// A single value as text; `None` for lists, objects and null.
pub(crate) fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A list of texts, from a list, or from one text with commas or spaces; empty for null, `None` for anything else.
pub(crate) fn texts(value: &serde_json::Value) -> Option<Vec<String>> {
    match value {
        serde_json::Value::Array(all) => all.iter().map(scalar).collect(),
        serde_json::Value::String(text) => {
            let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
            Some(parts.map(str::to_owned).collect())
        }
        serde_json::Value::Null => Some(Vec::new()),
        _ => None,
    }
}

/// True for a valid name of a shell's variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(fits)
}

/// A text in which letters, digits and these signs of ASCII stay, and every other character becomes `_`.
pub(super) fn plain(text: &str, signs: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || signs.contains(c) { c } else { '_' }).collect()
}

/// True if a list of names, with blanks between them, has this name.
pub(crate) fn has_name(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}
