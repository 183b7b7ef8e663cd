//! The OpenAPI document is complete: a client that is generated from it knows every answer and every parameter.

use crate::auth::HEALTH_PATH;
use serde_json::Value;
use std::collections::BTreeSet;

fn document() -> Value {
    serde_json::from_str(&crate::openapi()).unwrap()
}

/// All requests: method and path, and the description.
fn requests(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut all = Vec::new();
    for (path, methods) in paths {
        for (method, request) in methods.as_object().unwrap() {
            all.push((method.to_uppercase(), path.clone(), request));
        }
    }
    all
}

/// What a reference leads to, or the value itself.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    let place = reference.strip_prefix('#').unwrap();
    document.pointer(place).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

#[test]
fn every_request_has_a_name_a_group_and_says_who_may() {
    let document = document();
    let mut names = BTreeSet::new();
    for (method, path, request) in requests(&document) {
        let name = request["operationId"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{method} {path}: another request is named {name}");
        assert!(is_text(&request["tags"][0]) && is_text(&request["summary"]), "{method} {path}");
        let shown = request["security"].as_array().unwrap();
        assert_eq!(shown.is_empty(), request["x-role"] == "anybody", "{method} {path}");
        for way in shown.iter().flat_map(|way| way.as_object().unwrap().keys()) {
            assert!(document["components"]["securitySchemes"][way].is_object(), "{method} {path}: {way}");
        }
    }
    assert!(names.contains("post_jobs_id_cancel"), "{names:?}");
}

#[test]
fn every_parameter_and_every_answer_is_described() {
    let document = document();
    for (method, path, request) in requests(&document) {
        for parameter in request["parameters"].as_array().into_iter().flatten() {
            assert!(is_text(&parameter["description"]), "{method} {path}: {}", parameter["name"]);
            assert!(parameter["schema"].is_object(), "{method} {path}: {}", parameter["name"]);
        }
        let answers = request["responses"].as_object().unwrap();
        assert!(answers.keys().any(|status| status.starts_with('2')), "{method} {path}");
        for (status, answer) in answers {
            let answer = resolved(&document, answer);
            assert!(is_text(&answer["description"]), "{method} {path}: {status}");
            for content in answer["content"].as_object().into_iter().flat_map(|kinds| kinds.values()) {
                assert!(content["schema"].is_object(), "{method} {path}: {status} has no type");
            }
            if !status.starts_with('2') {
                let body = &answer["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(body, "#/components/schemas/ErrorBody", "{method} {path}: {status}");
            }
        }
    }
}

#[test]
fn every_request_has_the_errors_that_the_guard_answers() {
    let document = document();
    for (method, path, request) in requests(&document).into_iter().filter(|(_, path, _)| path != HEALTH_PATH)
    {
        let mut statuses = vec!["400", "401", "403", "500", "503"];
        if path.contains('{') {
            statuses.push("404");
        }
        if request["requestBody"].is_object() {
            statuses.push("413");
        }
        for status in statuses {
            assert!(request["responses"][status].is_object(), "{method} {path}: {status}");
        }
    }
}

/// The names of types and answers in a part of the document.
fn named_in(part: &Value, names: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                names.insert(reference.to_owned());
            }
            fields.values().for_each(|value| named_in(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| named_in(value, names)),
        _ => {}
    }
}

#[test]
fn references_lead_somewhere_and_every_type_is_used() {
    let document = document();
    let (mut found, mut done) = (BTreeSet::new(), BTreeSet::new());
    named_in(&document["paths"], &mut found);
    while let Some(reference) = found.difference(&done).next().cloned() {
        let to = document.pointer(reference.trim_start_matches('#'));
        named_in(to.unwrap_or_else(|| panic!("{reference} leads nowhere")), &mut found);
        done.insert(reference);
    }
    for kind in ["schemas", "responses"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            assert!(done.contains(&format!("#/components/{kind}/{name}")), "nothing refers to {kind} {name}");
        }
    }
}

#[test]
fn a_list_names_the_type_of_its_entries() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Page_Job"]["properties"]["items"]["items"]["$ref"], "#/components/schemas/Job");
    let rules = &schemas["Board_Vec_RuleEntry"]["properties"]["message"];
    assert_eq!(rules["items"]["$ref"], "#/components/schemas/RuleEntry");
}
