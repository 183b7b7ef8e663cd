//! The page of the server's settings, from the types of `server.toml`: their doc comments say what they mean, and a
//! default configuration says what they are.

use super::{MADE, cell, compare, text};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A setting as its type declares it.
struct Field {
    name: String,
    kind: String,
    meaning: String,
}

/// The public structures of a source, with their fields.
fn structures(source: &str, found: &mut BTreeMap<String, Vec<Field>>) {
    for (at, _) in source.match_indices("\npub struct ") {
        let declared = &source[at + "\npub struct ".len()..];
        let Some((name, body)) = declared.split_once(" {\n") else { continue };
        let body = body.split("\n}").next().unwrap();
        let (mut fields, mut meaning) = (Vec::new(), Vec::new());
        for line in body.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("///") {
                meaning.push(comment.trim());
            } else if let Some((name, kind)) =
                line.strip_prefix("pub ").and_then(|line| line.split_once(": "))
            {
                let kind = kind.trim_end_matches(',').to_owned();
                fields.push(Field { name: name.to_owned(), kind, meaning: meaning.join(" ") });
                meaning.clear();
            }
        }
        found.insert(name.to_owned(), fields);
    }
}

/// The values of a default configuration by their path, such as `load.release`, from its Debug text.
fn defaults() -> BTreeMap<String, String> {
    let debug = format!("{:#?}", windlass_server::Config::default());
    let (mut found, mut path) = (BTreeMap::new(), Vec::<String>::new());
    for line in debug.lines().skip(1) {
        let line = line.trim();
        if let Some((name, value)) = line.split_once(": ") {
            match value.strip_suffix(',') {
                Some(value) => {
                    _ = found.insert([path.join("."), name.to_owned()].join("."), value.to_owned())
                }
                None => path.push(name.to_owned()),
            }
        } else if line.starts_with(['}', ')']) || line.starts_with(']') {
            path.pop();
        } else if let Some(value) = line.strip_suffix(',') {
            // The content of an enumeration, such as the seconds of a lease.
            found.insert(format!(".{}", path.join(".")), value.to_owned());
        }
    }
    found.into_iter().map(|(path, value)| (path.trim_start_matches('.').to_owned(), value)).collect()
}

/// A default as the file would have it; empty where there is none.
fn written(value: &str) -> String {
    match value {
        "None" | "{}" | "[]" => String::new(),
        word if word.starts_with(char::is_uppercase) => format!("`\"{}\"`", word.to_lowercase()),
        number => format!("`{}`", number.strip_suffix(".0").unwrap_or(number)),
    }
}

/// What a type is in TOML, in a word.
fn word(kind: &str) -> &'static str {
    let inner = kind.trim_start_matches("Option<").trim_end_matches('>');
    match inner {
        "bool" => "true or false",
        "f32" | "f64" => "number",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" => "integer",
        "Lease" => "seconds, or `\"never\"`",
        "Vec<String" | "Vec<IpAddr" | "BTreeSet<String" => "list of texts",
        _ if inner.starts_with("BTreeMap") => "table",
        _ => "text",
    }
}

/// A table for one structure, and then for those inside.
fn section(
    page: &mut String,
    at: &str,
    of: &str,
    all: &BTreeMap<String, Vec<Field>>,
    set: &BTreeMap<String, String>,
) {
    let is_structure = |kind: &str| {
        let kind = kind.trim_start_matches("Option<").trim_end_matches('>');
        all.get_key_value(kind).map(|(name, _)| name.clone())
    };
    let (inside, own): (Vec<&Field>, Vec<&Field>) = all[of]
        .iter()
        .partition(|field| is_structure(&field.kind).is_some() || field.kind.ends_with("SetQueue>"));
    if !own.is_empty() {
        page.push_str("\n| setting | value | default | meaning |\n|---|---|---|---|\n");
    }
    for Field { name, kind, meaning } in own {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let default = set.get(&path).map(|value| written(value)).unwrap_or_default();
        _ = writeln!(page, "| `{name}` | {} | {default} | {} |", word(kind), cell(meaning));
    }
    for Field { name, kind, meaning } in inside {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match is_structure(kind) {
            Some(structure) => {
                _ = write!(page, "\n## \\[{path}\\]\n\n{}\n", cell(meaning));
                section(page, &path, &structure, all, set);
            }
            None => {
                _ = write!(page, "\n## \\[{path}.NAME\\]\n\n{}\n", cell(meaning));
                section(page, "queues.NAME", "SetQueue", all, set);
            }
        }
    }
}

#[test]
fn the_page_of_settings_is_the_server_s() {
    let mut all = BTreeMap::new();
    for source in [
        "crates/server/src/config.rs",
        "crates/server/src/config/placement.rs",
        "crates/server/src/config/telemetry.rs",
        "crates/api/src/queue.rs",
    ] {
        structures(&text(source), &mut all);
    }
    let set = defaults();
    let mut page = format!("{MADE}\n# Settings of the server\n\n");
    page.push_str(
        "`server.toml` has these settings; all of them may be left out. A service reads `/etc/windlass/server.toml`, and\n\
         `windlass server start --config FILE` any other. Its [flags](commands.md#windlass-server-start) and their variables go\n\
         over the file. A setting that is not known here, or makes no sense, keeps the server from starting, with the reason.\n\
         [The server](../server.md) explains most of them.\n",
    );
    section(&mut page, "", "Config", &all, &set);
    for expected in [
        "| `keep_days` | number | `14` |",
        "`\"time\"`",
        "## \\[queues.NAME\\]",
        "| `lease` | seconds, or `\"never\"` | `300` |",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    compare("settings.md", &page);
}
