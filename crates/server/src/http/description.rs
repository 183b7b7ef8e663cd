//! What all requests have in common in the OpenAPI document: names, rights, parameters of paths, errors.
//!
//! The attributes of a handler say what is special about its request. What the guard and the layers answer is said here,
//! once for all.

use crate::auth::{Access, HEALTH_PATH};
use axum::http::Method;
use std::collections::BTreeMap;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::ArrayItems;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    Components, Content, Header, KnownFormat, Object, ObjectBuilder, OpenApi, Paths, Ref, RefOr,
    ResponseBuilder, Schema, SchemaFormat, Type,
};
use windlass_api::ErrorCode;

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Names of the ways to show who asks.
const TOKEN: &str = "token";
const SESSION: &str = "session";

/// Errors of many requests, by their names in the document.
const ERRORS: [(&str, ErrorCode, &str); 7] = [
    ("BadRequest", ErrorCode::BadRequest, "A parameter or the body is malformed or breaks a rule"),
    ("Unauthorized", ErrorCode::Unauthorized, "The token is missing or not valid"),
    ("Forbidden", ErrorCode::Forbidden, "The caller may not do it"),
    ("NotFound", ErrorCode::NotFound, "What the path names does not exist"),
    ("TooLarge", ErrorCode::TooLarge, "The body is larger than the server takes"),
    ("Internal", ErrorCode::Internal, "A defect of the server; its log says more"),
    (
        "Unavailable",
        ErrorCode::Unavailable,
        "The server is ending, too many requests wait, or the store is full or unreachable: try again",
    ),
];

/// Adds what the attributes of a request's handler leave out.
pub(super) fn complete(document: &mut OpenApi, method: &Method, path: &str, access: Access) {
    let Some(operation) = operation(&mut document.paths, method, path) else { return };
    operation.operation_id = Some(name_of(method, path));
    operation.security = Some(match access {
        Access::Anybody => Vec::new(),
        _ => [TOKEN, SESSION].map(|name| SecurityRequirement::new(name, [""; 0])).into(),
    });
    let role = Extensions::from_iter([("x-role", access.as_str())]);
    operation.extensions.get_or_insert_default().merge(role);
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && parameter.description.is_none()
        {
            parameter.description = parameter_meaning(path, &parameter.name).map(str::to_owned);
        }
    }
    add_errors(operation, path);
    if let Some(components) = &document.components {
        describe_bodies(operation, &components.schemas);
    }
}

fn operation<'a>(paths: &'a mut Paths, method: &Method, path: &str) -> Option<&'a mut Operation> {
    let item = paths.paths.get_mut(path)?;
    match *method {
        Method::POST => item.post.as_mut(),
        Method::PUT => item.put.as_mut(),
        Method::DELETE => item.delete.as_mut(),
        _ => item.get.as_mut(),
    }
}

/// A request's name, such as `post_jobs_id_cancel`. It is made of method and path, which are unique and never change.
fn name_of(method: &Method, path: &str) -> String {
    let words = path.split('/').filter(|word| !matches!(*word, "" | "api" | "v1"));
    let mut name = method.as_str().to_lowercase();
    for word in words {
        name.push('_');
        name.push_str(word.trim_matches(['{', '}']));
    }
    name
}

/// What a parameter of a path names, by the word before it.
fn parameter_meaning(path: &str, name: &str) -> Option<&'static str> {
    let (before, _) = path.split_once(&format!("/{{{name}}}"))?;
    Some(match before.rsplit('/').next()? {
        "jobs" => "The job's number",
        "tasks" => "The task: its job's number and its index, such as `12.3`",
        "workers" => "The worker's name",
        "places" => "The place's number, or the name of a queue of outside clients",
        "turns" => "The turn's number",
        "queues" => "The queue's name",
        "limits" => "The limit's name",
        "tokens" => "The token's id",
        "blobs" => "The SHA-256 of the file, as 64 digits in lower case",
        "{hash}" => "The file's size in bytes",
        "servers" => "The server's name",
        _ => return None,
    })
}

