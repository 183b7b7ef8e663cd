//! The fields of a request's body, from JSON or YAML.

use crate::answer::{Refused, tell};
use crate::app::App;
use crate::format::{Fields, SECTION_ORDER, section_order};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use windlass_server::{BadJson, JsonLimits, read_json};

/// Reads a body: a YAML mapping if the content type says so, otherwise a JSON object.
pub(super) async fn read_fields(
    app: &App,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Fields, Refused> {
    let body = body.map_err(|rejection| rejection.into_response())?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_yaml = kind.contains("yaml");
    let fields =
        app.front.parse(body, move |body| if is_yaml { read_yaml(body) } else { read_object(body) }).await;
    fields.map_err(|why| tell(StatusCode::BAD_REQUEST, json!({"message": why})).into())
}

/// Reads a YAML mapping, with the order of its sections, which the fields alone lose.
fn read_yaml(body: &[u8]) -> Result<Fields, String> {
    let read = std::str::from_utf8(body).map_err(|e| e.to_string());
    match read.and_then(read_yaml_text) {
        Ok(Value::Object(fields)) => Ok(in_order(fields, section_order(body, true))),
        Ok(_) => Err("Invalid YAML in request body: it is not a mapping".to_owned()),
        Err(why) => Err(format!("Invalid YAML in request body: {why}")),
    }
}

/// Reads YAML within the bounds of JSON, because values take much more memory than their text.
fn read_yaml_text(text: &str) -> Result<Value, String> {
    let budget = serde_saphyr::budget! { max_nodes: JsonLimits::GATEWAY.values_max };
    let options = serde_saphyr::options! { budget: budget };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())
}

fn read_object(body: &[u8]) -> Result<Fields, String> {
    match read_json::<Value>(body, JsonLimits::GATEWAY) {
        Ok(Value::Object(fields)) => Ok(in_order(fields, section_order(body, false))),
        Err(why @ BadJson::TooMany { .. }) => Err(format!("Invalid JSON in request body: {why}")),
        _ => Err("Invalid JSON in request body".to_owned()),
    }
}

/// Adds the order of the sections, unless the client sent it: a client that read the job from a file knows it.
fn in_order(mut fields: Fields, order: Option<Value>) -> Fields {
    if let Some(order) = order {
        fields.entry(SECTION_ORDER).or_insert(order);
    }
    fields
}
