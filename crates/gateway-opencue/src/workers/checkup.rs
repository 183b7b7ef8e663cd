//! Checks of the Windlass server whose workers are hosts: whether it answers, whether it takes frames by the gateway's
//! token, and whether it has workers for them.

use super::{WorkersSettings, read_credentials, reports};
use crate::finding::{Finding, note, ok, wrong};
use std::time::Duration;
use windlass_api::client::{Address, Client, ClientError, CredentialsError};
use windlass_api::{ErrorCode, Role, Version, Worker, WorkerState};

/// How long a server may take for an answer. A client of one server would wait for as long as the connection lasts.
const ANSWER_TIME: Duration = Duration::from_secs(10);

const CREDENTIALS: &str = "Windlass credentials";
const SERVER: &str = "Windlass server";
const TOKEN: &str = "Windlass token";
const WORKERS: &str = "Windlass workers";

const CORRECT_FILES: &str = "let the gateway's user read it, or correct 'token_file' and 'ca_file' of windlass.workers; \
                             'windlass token create --role submitter' makes a token";
const CORRECT_ADDRESS: &str = "correct 'server' and 'ca_file' of windlass.workers";
const START_SERVER: &str = "start it ('windlass server status' on its machine says whether it runs), or correct 'server' \
                            of windlass.workers: HOST:PORT of another machine means https";
const OTHER_PROGRAM: &str = "another program listens there: correct 'server' of windlass.workers";
const CORRECT_TLS: &str = "give the ca.pem of the farm's CA as 'ca_file' of windlass.workers, and the server by a name of \
                           its certificate; one without TLS is http://HOST:PORT";
const MAKE_TOKEN: &str = "make one with 'windlass token create --role submitter --for-users PATTERN --queue QUEUE --out FILE', \
     name FILE as 'token_file' of windlass.workers, and restart the gateway";
const START_WORKERS: &str =
    "start one with 'windlass worker start --tag TAG', or correct 'tag' of windlass.workers";
const SEE_WORKERS: &str = "'windlass workers' says when each was heard; start their agents";
const RESUME_WORKERS: &str = "'windlass worker resume NAME' lets one take frames";

/// Checks the Windlass server of the settings, at each of its addresses. Nothing is changed there.
pub async fn check_workers(settings: &WorkersSettings) -> Vec<Finding> {
    let credentials = match read_credentials(settings) {
        Ok(credentials) => credentials,
        Err(error) => return vec![unreadable(&error)],
    };
    let mut found = Vec::new();
    let mut lists_workers = None;
    for address in settings.server.iter() {
        let client = match Client::with(address.clone(), &credentials) {
            Ok(client) => client,
            Err(error) => {
                let detail = format!("{address} cannot be used: {}", error.root());
                found.push(wrong(SERVER, detail, CORRECT_ADDRESS));
                continue;
            }
        };
        let answer = in_time(&client, client.version()).await;
        found.extend(server(address, &answer));
        // Each server lists the workers of the whole farm, to all roles but that of a worker.
        if lists_workers.is_none() && answer.is_ok_and(|version| version.role != Some(Role::Worker)) {
            lists_workers = Some(client);
        }
    }
    if let Some(client) = lists_workers {
        found.push(match in_time(&client, client.workers(false)).await {
            Ok(workers) => hosts(&workers, settings),
            Err(error) => {
                let detail = format!("{} does not list them: {}", client.address(), error.root());
                wrong(WORKERS, detail, START_SERVER)
            }
        });
    }
    found
}

async fn in_time<T>(
    client: &Client,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match tokio::time::timeout(ANSWER_TIME, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(ClientError::Silent { address: client.address().clone(), after: ANSWER_TIME }),
    }
}

fn unreadable(error: &CredentialsError) -> Finding {
    let detail = match error {
        CredentialsError::Read { path, source } => format!("cannot read {}: {source}", path.display()),
        CredentialsError::Half => error.to_string(),
    };
    wrong(CREDENTIALS, detail, CORRECT_FILES)
}