/// Adds the errors that the request may have, where its handler says nothing of its own about them.
fn add_errors(operation: &mut Operation, path: &str) {
    if path == HEALTH_PATH {
        return;
    }
    let has_body = operation.request_body.is_some();
    let answers = &mut operation.responses.responses;
    for (name, code, _) in ERRORS {
        let may_be = match code {
            ErrorCode::NotFound => path.contains('{'),
            ErrorCode::TooLarge => has_body,
            _ => true,
        };
        let status = code.status().to_string();
        let (is_listed, is_described) = match answers.get(&status) {
            Some(RefOr::T(answer)) => (true, !answer.description.is_empty()),
            Some(RefOr::Ref(_)) => (true, true),
            None => (false, false),
        };
        if (may_be || is_listed) && !is_described {
            answers.insert(status, Ref::from_response_name(name).into());
        }
    }
}

/// An answer without words of its own is described as its type is, and what has no schema as text or bytes.
fn describe_bodies(operation: &mut Operation, schemas: &Schemas) {
    for (status, answer) in &mut operation.responses.responses {
        let RefOr::T(answer) = answer else { continue };
        for (kind, content) in &mut answer.content {
            let RefOr::T(content) = content else { continue };
            if answer.description.is_empty() && status.starts_with('2') {
                answer.description = meaning_of(content, schemas).unwrap_or_default();
            }
            content.schema.get_or_insert_with(|| text_or_bytes(kind));
        }
    }
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    for (kind, content) in &mut body.content {
        let RefOr::T(content) = content else { continue };
        content.schema.get_or_insert_with(|| text_or_bytes(kind));
    }
}

/// The schema of what has none.
fn text_or_bytes(kind: &str) -> RefOr<Schema> {
    let format = (!kind.contains("text")).then_some(SchemaFormat::KnownFormat(KnownFormat::Binary));
    ObjectBuilder::new().schema_type(Type::String).format(format).into()
}

/// The description of the type that an answer has.
fn meaning_of(content: &Content, schemas: &Schemas) -> Option<String> {
    let Some(RefOr::Ref(named)) = &content.schema else { return None };
    let name = named.ref_location.rsplit('/').next()?;
    let meaning = match schemas.get(name)? {
        RefOr::T(Schema::Object(object)) => object.description.as_deref(),
        RefOr::T(Schema::OneOf(one)) => one.description.as_deref(),
        _ => None,
    };
    meaning.map(|meaning| meaning.trim_end_matches('.').to_owned())
}

/// Adds to the document what its requests refer to.
pub(super) fn add_components(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for (name, code, meaning) in ERRORS {
        let body = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        let mut answer = ResponseBuilder::new().description(meaning).content("application/json", body);
        if code == ErrorCode::Unavailable {
            let mut after = Header::new(Object::with_type(Type::Integer));
            after.description = Some("Seconds to wait before the next try".to_owned());
            answer = answer.header("retry-after", after);
        }
        components.responses.insert(name.to_owned(), answer.into());
    }
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token of the server. Over the unix socket of a user's own server none is needed: the system tells who asks",
    ));
    let session = ApiKeyValue::with_description(
        "windlass_session",
        "The cookie of the board, for its own pages. Where the address has a port, the name ends in it, such as \
         `windlass_session_7117`",
    );
    let schemes = &mut components.security_schemes;
    schemes.insert(TOKEN.to_owned(), RefOr::T(SecurityScheme::Http(token.build())));
    schemes.insert(SESSION.to_owned(), RefOr::T(SecurityScheme::ApiKey(ApiKey::Cookie(session))));
    name_repeated(components);
}

/// Refers to a type by its name where a list or an envelope repeats it. A client then has one type of jobs, and not
/// another one for each list of them.
fn name_repeated(components: &mut Components) {
    let mut named = components.schemas.clone();
    named.retain(
        |_, schema| matches!(schema, RefOr::T(Schema::Object(object)) if !object.properties.is_empty()),
    );
    for schema in components.schemas.values_mut() {
        name_within(schema, &named);
    }
}

/// Replaces what stands inside of a schema, but not the schema itself.
fn name_within(schema: &mut RefOr<Schema>, named: &Schemas) {
    match schema {
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                name_one(items, named);
            }
        }
        RefOr::T(Schema::Object(object)) => {
            for property in object.properties.values_mut() {
                name_one(property, named);
            }
        }
        _ => {}
    }
}

fn name_one(schema: &mut RefOr<Schema>, named: &Schemas) {
    match named.iter().find(|(_, known)| **known == *schema) {
        Some((name, _)) => *schema = Ref::from_schema_name(name.clone()).into(),
        None => name_within(schema, named),
    }
}

#[cfg(test)]
mod tests;
