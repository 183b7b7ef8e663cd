//! Why a notice was not delivered this time.

use std::error::Error;
use std::process::ExitStatus;

/// Why a notice was not delivered this time.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undelivered {
    #[error("'{host}' answered with status {status}")]
    Status { host: String, status: u16 },
    #[error("'{host}' could not be asked: {why}")]
    NoAnswer { host: String, why: String },
    #[error(
        "'{host}' is in the server's own network; an administrator may list it in the setting notify.allow"
    )]
    OwnNetwork { host: String },
    #[error("cannot run '{program}': {why}")]
    NoCommand { program: String, why: std::io::Error },
    #[error("'{program}' ended with {status}")]
    Command { program: String, status: ExitStatus },
    #[error("'{program}' took too long and was killed")]
    CommandHangs { program: String },
    /// The settings were changed since.
    #[error("it has no address that this server may use")]
    NoAddress,
    #[error("it was written by another release")]
    Unreadable,
}

/// A name that leads into the server's own network. The caller knows which.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name leads into the server's own network")]
pub(super) struct OwnNetwork;

impl Undelivered {
    /// Of a client, without the URL: that is told only to those who may read the job.
    pub fn of_client(host: &str, error: reqwest::Error) -> Undelivered {
        let error = error.without_url();
        let (mut why, mut cause) = (error.to_string(), error.source());
        while let Some(next) = cause {
            if next.is::<OwnNetwork>() {
                return Undelivered::OwnNetwork { host: host.to_owned() };
            }
            why.push_str(&format!(": {next}"));
            cause = next.source();
        }
        Undelivered::NoAnswer { host: host.to_owned(), why }
    }
}
