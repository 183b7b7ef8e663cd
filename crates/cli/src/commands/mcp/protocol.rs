//! The messages of the Model Context Protocol: what a line asks for, and how an answer is said. It reads and writes
//! nothing.
//!
//! Clients of two generations are served, by the rules that the specification has for that. Those of 2025-11-25 and
//! before begin with `initialize`. Those of 2026-07-28 say their version in each request, and need no beginning.

use crate::commands::mcp::answer::{ToolAnswer, error_fields, fields_of};
use crate::commands::mcp::tools::Tool;
use serde_json::{Map, Value, json};

/// Versions that begin with `initialize`, the newest first.
const SESSION_VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// Versions that each request names, the newest first.
const REQUEST_VERSIONS: [&str; 1] = ["2026-07-28"];
/// Where a request names its version, and what its client can do.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Where a result names this program.
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Bytes of the id of a request, which stands in its answer, and of a token of progress.
const ID_BYTES_MAX: usize = 256;
/// Characters of a client's word that an error repeats.
const QUOTED_CHARS_MAX: usize = 80;
/// How long a client may keep the list of tools, which changes with the program alone.
const LIST_FRESH_MS: u64 = 3_600_000;

const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const UNSUPPORTED_VERSION: i64 = -32_022;

/// What a model is told of the tools as a whole.
const INSTRUCTIONS: &str = "Windlass runs commands as jobs on this machine or a farm. It shares cpus and memory among \
    people, builds and agents, so that none of them starves or runs out of memory. Run builds, tests and other heavy \
    commands by submit instead of a shell, then call wait, and logs where one failed. preview says when it would \
    start, and why says what a task waits for. Jobs go on when this connection ends.";

/// What a connection has agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct McpSession {
    /// True once a client has begun with `initialize`.
    is_begun: bool,
}

/// What is to be done about a line.
#[derive(Clone, PartialEq, Debug)]
pub enum Incoming {
    /// Nothing is said to it.
    Nothing,
    /// This is the answer.
    Answered(Value),
    /// A tool is called, and is answered later.
    Called(ToolCall),
    /// The client does not want the answer to this call any more.
    Canceled(CallId),
}

/// The id of a request, as its client chose it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallId {
    Number(i64),
    Text(String),
}

/// The generation of the client that made a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// It began with `initialize`.
    Session,
    /// Each of its requests names its version.
    Request,
}

/// A call of a tool.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    pub id: CallId,
    pub era: Era,
    pub tool: Tool,
    /// Not looked at yet.
    pub arguments: Map<String, Value>,
    /// What progress is told by, if the client wants to know of it.
    pub progress_token: Option<Value>,
}

