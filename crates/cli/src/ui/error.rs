//! The client's errors, with their exit codes and hints.

use crate::ui::message::print_message;
use anstyle::{AnsiColor, Style};
use std::error::Error;
use std::fmt::Display;
use std::io;
use windlass_api::client::{Address, ClientError};
use windlass_api::{ErrorCode, ErrorDetail};

/// Exit code of a request that failed.
pub const FAILED: i32 = 1;
/// Exit code of an invalid command line or request.
pub const USAGE: i32 = 2;
/// Exit code if something does not exist.
pub const NOT_FOUND: i32 = 3;
/// Exit code of a request that the server denies.
pub const DENIED: i32 = 4;
/// Exit code if no server answers, or it cannot serve now.
pub const UNREACHABLE: i32 = 5;
/// Exit code of work that no worker could ever run.
pub const CANNOT_BE_PLACED: i32 = 6;
/// Exit code of a wait that was longer than its timeout. It is that of the program `timeout`.
pub const TIMED_OUT: i32 = 124;
/// Exit code of a server whose store or address another server has, so that the client that started it tries again.
pub const TAKEN: i32 = 75;
/// Exit code that a shell reports for a process that wrote to a closed pipe, on every system: 128 + SIGPIPE.
pub const BROKEN_PIPE: i32 = 128 + 13;
/// Exit code after a hangup: 128 + SIGHUP.
pub const HUNG_UP: i32 = 128 + 1;
/// Exit code after Ctrl-C, and of a cancelled job: 128 + SIGINT.
pub const INTERRUPTED: i32 = 128 + 2;
/// Exit code after a request to end: 128 + SIGTERM.
pub const TERMINATED: i32 = 128 + 15;

/// What helps where no server runs.
const START_ONE: &str = "'windlass server status' shows whether one runs, 'windlass server start' starts one";

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// The mistake, in words for the user.
        message: String,
        /// The command or flag that helps, if one is known.
        hint: Option<String>,
    },
    /// Something does not exist.
    #[error("{message}")]
    NotFound {
        /// The thing that does not exist, in words for the user.
        message: String,
        /// The command or flag that helps, if one is known.
        hint: Option<String>,
    },
    /// A request to the server failed.
    #[error("cannot {doing}")]
    Request {
        /// The purpose of the request, such as "list the jobs".
        doing: String,
        /// The reason that the server or the connection gave.
        source: ClientError,
    },
    /// Anything else that has a sentence of its own.
    #[error("{message}")]
    Failed {
        /// The failure and its reason, in words for the user.
        message: String,
        /// The command or flag that helps, if one is known.
        hint: Option<String>,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// Not an error of this program: exit with this code, and print nothing.
    #[error("exit code {0}")]
    Exit(i32),
    /// Any other error, which exits with [`FAILED`].
    #[error(transparent)]
    Other(anyhow::Error),
}

