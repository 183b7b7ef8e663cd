//! The page of HTTP requests, from the description of the interface.

use super::{MADE, cell, compare};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Requests by what they are about, in the order of the page.
const GROUPS: [(&str, &str); 9] = [
    ("jobs", "Jobs"),
    ("tasks", "Tasks"),
    ("files", "Files"),
    ("events", "Events"),
    ("workers", "Workers"),
    ("queues", "Queues"),
    ("limits", "Limits"),
    ("tokens", "Tokens"),
    ("board", "Board and monitoring"),
];

/// The type of a schema in a few words, with links to those that are described on the page.
fn kind(schema: &Value, named: &mut BTreeSet<String>) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        named.insert(name.to_owned());
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for list in ["oneOf", "anyOf", "allOf"] {
        if let Some(of) = schema[list].as_array() {
            let each: Vec<String> = of.iter().map(|schema| kind(schema, named)).collect();
            return each.join(" or ");
        }
    }
    let types = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec!["any".to_owned()],
    };
    let words = types.iter().map(|word| match word.as_str() {
        "array" => format!("list of {}", kind(&schema["items"], named)),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"], named))
        }
        "string" if schema["enum"].is_array() => words_of(schema).join(", "),
        "boolean" => "true or false".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

fn words_of(schema: &Value) -> Vec<String> {
    let words = schema["enum"].as_array().into_iter().flatten();
    words.map(|word| format!("`{}`", word.as_str().unwrap_or_default())).collect()
}

/// The schema of a body in JSON, if it has one.
fn body(content: &Value) -> Option<&Value> {
    let schema = &content["content"]["application/json"]["schema"];
    (!schema.is_null()).then_some(schema)
}

fn request(page: &mut String, method: &str, path: &str, described: &Value, named: &mut BTreeSet<String>) {
    let summary = cell(described["summary"].as_str().unwrap_or_default());
    let role = described["x-role"].as_str().unwrap_or_else(|| panic!("{method} {path} says not who may"));
    _ = write!(page, "\n### {} `{path}`\n\n{summary}\n\nWho may: {role}.", method.to_uppercase());
    if let Some(schema) = body(&described["requestBody"]) {
        _ = write!(page, " Body: {}.", kind(schema, named));
    }
    page.push('\n');
    let parameters: Vec<&Value> = described["parameters"].as_array().into_iter().flatten().collect();
    if !parameters.is_empty() {
        page.push_str("\n| parameter | in | type | meaning |\n|---|---|---|---|\n");
    }
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap();
        let place = parameter["in"].as_str().unwrap();
        let meaning = cell(parameter["description"].as_str().unwrap_or_default());
        _ = writeln!(page, "| `{name}` | {place} | {} | {meaning} |", kind(&parameter["schema"], named));
    }
    page.push_str("\nAnswers:\n\n| status | answer |\n|---|---|\n");
    for (status, answer) in described["responses"].as_object().unwrap() {
        if answer["$ref"].is_string() {
            // One of the errors that stand at the top of the page.
            continue;
        }
        let meaning = cell(answer["description"].as_str().unwrap_or_default());
        let of = body(answer).map(|schema| kind(schema, named)).unwrap_or_default();
        let between = if meaning.is_empty() || of.is_empty() { "" } else { ": " };
        _ = writeln!(page, "| {status} | {meaning}{between}{of} |");
    }
}

/// The errors that a request may have beside those that are listed with it.
fn shared_errors(document: &Value, named: &mut BTreeSet<String>) -> String {
    let mut text =
        "\nErrors of all requests to which they can apply:\n\n| error | meaning |\n|---|---|\n".to_owned();
    for (name, error) in document["components"]["responses"].as_object().unwrap() {
        let meaning = cell(error["description"].as_str().unwrap());
        let of = body(error).map(|schema| kind(schema, named)).unwrap();
        _ = writeln!(text, "| {name} | {meaning}: {of} |");
    }
    text
}

/// A schema with its fields, or its words.
fn schema(page: &mut String, name: &str, schema: &Value, named: &mut BTreeSet<String>) {
    let meaning = cell(schema["description"].as_str().unwrap_or_default());
    _ = write!(page, "\n### {name}\n\n{meaning}\n");
    let Some(fields) = schema["properties"].as_object() else {
        _ = write!(page, "\n{}\n", variants(schema, named));
        return;
    };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    page.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    for (field, described) in fields {
        let absent = if required.contains(&field.as_str()) { "" } else { ", may be absent" };
        let meaning = cell(described["description"].as_str().unwrap_or_default());
        _ = writeln!(page, "| `{field}` | {}{absent} | {meaning} |", kind(described, named));
    }
}

