//! Failures of requests, and whether the request may have been done.

use crate::address::Address;
use crate::error::{ErrorCode, ErrorDetail};
use std::error::Error;
use std::time::Duration;

/// Why a request has no usable answer.
// The messages say what the fields are.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no server answers at {address}")]
    Unreachable { address: Address, source: reqwest::Error },
    #[error("{address} is a unix socket, which this system cannot reach")]
    NoUnixSockets { address: Address },
    /// The server accepts connections and says nothing. Only a client that knows another address gives up on it.
    #[error("the server at {address} said nothing for {} s", .after.as_secs())]
    Silent { address: Address, after: Duration },
    #[error("{}", .0.message)]
    Refused(ErrorDetail),
    #[error("the answer of the server at {address} cannot be read")]
    Garbled { address: Address, source: Box<dyn Error + Send + Sync> },
    /// None of several servers has an answer.
    #[error("none of the {} servers answers: {}", .0.len(), each(.0))]
    NoneAnswers(Vec<(Address, ClientError)>),
    /// One of several servers may have got a request that must not be made twice, and its answer was
    /// lost.
    #[error("whether it was done is not known, because the answer of the server at {address} was lost: {}", .failure.root())]
    Unsure { address: Address, failure: Box<ClientError> },
}

/// Whether a request that failed may have been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The server never got it: another one may.
    NotSent,
    /// The server may have done it, or does nothing now: another one may get it if that does no harm.
    Unknown,
    /// The server answered, and all others would answer the same.
    Answered,
}

impl ClientError {
    /// The server's error code, if it answered with one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused(detail) => Some(detail.code),
            _ => None,
        }
    }

    /// True if a retry may help: no server answered, or it is temporarily unavailable. Where none of several is
    /// trusted, a person has to change something first.
    pub fn is_temporary(&self) -> bool {
        match self {
            ClientError::NoneAnswers(all) => !all.iter().all(|(_, error)| error.is_untrusted()),
            error => {
                let passes = matches!(error.code(), Some(ErrorCode::Unavailable | ErrorCode::WorkerAway));
                passes || error.is_unreachable()
            }
        }
    }

    /// True if no server answered.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::NoneAnswers(_)
        )
    }

    /// True if some server may have got the request.
    pub fn was_sent(&self) -> bool {
        match self {
            ClientError::NoneAnswers(all) => all.iter().any(|(_, error)| error.was_sent()),
            error => error.verdict() != Verdict::NotSent,
        }
    }

    /// The one server that failed; `None` if there are several, or if it answered.
    pub(super) fn address(&self) -> Option<&Address> {
        match self {
            ClientError::Unreachable { address, .. }
            | ClientError::NoUnixSockets { address }
            | ClientError::Silent { address, .. }
            | ClientError::Garbled { address, .. }
            | ClientError::Unsure { address, .. } => Some(address),
            ClientError::Refused(_) | ClientError::NoneAnswers(_) => None,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self {
            ClientError::Unreachable { source, .. } if source.is_connect() || source.is_builder() => {
                Verdict::NotSent
            }
            ClientError::NoUnixSockets { .. } => Verdict::NotSent,
            ClientError::Refused(detail) if detail.code != ErrorCode::Unavailable => Verdict::Answered,
            _ => Verdict::Unknown,
        }
    }

    /// True if something is wrong that a person should learn of even where another server answers: a certificate that
    /// is not trusted, or a program that is not a Windlass server.
    pub(super) fn is_misconfigured(&self) -> bool {
        self.is_untrusted() || matches!(self, ClientError::Garbled { .. })
    }

    /// True if the connection failed by its encryption: the server's certificate is not trusted, names another host or
    /// has expired, or the server speaks no TLS. Of several servers it is asked of each.
    pub fn is_untrusted(&self) -> bool {
        matches!(self, ClientError::Unreachable { source, .. } if is_of_tls(source))
    }

    /// The last cause, in one line. What the HTTP library says around it does not help.
    pub fn root(&self) -> String {
        if let ClientError::Silent { after, .. } = self {
            return format!("it said nothing for {} s", after.as_secs());
        }
        let mut last: &dyn Error = self;
        while let Some(cause) = last.source() {
            last = cause;
        }
        last.to_string()
    }
}

/// Each address and what was met there.
fn each(failures: &[(Address, ClientError)]) -> String {
    let all = failures.iter().map(|(address, error)| format!("{address}: {}", error.root()));
    all.collect::<Vec<_>>().join("; ")
}

/// True if a connection failed because of certificates or of the protocol that checks them.
fn is_of_tls(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return true;
        }
        // An I/O error does not name the error inside as its source, and may be inside another one.
        let inside = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => cause.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> ClientError {
        ClientError::Refused(ErrorDetail { code, message: "no owner now".to_owned(), hint: None })
    }

    #[test]
    fn only_a_server_that_is_unavailable_leaves_the_answer_to_others() {
        assert_eq!(refused(ErrorCode::Unavailable).verdict(), Verdict::Unknown);
        for code in [ErrorCode::NotFound, ErrorCode::Unauthorized, ErrorCode::Conflict, ErrorCode::Internal] {
            assert_eq!(refused(code).verdict(), Verdict::Answered, "{code:?}");
        }
        let away = refused(ErrorCode::WorkerAway);
        assert!(away.verdict() == Verdict::Answered && away.is_temporary(), "each server knows the worker");
        let silent = ClientError::Silent { address: Address::parse("a:1"), after: Duration::from_secs(9) };
        assert_eq!(silent.verdict(), Verdict::Unknown);
    }

    #[test]
    fn an_error_of_several_names_each_and_what_it_said() {
        let silent = ClientError::Silent { address: Address::parse("a:1"), after: Duration::from_secs(9) };
        let busy = refused(ErrorCode::Unavailable);
        let all =
            ClientError::NoneAnswers(vec![(Address::parse("a:1"), silent), (Address::parse("b:2"), busy)]);
        assert_eq!(
            all.to_string(),
            "none of the 2 servers answers: https://a:1: it said nothing for 9 s; \
             https://b:2: no owner now"
        );
        assert!(all.is_temporary() && all.was_sent());
    }
}