impl CliError {
    /// An invalid command line, without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        CliError::Usage { message: message.into(), hint: None }
    }

    /// The error of a failed write to standard output: a silent exit if the reader went away.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::Exit(BROKEN_PIPE),
            _ => CliError::Output(error),
        }
    }

    /// The code that the process ends with.
    pub fn exit_code(&self) -> i32 {
        match self {
            CliError::Usage { .. } => USAGE,
            CliError::NotFound { .. } => NOT_FOUND,
            CliError::Request { source, .. } => code_of(source),
            CliError::Exit(code) => *code,
            CliError::Failed { .. } | CliError::Output(_) | CliError::Other(_) => FAILED,
        }
    }

    /// The failure and its reason, in one line.
    pub fn message(&self) -> String {
        match self {
            CliError::Request { source: ClientError::Unreachable { address, source }, doing } => {
                format!("cannot {doing}: no server answers at {address}: {}", root_of(source))
            }
            CliError::Other(error) => chain(error.chain()),
            other => chain(causes(other)),
        }
    }

    /// The command or flag that helps, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            CliError::Usage { hint, .. }
            | CliError::NotFound { hint, .. }
            | CliError::Failed { hint, .. } => hint.clone(),
            CliError::Request { source, .. } => match source {
                ClientError::Refused(ErrorDetail { hint, .. }) => hint.clone(),
                // How a TLS server answers plain HTTP.
                ClientError::Unreachable { .. } if self.message().contains("invalid HTTP version") => {
                    Some("this port speaks TLS: write https://HOST:PORT, and give --ca".to_owned())
                }
                error if error.is_untrusted() => Some(
                    "check --ca or WINDLASS_CA, and that the address names the server as its certificate does"
                        .to_owned(),
                ),
                ClientError::NoneAnswers(_) => {
                    Some("'windlass --server ADDRESS server status' asks one of them alone".to_owned())
                }
                ClientError::Unsure { .. } => {
                    Some("see whether it was done before you give the command again".to_owned())
                }
                ClientError::Unreachable { address, source } => {
                    Some(way_to(address, root_of(source)).to_owned())
                }
                ClientError::Silent { .. } => Some(START_ONE.to_owned()),
                ClientError::NoUnixSockets { .. } => {
                    Some("give the server's address as HOST:PORT or https://HOST:PORT".to_owned())
                }
                ClientError::Garbled { .. } => {
                    Some("check that a Windlass server of this version listens there".to_owned())
                }
            },
            CliError::Output(_) | CliError::Exit(_) | CliError::Other(_) => None,
        }
    }

    /// One word for programs.
    fn word(&self) -> String {
        let code = match self {
            CliError::Request { source: ClientError::Refused(detail), .. } => detail.code,
            CliError::Request { source, .. } if code_of(source) == UNREACHABLE => {
                return "unreachable".to_owned();
            }
            CliError::Usage { .. } => ErrorCode::BadRequest,
            CliError::NotFound { .. } => ErrorCode::NotFound,
            _ => return "failed".to_owned(),
        };
        serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Prints it on standard error; for programs as `{"error": {…}}`.
    pub fn print(&self, json: bool) {
        if matches!(self, CliError::Exit(_)) {
            return;
        }
        let (message, hint) = (self.message(), self.hint());
        if json {
            let error = serde_json::json!({ "code": self.word(), "message": message, "hint": hint });
            return print_message(format_args!("{}", serde_json::json!({ "error": error })));
        }
        let red: Style = AnsiColor::Red.on_default().bold();
        print_message(format_args!("{red}error:{red:#} {message}"));
        if let Some(hint) = hint {
            let bold = Style::new().bold();
            print_message(format_args!("  {bold}hint:{bold:#} {hint}"));
        }
    }
}

/// A `CliError` inside an `anyhow::Error` keeps its exit code and hint.
impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<CliError>() {
            Ok(error) => error,
            Err(error) => CliError::Other(error),
        }
    }
}

/// A request without a description: the first one, which only asks for the server's version.
impl From<ClientError> for CliError {
    fn from(source: ClientError) -> Self {
        CliError::Request { doing: "reach the server".to_owned(), source }
    }
}

/// Adds to a request's error what the request was for.
pub trait Doing<T> {
    /// `what` completes "cannot …".
    fn doing(self, what: impl Display) -> Result<T, CliError>;
}

impl<T> Doing<T> for Result<T, ClientError> {
    fn doing(self, what: impl Display) -> Result<T, CliError> {
        self.map_err(|source| CliError::Request { doing: what.to_string(), source })
    }
}

/// Ends the command with a code that is not an error of this program.
pub fn end_with(code: i32) -> Result<(), CliError> {
    if code == 0 { Ok(()) } else { Err(CliError::Exit(code)) }
}

/// True if a retry may help.
pub fn may_pass(error: &ClientError) -> bool {
    error.is_temporary() || matches!(error, ClientError::Garbled { .. })
}

fn code_of(error: &ClientError) -> i32 {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::NoneAnswers(_)
        | ClientError::Unsure { .. } => UNREACHABLE,
        ClientError::Garbled { .. } => FAILED,
        ClientError::NoUnixSockets { .. } => USAGE,
        ClientError::Refused(detail) => match detail.code {
            ErrorCode::BadRequest | ErrorCode::TooLarge => USAGE,
            ErrorCode::Unauthorized | ErrorCode::Forbidden => DENIED,
            ErrorCode::NotFound => NOT_FOUND,
            ErrorCode::Unavailable | ErrorCode::WorkerAway => UNREACHABLE,
            ErrorCode::CannotBePlaced => CANNOT_BE_PLACED,
            ErrorCode::MethodNotAllowed | ErrorCode::Conflict | ErrorCode::Internal => FAILED,
        },
    }
}