/// Judges the answer of the server at an address, and the role that it has for the token.
fn server(address: &Address, answer: &Result<Version, ClientError>) -> Vec<Finding> {
    let error = match answer {
        Ok(version) => {
            let answers = ok(SERVER, format!("{address} answers, version {}", version.version));
            return vec![answers, role(version.role)];
        }
        Err(error) => error,
    };
    if matches!(error.code(), Some(ErrorCode::Unauthorized | ErrorCode::Forbidden)) {
        let refused = wrong(TOKEN, format!("{address} refuses it: {}", error.root()), MAKE_TOKEN);
        return vec![ok(SERVER, format!("{address} answers")), refused];
    }
    let advice = match error {
        ClientError::Garbled { .. } => OTHER_PROGRAM,
        error if error.is_untrusted() => CORRECT_TLS,
        _ => START_SERVER,
    };
    vec![wrong(SERVER, format!("{address} gives no answer: {}", error.root()), advice)]
}

/// Judges the role of the token; `None` where the server asks for no token.
fn role(role: Option<Role>) -> Finding {
    match role {
        None => ok(TOKEN, "the server asks for none".to_owned()),
        Some(Role::Submitter) => ok(TOKEN, "it is accepted, and has the role submitter".to_owned()),
        Some(Role::Admin) => {
            let detail = "it has the role admin: anyone who reads it may do everything";
            note(TOKEN, detail.to_owned(), MAKE_TOKEN)
        }
        Some(role) => {
            let detail = format!(
                "it has the role {}; to submit frames as their users takes the role submitter",
                role.as_str()
            );
            wrong(TOKEN, detail, MAKE_TOKEN)
        }
    }
}