impl McpSession {
    /// What the line asks for.
    pub fn take(&mut self, line: &[u8]) -> Incoming {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Incoming::Nothing;
        }
        let message = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => {
                return refused(
                    None,
                    INVALID_REQUEST,
                    "batches are not supported: send each message in a line",
                );
            }
            Ok(_) => return refused(None, INVALID_REQUEST, "a message is a JSON object"),
            Err(error) => return refused(None, PARSE_ERROR, &format!("this line is not JSON: {error}")),
        };
        let id = message.get("id").map(CallId::read);
        let is_known_form = message.get("jsonrpc").is_some_and(|version| version == "2.0");
        let (method, params) = (message.get("method").and_then(Value::as_str), message.get("params"));
        match (id, method) {
            (Some(Some(id)), Some(method)) if is_known_form => self.request(id, method, params),
            (None, Some(method)) if is_known_form => notified(method, params),
            // An answer: this program asks for nothing.
            (_, None) if message.contains_key("result") || message.contains_key("error") => Incoming::Nothing,
            (Some(None), _) => refused(
                None,
                INVALID_REQUEST,
                "the id of a request is a whole number, or a text of at most 256 bytes",
            ),
            (id, _) => refused(
                id.flatten(),
                INVALID_REQUEST,
                "a request has \"jsonrpc\": \"2.0\", a method and an id",
            ),
        }
    }

    fn request(&mut self, id: CallId, method: &str, params: Option<&Value>) -> Incoming {
        let empty = Map::new();
        let params = match params {
            None => &empty,
            Some(Value::Object(params)) => params,
            Some(_) => return refused(Some(id), INVALID_PARAMS, "params are an object"),
        };
        let meta = params.get("_meta").and_then(Value::as_object).unwrap_or(&empty);
        if method == "initialize" {
            return self.begin(id, params);
        }
        let era = match meta.get(VERSION_KEY) {
            None => Era::Session,
            Some(version) => match check_version(version, meta) {
                Ok(()) => Era::Request,
                Err(error) => return Incoming::Answered(failure(Some(id), error)),
            },
        };
        if era == Era::Session && method == "ping" {
            return Incoming::Answered(result(id, era, Map::new()));
        }
        if era == Era::Session && !self.is_begun {
            let said = format!("begin with initialize, or name a version as {VERSION_KEY} in _meta");
            return refused(Some(id), INVALID_PARAMS, &said);
        }
        match (method, era) {
            ("tools/list", _) => listed(id, era, params),
            ("tools/call", _) => called(id, era, params, meta),
            ("server/discover", Era::Request) => Incoming::Answered(result(id, era, discovered())),
            _ => {
                let said = format!("there is no method '{}' here", quoted(method));
                refused(Some(id), METHOD_NOT_FOUND, &said)
            }
        }
    }

    /// Answers `initialize` with the version that the client asks for, or else with the newest.
    fn begin(&mut self, id: CallId, params: &Map<String, Value>) -> Incoming {
        let Some(asked) = params.get("protocolVersion").and_then(Value::as_str) else {
            return refused(Some(id), INVALID_PARAMS, "initialize names a protocolVersion");
        };
        self.is_begun = true;
        let version = SESSION_VERSIONS.into_iter().find(|known| *known == asked);
        let fields = json!({
            "protocolVersion": version.unwrap_or(SESSION_VERSIONS[0]),
            "capabilities": {"tools": {}},
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        });
        Incoming::Answered(result(id, Era::Session, fields_of(fields)))
    }
}

impl CallId {
    /// The id in a message, if it is one.
    fn read(value: &Value) -> Option<CallId> {
        match value {
            Value::Number(number) => number.as_i64().map(CallId::Number),
            Value::String(text) if text.len() <= ID_BYTES_MAX => Some(CallId::Text(text.clone())),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        match self {
            CallId::Number(number) => Value::from(*number),
            CallId::Text(text) => Value::from(text.as_str()),
        }
    }
}

/// The answer to a call: what the tool found, or why it failed. The model reads both.
pub fn answer(id: CallId, era: Era, ended: Result<ToolAnswer, String>) -> Value {
    let fields = match ended {
        Ok(answer) => answer.fields(),
        Err(why) => error_fields(&why),
    };
    result(id, era, fields)
}

/// The answer to a line that is too long to be looked at.
pub fn too_long(bytes_max: usize) -> Value {
    failure(None, (INVALID_REQUEST, format!("a line has at most {bytes_max} bytes"), None))
}

/// The answer to a request whose id a call under way has.
pub fn id_in_use(id: CallId) -> Value {
    failure(Some(id), (INVALID_REQUEST, "a call with this id is under way".to_owned(), None))
}

/// Tells how far a call is. Each time `progress` is more than before.
pub fn progress(token: &Value, progress: u64, total: u64, message: &str) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": token, "progress": progress, "total": total, "message": message},
    })
}

/// A notification, which is never answered.
fn notified(method: &str, params: Option<&Value>) -> Incoming {
    let of = params.and_then(|params| params.get("requestId")).and_then(CallId::read);
    match (method, of) {
        ("notifications/cancelled", Some(id)) => Incoming::Canceled(id),
        _ => Incoming::Nothing,
    }
}

/// Checks what a request of the newer generation says of itself.
fn check_version(version: &Value, meta: &Map<String, Value>) -> Result<(), (i64, String, Option<Value>)> {
    let Some(version) = version.as_str() else {
        return Err((INVALID_PARAMS, format!("{VERSION_KEY} is a text"), None));
    };
    if !REQUEST_VERSIONS.contains(&version) {
        let data = json!({"supported": REQUEST_VERSIONS, "requested": quoted(version)});
        return Err((UNSUPPORTED_VERSION, "unsupported protocol version".to_owned(), Some(data)));
    }
    match meta.get(CAPABILITIES_KEY) {
        Some(Value::Object(_)) => Ok(()),
        _ => Err((INVALID_PARAMS, format!("a request has {CAPABILITIES_KEY} in _meta, an object"), None)),
    }
}