/// The alternatives of a schema with `oneOf`, one a line. Any other schema is its type.
fn variants(schema: &Value, named: &mut BTreeSet<String>) -> String {
    let Some(forms) = schema["oneOf"].as_array() else { return kind(schema, named) };
    let mut text = String::new();
    for form in forms {
        let meaning = cell(form["description"].as_str().unwrap_or_default());
        let fields: Vec<String> = form["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, described)| format!("`{field}`: {}", kind(described, named)))
            .collect();
        let is = if fields.is_empty() { kind(form, named) } else { fields.join("; ") };
        _ = writeln!(text, "- {is}{}{meaning}", if meaning.is_empty() { "" } else { ". " });
    }
    text.trim_end().to_owned()
}

/// The rows of a table of the manual: the texts of a row's cells.
fn rows(page: &str, header: &str) -> Vec<[String; 2]> {
    let table = page.split_once(header).unwrap_or_else(|| panic!("no table '{header}'")).1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let (what, who) = line.trim_matches('|').split_once('|').unwrap();
        [what, who].map(|cell| cell.trim().to_owned())
    };
    rows.map(cells).collect()
}

/// The manual says of each request that changes something, and of those that not every viewer may look at, who may.
#[test]
fn the_manual_says_what_each_role_may_ask_for() {
    let manual = include_str!("../../../../docs/src/security.md");
    let document: Value = serde_json::from_str(&windlass_server::openapi()).unwrap();
    let mut expected = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, described) in methods.as_object().unwrap() {
            let role = described["x-role"].as_str().unwrap();
            if method != "get" || role != "viewer" {
                expected.insert([format!("{} `{path}`", method.to_uppercase()), role.to_owned()]);
            }
        }
    }
    let told: BTreeSet<[String; 2]> = rows(manual, "\n| request | role |").into_iter().collect();
    assert_eq!(told, expected);
}

/// The same of the paths of gateways that change something, as their routers have them.
#[test]
fn the_manual_says_who_may_ask_gateways_to_change_something() {
    let manual = include_str!("../../../../docs/src/security.md");
    let told = rows(manual, "\n| request of a gateway | role |");
    let told: Vec<&str> = told.iter().map(|[request, _]| request.as_str()).collect();
    let compass = include_str!("../../../gateway-compass/src/http/mod.rs");
    let mut routes: Vec<&str> = Vec::new();
    for line in compass.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
        let (path, handlers) = line.split_once('"').unwrap();
        if ["post(", "put(", "any("].iter().any(|method| handlers.contains(method)) {
            routes.push(path);
        }
    }
    assert!(routes.len() > 10, "{routes:?}");
    let nix = [windlass_gateway_nix::wire::TRY_PATH, windlass_gateway_nix::wire::BUILDS_PATH];
    routes.extend(nix.into_iter().chain(["/nix/v1/builds/{job}/report"]));
    for path in &routes {
        assert!(told.iter().any(|request| request.trim_end_matches('`').ends_with(path)), "{path}");
    }
    assert_eq!(told.len(), routes.len(), "{told:?} {routes:?}");
}

#[test]
fn the_page_of_requests_is_the_server_s() {
    let document: Value = serde_json::from_str(&windlass_server::openapi()).unwrap();
    let mut page = format!("{MADE}\n# HTTP requests\n\n");
    page.push_str(
        "From [openapi.json](../openapi.json), which is for programs. [The HTTP interface](../http.md) explains lists, errors and\n\
         events. Roles are those of [tokens](../security.md#roles): a user may what a viewer may, and an administrator everything.\n\
         A user who can open a server's unix socket is its administrator. A field that may be absent is unknown then.\n",
    );
    let (mut named, mut told) = (BTreeSet::new(), 0);
    page.push_str(&shared_errors(&document, &mut named));
    let paths = document["paths"].as_object().unwrap();
    let other = ("server", "Server");
    for (tag, title) in GROUPS.into_iter().chain([other]) {
        _ = write!(page, "\n## {title}\n");
        for (path, methods) in paths {
            for (method, described) in methods.as_object().unwrap() {
                if described["tags"][0] == tag {
                    request(&mut page, method, path, described, &mut named);
                    told += 1;
                }
            }
        }
    }
    let requests: usize = paths.values().map(|methods| methods.as_object().unwrap().len()).sum();
    assert_eq!(told, requests, "a request is in no group of the page");
    page.push_str("\n## Types\n");
    let mut done = BTreeSet::new();
    while let Some(name) = named.difference(&done).next().cloned() {
        let described = &document["components"]["schemas"][&name];
        // Written in order once all names are known.
        schema(&mut String::new(), &name, described, &mut named);
        done.insert(name);
    }
    for name in &done {
        let described = &document["components"]["schemas"][name];
        if described.is_null() {
            // It is named, and the description leaves it out.
            page = page.replace(&format!("[{name}](#{})", name.to_lowercase()), name);
            continue;
        }
        schema(&mut page, name, described, &mut BTreeSet::new());
    }
    compare("requests.md", &page);
}