/// Judges whether there are workers for frames.
fn hosts(workers: &[Worker], settings: &WorkersSettings) -> Finding {
    let tag = &settings.tag;
    let (mut tagged, mut present, mut open) = (0, 0, 0);
    for worker in workers {
        if tag.met_by(&worker.attributes) {
            tagged += 1;
        }
        if reports::is_host(worker, settings) {
            present += 1;
            if worker.state == WorkerState::Up {
                open += 1;
            }
        }
    }
    let taking = format!("{open} of {tagged} workers with the tag '{tag}' take frames");
    match (tagged, present, open) {
        (0, _, _) if workers.is_empty() => {
            wrong(WORKERS, "the server has no workers".to_owned(), START_WORKERS)
        }
        (0, _, _) => {
            let detail = format!("no worker has the tag '{tag}'; workers without it: {}", workers.len());
            wrong(WORKERS, detail, START_WORKERS)
        }
        (_, 0, _) => wrong(WORKERS, format!("{taking}: all of them are silent"), SEE_WORKERS),
        // An operator wants it so.
        (_, _, 0) => {
            note(WORKERS, format!("{taking}: those that are not silent are drained"), RESUME_WORKERS)
        }
        _ => ok(WORKERS, taking),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{settings, worker};
    use super::*;
    use crate::finding::Severity;
    use std::path::PathBuf;
    use windlass_api::{Addresses, ErrorDetail};

    fn at() -> Address {
        Address::parse("farm:7117")
    }

    fn known_as(role: Option<Role>) -> Result<Version, ClientError> {
        Ok(Version {
            name: "windlass".to_owned(),
            version: "0.1.0".to_owned(),
            store: String::new(),
            pid: 1,
            user: None,
            role,
            worker: None,
        })
    }

    fn refused(code: ErrorCode) -> Result<Version, ClientError> {
        Err(ClientError::Refused(ErrorDetail { code, message: "because of it".to_owned(), hint: None }))
    }

    #[test]
    fn a_server_takes_frames_by_a_submitter_s_token_or_where_it_asks_for_none() {
        let severities = |answer: Result<Version, ClientError>| -> Vec<(&'static str, Severity)> {
            server(&at(), &answer).iter().map(|finding| (finding.what, finding.severity)).collect()
        };
        let answers = (SERVER, Severity::Ok);
        for role in [None, Some(Role::Submitter)] {
            assert_eq!(severities(known_as(role)), [answers, (TOKEN, Severity::Ok)], "{role:?}");
        }
        assert_eq!(severities(known_as(Some(Role::Admin))), [answers, (TOKEN, Severity::Note)]);
        for role in [Role::User, Role::Viewer, Role::Worker] {
            assert_eq!(severities(known_as(Some(role))), [answers, (TOKEN, Severity::Wrong)], "{role:?}");
        }
        for code in [ErrorCode::Unauthorized, ErrorCode::Forbidden] {
            assert_eq!(severities(refused(code)), [answers, (TOKEN, Severity::Wrong)], "{code:?}");
        }
        assert_eq!(severities(refused(ErrorCode::Unavailable)), [(SERVER, Severity::Wrong)]);
    }

    #[test]
    fn a_failure_says_what_failed_why_and_what_to_do() {
        let only = |answer: Result<Version, ClientError>| {
            let mut found = server(&at(), &answer);
            let last = found.pop().unwrap();
            (last.detail, last.advice)
        };
        let silent = ClientError::Silent { address: at(), after: ANSWER_TIME };
        let expected = "https://farm:7117 gives no answer: it said nothing for 10 s";
        assert_eq!(only(Err(silent)), (expected.to_owned(), START_SERVER));
        let garbled = ClientError::Garbled { address: at(), source: "a page".into() };
        assert_eq!(
            only(Err(garbled)),
            ("https://farm:7117 gives no answer: a page".to_owned(), OTHER_PROGRAM)
        );
        let expected = "https://farm:7117 refuses it: because of it";
        assert_eq!(only(refused(ErrorCode::Unauthorized)), (expected.to_owned(), MAKE_TOKEN));
    }

    #[test]
    fn frames_need_a_worker_with_the_tag_that_is_heard_and_not_drained() {
        let in_state = |state: WorkerState| Worker { state, ..worker(0.0, 0) };
        let (up, silent) = (in_state(WorkerState::Up), in_state(WorkerState::Suspect));
        let (drained, expired) = (in_state(WorkerState::Draining), in_state(WorkerState::Expired));
        let judge = |workers: &[&Worker], tag: &str| {
            let workers: Vec<Worker> = workers.iter().map(|worker| (*worker).clone()).collect();
            hosts(&workers, &settings(tag))
        };
        let cases: [(&[&Worker], &str, Severity, &str); 7] = [
            (&[], "opencue", Severity::Wrong, "the server has no workers"),
            (&[&up], "render", Severity::Wrong, "no worker has the tag 'render'; workers without it: 1"),
            (&[&up], "opencue=a|b", Severity::Wrong, "no worker has the tag 'opencue=a|b'"),
            (&[&silent, &expired], "opencue", Severity::Wrong, "0 of 2 workers with the tag 'opencue'"),
            (&[&drained, &silent], "opencue", Severity::Note, "those that are not silent are drained"),
            (&[&up], "opencue", Severity::Ok, "1 of 1 workers with the tag 'opencue' take frames"),
            (&[&up, &drained, &silent], "opencue", Severity::Ok, "1 of 3 workers"),
        ];
        for (workers, tag, severity, says) in cases {
            let found = judge(workers, tag);
            assert_eq!(found.severity, severity, "{says}: {found:?}");
            assert!(found.detail.contains(says), "{says}: {found:?}");
            assert_eq!(found.advice.is_empty(), severity == Severity::Ok, "{found:?}");
        }
    }

    #[tokio::test]
    async fn files_and_addresses_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("none.sock");
        let server = Addresses::parse(&socket.display().to_string()).unwrap();
        let unanswered = check_workers(&WorkersSettings { server, ..settings("opencue") }).await;
        let [only] = unanswered.as_slice() else { panic!("{unanswered:?}") };
        assert_eq!((only.what, only.severity, only.advice), (SERVER, Severity::Wrong, START_SERVER));
        assert!(only.detail.contains("none.sock gives no answer"), "{only:?}");
        let token_file: Option<PathBuf> = Some(dir.path().join("none.token"));
        let without = check_workers(&WorkersSettings { token_file, ..settings("opencue") }).await;
        let [only] = without.as_slice() else { panic!("{without:?}") };
        assert_eq!((only.what, only.severity), (CREDENTIALS, Severity::Wrong));
        assert!(only.detail.contains("none.token: No such file"), "{only:?}");
    }
}