fn listed(id: CallId, era: Era, params: &Map<String, Value>) -> Incoming {
    if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return refused(
            Some(id),
            INVALID_PARAMS,
            "the list of tools has one page, so there is no such cursor",
        );
    }
    let tools: Vec<Value> = Tool::ALL.into_iter().map(Tool::definition).collect();
    let mut fields = fields_of(json!({"tools": tools}));
    if era == Era::Request {
        fields.extend(freshness());
    }
    Incoming::Answered(result(id, era, fields))
}

fn called(id: CallId, era: Era, params: &Map<String, Value>, meta: &Map<String, Value>) -> Incoming {
    let Some(name) = params.get("name").and_then(Value::as_str) else {
        return refused(Some(id), INVALID_PARAMS, "tools/call names a tool");
    };
    let Some(tool) = Tool::named(name) else {
        let known = Tool::ALL.map(Tool::name).join(", ");
        let said = format!("unknown tool '{}': there are {known}", quoted(name));
        return refused(Some(id), INVALID_PARAMS, &said);
    };
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return refused(Some(id), INVALID_PARAMS, "arguments are an object"),
    };
    // A token has the form of an id.
    let progress_token = meta.get("progressToken").and_then(CallId::read).map(|token| token.to_value());
    Incoming::Called(ToolCall { id, era, tool, arguments, progress_token })
}

/// The fields that answer `server/discover`.
fn discovered() -> Map<String, Value> {
    let mut fields = fields_of(json!({
        "supportedVersions": REQUEST_VERSIONS,
        "capabilities": {"tools": {}},
        "instructions": INSTRUCTIONS,
    }));
    fields.extend(freshness());
    fields
}

/// How long a client may keep an answer that all callers get alike.
fn freshness() -> Map<String, Value> {
    fields_of(json!({"ttlMs": LIST_FRESH_MS, "cacheScope": "public"}))
}

fn server_info() -> Value {
    json!({"name": "windlass", "title": "Windlass", "version": env!("CARGO_PKG_VERSION")})
}

fn result(id: CallId, era: Era, mut fields: Map<String, Value>) -> Value {
    if era == Era::Request {
        fields.insert("resultType".to_owned(), "complete".into());
        fields.insert("_meta".to_owned(), json!({SERVER_KEY: server_info()}));
    }
    json!({"jsonrpc": "2.0", "id": id.to_value(), "result": fields})
}

fn refused(id: Option<CallId>, code: i64, message: &str) -> Incoming {
    Incoming::Answered(failure(id, (code, message.to_owned(), None)))
}

/// An error. Without an id that could be read it has none, as the schema of the protocol has it.
fn failure(id: Option<CallId>, (code, message, data): (i64, String, Option<Value>)) -> Value {
    let mut error = fields_of(json!({"code": code, "message": message}));
    error.extend(data.map(|data| ("data".to_owned(), data)));
    let mut fields = fields_of(json!({"jsonrpc": "2.0", "error": error}));
    fields.extend(id.map(|id| ("id".to_owned(), id.to_value())));
    Value::Object(fields)
}

