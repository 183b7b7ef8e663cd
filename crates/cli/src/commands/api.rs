//! `windlass api`: a request to the server as its user writes it.

use crate::client::context::Context;
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{print_json, print_jsonl};
use clap::Args;
use futures_util::{Stream, StreamExt as _};
use serde_json::Value;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::pin::pin;
use windlass_api::Page;
use windlass_api::client::{Client, ClientError, Method, RawHead, RawRequest};

/// Bytes of a body that is sent: as many as the server takes of a submission.
const INPUT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of an answer that is laid out for a terminal. A longer one is printed as it comes.
const PRETTY_BYTES_MAX: usize = 8 << 20;
/// Bytes of one page of a list.
const PAGE_BYTES_MAX: usize = 256 << 20;
/// The beginnings of paths that are whole. All others are under [`BASE`].
const WHOLE_PATHS: [&str; 3] = ["/api/v1/", "/scheduler/v1/", "/nix/v1/"];
/// Paths of the server that are under none.
const ROOT_PATHS: [&str; 3] = ["/healthz", "/metrics", "/openapi.json"];
/// Where the requests of the manual are.
const BASE: &str = "/api/v1";

/// Makes a request to the server, and prints the answer.
#[derive(Args, Debug)]
#[command(after_help = "The server, its socket, certificates and token are found as by all other commands.

  windlass api GET /jobs -q state=failed --paginate
  windlass api POST /jobs --input job.json
  windlass api PUT /queues/night -f weight=300 -f paused=null
  windlass api GET /events")]
pub struct ApiArgs {
    /// GET, POST, PUT or DELETE
    #[arg(value_parser = parse_method)]
    method: Method,
    /// The path: /jobs is /api/v1/jobs
    path: String,
    /// A field of the body. A value that is JSON is taken as that, such as 5, true, null and '["a", "b"]'; all others
    /// are text
    #[arg(short = 'f', long = "field", value_name = "KEY=VALUE", value_parser = parse_pair)]
    fields: Vec<(String, String)>,
    /// The body, from a file, or from standard input with -
    #[arg(long, value_name = "FILE", conflicts_with = "fields")]
    input: Option<String>,
    /// A parameter of the query
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    query: Vec<(String, String)>,
    /// Print the status and the headers before the body
    #[arg(short, long)]
    include: bool,
    /// Ask for all pages of a list, and print its entries one a line
    #[arg(long, conflicts_with_all = ["include", "fields", "input"])]
    paginate: bool,
}

/// Runs the command `windlass api`.
pub async fn api(context: &Context, args: &ApiArgs) -> Result<(), CliError> {
    let has_body = !args.fields.is_empty() || args.input.is_some();
    if args.method == Method::GET && has_body {
        return Err(CliError::usage("a GET request has no body: give its parameters by -q"));
    }
    if args.method != Method::GET && args.paginate {
        return Err(CliError::usage("--paginate is for GET requests"));
    }
    let request = RawRequest {
        method: args.method.clone(),
        path: whole_path(&args.path)?,
        query: args.query.clone(),
        body: match &args.input {
            Some(file) => Some(read(file)?),
            None if args.fields.is_empty() => None,
            None => Some(body_of(&args.fields)),
        },
    };
    let client = context.client().await?;
    if args.paginate {
        return print_pages(&client, request).await;
    }
    let doing = doing(&request);
    let (head, parts) = client.raw(&request).await.doing(&doing)?;
    if args.include {
        print_head(&head)?;
    }
    print_parts(&head, parts, &doing).await
}

/// The purpose of the request, for errors.
fn doing(request: &RawRequest) -> String {
    format!("make the request {} {}", request.method, request.path)
}

fn parse_method(text: &str) -> Result<Method, String> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
    let found = known.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "give GET, POST, PUT or DELETE".to_owned())
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| "give it as KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

fn whole_path(path: &str) -> Result<String, CliError> {
    if path.contains("://") {
        let message = format!("'{path}' is an address: give the path alone, and the server by --server");
        return Err(CliError::usage(message));
    }
    let path = format!("/{}", path.trim_start_matches('/'));
    let root = path.split('?').next().unwrap_or_default();
    let is_whole = WHOLE_PATHS.iter().any(|begin| path.starts_with(begin)) || ROOT_PATHS.contains(&root);
    Ok(if is_whole { path } else { format!("{BASE}{path}") })
}

/// The fields as a JSON object.
fn body_of(fields: &[(String, String)]) -> Vec<u8> {
    let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
    let object: serde_json::Map<_, _> = fields.iter().map(|(key, text)| (key.clone(), value(text))).collect();
    Value::Object(object).to_string().into_bytes()
}