/// What helps where no server answers at an address, by the last cause.
fn way_to(address: &Address, root: &(dyn Error + 'static)) -> &'static str {
    let kind = root.downcast_ref::<io::Error>().map(io::Error::kind);
    match (address, kind) {
        (Address::Unix(_), Some(io::ErrorKind::PermissionDenied)) => {
            "your user may not open this socket: its owner, or its group, may; or name a server over TCP by --server"
        }
        // The resolver's errors have no kind of their own.
        (Address::Http(_), _) if root.to_string().starts_with("failed to lookup address information") => {
            "no machine of this name is known here: check the name in --server or WINDLASS_SERVER"
        }
        (Address::Http(_), Some(io::ErrorKind::ConnectionRefused)) if !address.is_local() => {
            "the machine answers, and nothing listens on this port: check the port, and that the server runs there"
        }
        (Address::Http(_), _) if !address.is_local() => {
            "check the address in --server or WINDLASS_SERVER, and that no firewall is between"
        }
        _ => START_ONE,
    }
}

/// The last cause. The texts that the HTTP library puts around it do not help.
fn root_of<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

/// An error and all of its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.source();
        Some(this)
    })
}

/// Causes joined by colons. Many errors repeat their cause in their own text; it is printed once.
fn chain<'a>(errors: impl Iterator<Item = &'a (dyn Error + 'static)>) -> String {
    let mut text = String::new();
    for error in errors {
        let next = error.to_string();
        if text.is_empty() {
            text = next;
        } else if !next.is_empty() && !text.split(": ").any(|said| said == next) && !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> CliError {
        let detail = ErrorDetail { code, message: "no".to_owned(), hint: Some("try".to_owned()) };
        Err::<(), _>(ClientError::Refused(detail)).doing("show job 3").unwrap_err()
    }

    #[test]
    fn exit_codes_follow_the_answer() {
        assert_eq!(refused(ErrorCode::BadRequest).exit_code(), 2);
        assert_eq!(refused(ErrorCode::TooLarge).exit_code(), 2);
        assert_eq!(refused(ErrorCode::NotFound).exit_code(), 3);
        assert_eq!(refused(ErrorCode::Unauthorized).exit_code(), 4);
        assert_eq!(refused(ErrorCode::Forbidden).exit_code(), 4);
        assert_eq!(refused(ErrorCode::Unavailable).exit_code(), 5);
        assert_eq!(refused(ErrorCode::CannotBePlaced).exit_code(), 6);
        assert_eq!(refused(ErrorCode::Conflict).exit_code(), 1);
        assert_eq!(CliError::Exit(42).exit_code(), 42);
        assert_eq!(CliError::usage("x").exit_code(), 2);
    }

    #[test]
    fn a_refusal_says_what_failed_and_why() {
        let error = refused(ErrorCode::NotFound);
        assert_eq!(error.message(), "cannot show job 3: no");
        assert_eq!(error.hint().as_deref(), Some("try"));
        assert_eq!(error.word(), "not_found");
    }

    #[test]
    fn the_way_to_a_server_depends_on_what_is_in_it() {
        let way = |address: &str, root: io::Error| way_to(&Address::parse(address), &root);
        let of = |kind: io::ErrorKind| io::Error::from(kind);
        assert!(
            way("unix:/run/w.sock", of(io::ErrorKind::PermissionDenied)).starts_with("your user may not")
        );
        assert_eq!(way("unix:/run/w.sock", of(io::ErrorKind::NotFound)), START_ONE);
        assert_eq!(way("127.0.0.1:1", of(io::ErrorKind::ConnectionRefused)), START_ONE);
        assert!(way("farm:7117", of(io::ErrorKind::ConnectionRefused)).contains("check the port"));
        assert!(way("farm:7117", of(io::ErrorKind::TimedOut)).contains("firewall"));
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        assert!(way("farm:7117", unknown).contains("check the name"));
    }

    #[test]
    fn causes_are_said_once() {
        let error = anyhow::anyhow!("disk full").context("write: disk full").context("save");
        assert_eq!(CliError::from(error).message(), "save: write: disk full");
    }

    #[test]
    fn an_error_of_ours_keeps_its_code() {
        let error = anyhow::Error::from(CliError::usage("bad"));
        assert_eq!(CliError::from(error).exit_code(), 2);
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        let error = CliError::output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(error, CliError::Exit(141)));
    }
}