/// The beginning of a client's word.
fn quoted(word: &str) -> String {
    word.chars().take(QUOTED_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CASES: &str = include_str!("tests/protocol.txt");

    /// True if the answer is that of a case, where `"*"` stands for any value.
    fn is_as(expected: &Value, answer: &Value) -> bool {
        match (expected, answer) {
            (Value::String(any), _) if any == "*" => true,
            (Value::Object(expected), Value::Object(answer)) => {
                expected.len() == answer.len()
                    && expected
                        .iter()
                        .all(|(name, value)| answer.get(name).is_some_and(|said| is_as(value, said)))
            }
            (Value::Array(expected), Value::Array(answer)) => {
                expected.len() == answer.len()
                    && expected.iter().zip(answer).all(|(value, said)| is_as(value, said))
            }
            _ => expected == answer,
        }
    }

    fn told(incoming: Incoming) -> Value {
        match incoming {
            Incoming::Nothing => json!("nothing"),
            Incoming::Answered(answer) => answer,
            Incoming::Called(call) => json!({
                "calls": call.tool.name(), "id": call.id.to_value(), "arguments": call.arguments,
                "progress": call.progress_token, "modern": call.era == Era::Request,
            }),
            Incoming::Canceled(id) => json!({"cancels": id.to_value()}),
        }
    }

    /// Each case begins with `#` and its name, and is of one connection: `>` is a line of the client, and `<` what is
    /// made of it.
    #[test]
    fn messages_are_answered_as_the_cases_say() {
        let (mut session, mut case, mut last, mut count) = (McpSession::default(), "", None, 0);
        for line in CASES.lines().filter(|line| !line.is_empty()) {
            let (kind, rest) = line.split_at(1);
            match kind {
                "#" => {
                    assert_eq!(last, None, "{case}: nothing is said about its last line");
                    (session, case) = (McpSession::default(), rest);
                    count += 1;
                }
                ">" => last = Some(told(session.take(rest.trim().as_bytes()))),
                "<" => {
                    let expected: Value =
                        serde_json::from_str(rest).unwrap_or_else(|e| panic!("{case}: {e}: {rest}"));
                    let said = last.take().unwrap();
                    assert!(is_as(&expected, &said), "{case}:\nexpected {expected}\n     got {said}");
                }
                _ => panic!("{line}"),
            }
        }
        assert!(last.is_none() && count > 20, "{count} cases");
    }

    #[test]
    fn a_call_is_answered_by_its_generation() {
        let ok = || Ok(ToolAnswer { text: "t".to_owned(), structured: json!({"n": 1}) });
        let content = json!([{"type": "text", "text": "t"}]);
        assert_eq!(
            answer(CallId::Number(7), Era::Session, ok()),
            json!({"jsonrpc": "2.0", "id": 7, "result": {
                "content": content, "structuredContent": {"n": 1}, "isError": false,
            }})
        );
        let newer = answer(CallId::Text("a".to_owned()), Era::Request, ok());
        assert_eq!((&newer["id"], &newer["result"]["resultType"]), (&json!("a"), &json!("complete")));
        assert_eq!(newer["result"]["_meta"][SERVER_KEY]["name"], "windlass");
        let failed = answer(CallId::Number(7), Era::Session, Err("no".to_owned()));
        assert_eq!(failed["result"], json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
    }

    #[test]
    fn json_that_is_too_deep_is_refused() {
        for line in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
            let Incoming::Answered(answer) = McpSession::default().take(line.as_bytes()) else { panic!() };
            assert_eq!(answer["error"]["code"], PARSE_ERROR);
        }
    }

    fn message() -> impl Strategy<Value = Value> {
        let word = prop_oneof![
            Just(json!("2.0")),
            Just(json!("tools/call")),
            Just(json!("initialize")),
            Just(json!("submit")),
            Just(json!("notifications/cancelled")),
            Just(json!("2025-06-18")),
            Just(json!("2026-07-28")),
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,9}".prop_map(Value::from),
            "x{250,260}".prop_map(Value::from),
        ];
        let name = prop_oneof![
            Just("jsonrpc"),
            Just("id"),
            Just("method"),
            Just("params"),
            Just("name"),
            Just("arguments"),
            Just("_meta"),
            Just("protocolVersion"),
            Just(VERSION_KEY),
            Just(CAPABILITIES_KEY),
            Just("requestId"),
            Just("cursor"),
            Just("result"),
            Just("progressToken"),
        ];
        word.prop_recursive(3, 40, 8, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map(name.clone(), inner, 0..8).prop_map(|fields| {
                    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
                }),
            ]
        })
    }

    fn check_form(incoming: Incoming) -> Result<(), TestCaseError> {
        if let Incoming::Answered(answer) = incoming {
            prop_assert_eq!(&answer["jsonrpc"], "2.0");
            prop_assert!(answer.get("result").is_some() != answer.get("error").is_some());
            prop_assert!(answer.get("id").is_none_or(|id| id.is_i64() || id.is_string()));
            prop_assert!(!answer.to_string().contains('\n'), "an answer is one line");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_in_form(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            check_form(McpSession::default().take(&line))?;
        }

        #[test]
        fn any_messages_are_answered_in_form(messages in proptest::collection::vec(message(), 1..4)) {
            let mut session = McpSession::default();
            for message in messages {
                check_form(session.take(message.to_string().as_bytes()))?;
            }
        }
    }
}