fn read(file: &str) -> Result<Vec<u8>, CliError> {
    let unreadable = |error| CliError::from(anyhow::Error::new(error).context(format!("cannot read {file}")));
    let source: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin()),
        file => Box::new(std::fs::File::open(file).map_err(unreadable)?),
    };
    let mut body = Vec::new();
    source.take(INPUT_BYTES_MAX + 1).read_to_end(&mut body).map_err(unreadable)?;
    if body.len() as u64 > INPUT_BYTES_MAX {
        return Err(CliError::usage(format!("{file} is larger than {} MiB", INPUT_BYTES_MAX >> 20)));
    }
    Ok(body)
}

fn print_head(head: &RawHead) -> Result<(), CliError> {
    let mut text = format!("{}\n", head.status);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push('\n');
    write(text.as_bytes())
}

/// Prints the body as it comes. JSON on a terminal is laid out for people.
async fn print_parts(
    head: &RawHead,
    parts: impl Stream<Item = Result<Vec<u8>, ClientError>>,
    doing: &str,
) -> Result<(), CliError> {
    let mut parts = pin!(parts);
    let mut is_pretty = head.is_json() && io::stdout().is_terminal();
    let mut held = Vec::new();
    while let Some(part) = parts.next().await {
        held.extend(part.doing(doing)?);
        is_pretty = is_pretty && held.len() <= PRETTY_BYTES_MAX;
        if !is_pretty {
            write(&held)?;
            held.clear();
        }
    }
    match serde_json::from_slice::<Value>(&held) {
        Ok(value) => print_json(&value),
        Err(_) => write(&held),
    }
}

/// Prints the entries of all pages, one a line.
async fn print_pages(client: &Client, mut request: RawRequest) -> Result<(), CliError> {
    let doing = doing(&request);
    loop {
        let (_, parts) = client.raw(&request).await.doing(&doing)?;
        let text = whole(parts, &doing).await?;
        let Ok(page) = serde_json::from_slice::<Page<Value>>(&text) else {
            return Err(CliError::usage(format!("{} is not a list with pages", request.path)));
        };
        page.items.iter().try_for_each(print_jsonl)?;
        let Some(next) = page.next else { return Ok(()) };
        request.query.retain(|(name, _)| name != "cursor");
        request.query.push(("cursor".to_owned(), next));
    }
}

/// The whole body of a page.
async fn whole(
    parts: impl Stream<Item = Result<Vec<u8>, ClientError>>,
    doing: &str,
) -> Result<Vec<u8>, CliError> {
    let mut parts = pin!(parts);
    let mut text = Vec::new();
    while let Some(part) = parts.next().await {
        text.extend(part.doing(doing)?);
        if text.len() > PAGE_BYTES_MAX {
            let message = format!("a page of the list is larger than {} MiB", PAGE_BYTES_MAX >> 20);
            return Err(CliError::Failed { message, hint: Some("ask for less by -q limit=100".to_owned()) });
        }
    }
    Ok(text)
}

fn write(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CliError::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_paths_are_those_of_the_manual() {
        let cases = [
            ("/jobs", "/api/v1/jobs"),
            ("jobs/3?x=1", "/api/v1/jobs/3?x=1"),
            ("/api/v1/jobs", "/api/v1/jobs"),
            ("/queues/v1", "/api/v1/queues/v1"),
            ("/scheduler/servers", "/api/v1/scheduler/servers"),
            ("/scheduler/v1/jobs", "/scheduler/v1/jobs"),
            ("metrics", "/metrics"),
        ];
        for (given, whole) in cases {
            assert_eq!(whole_path(given).unwrap(), whole);
        }
        assert_eq!(whole_path("http://farm:7117/jobs").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn values_of_fields_are_json_or_text() {
        let given = ["weight=300", "paused=null", "name=a=b", "name2=\"7\"", "command=[\"a\"]", "empty="];
        let fields: Vec<_> = given.iter().map(|text| parse_pair(text).unwrap()).collect();
        let body: Value = serde_json::from_slice(&body_of(&fields)).unwrap();
        let expected = serde_json::json!({
            "weight": 300, "paused": null, "name": "a=b", "name2": "7", "command": ["a"], "empty": ""
        });
        assert_eq!(body, expected);
        assert!(parse_pair("novalue").is_err() && parse_pair("=x").is_err());
        assert_eq!(parse_method("post").unwrap(), Method::POST);
        assert!(parse_method("TRACE").is_err());
    }
}
