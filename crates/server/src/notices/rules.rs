//! The settings of notices, ready for use: who is told, and where a notice may go.

use super::address::{BadAddress, NoticeAddress, host_and_port, is_localhost, is_own_network, literal};
use crate::config::NotifyConfig;
use reqwest::Url;
use ring::hmac;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use windlass_core::job::OnEnd;

/// Addresses that one job may name.
const ON_END_MAX: usize = 8;
/// The shortest secret of signatures.
const SECRET_BYTES_MIN: usize = 16;

/// Who is told of what, and where notices may go.
#[derive(Default)]
pub struct NoticeRules {
    /// Where people reach the board.
    pub(crate) board: Option<String>,
    /// By which webhooks are signed.
    pub(crate) key: Option<hmac::Key>,
    pub(crate) sendmail: Option<Sendmail>,
    /// Told of lost workers.
    pub(crate) workers: BTreeSet<String>,
    jobs: Vec<String>,
    failures: Vec<String>,
    users: BTreeMap<String, Vec<String>>,
    user_failures: BTreeMap<String, Vec<String>>,
    /// Hosts with their ports, in the server's own network, to which users' notices may go.
    allowed: BTreeSet<String>,
    /// All addresses that the settings name. An administrator wrote them, so they may go anywhere.
    named: BTreeSet<String>,
}

/// How mail is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sendmail {
    pub program: String,
    pub arguments: Vec<String>,
    /// The sender; `None` is the program's.
    pub from: Option<String>,
}

/// Why the settings of notices are refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum NotifyError {
    #[error("notify.{setting}: {why}")]
    Address { setting: &'static str, why: String },
    #[error("notify.allow must be HOST:PORT each, such as hooks.farm.lan:8080, not '{0}'")]
    Allow(String),
    #[error("notify.url must begin with http:// or https://, not '{0}'")]
    BoardUrl(String),
    #[error("notify.sendmail is empty; give a command such as /usr/sbin/sendmail -t -i")]
    NoCommand,
    #[error("notify.mail_from must be a mail address, not '{0}'")]
    Sender(String),
    #[error("cannot read the secret of notify.secret, {}", path.display())]
    Secret { path: PathBuf, source: std::io::Error },
    #[error(
        "the secret of notify.secret, {}, has fewer than {} bytes; make one by 'openssl rand -hex 32'",
        path.display(), SECRET_BYTES_MIN
    )]
    ShortSecret { path: PathBuf },
}

impl NoticeRules {
    /// Reads the settings, and the secret that they name.
    ///
    /// # Errors
    /// If an address or another setting makes no sense, or if the secret cannot be read.
    pub fn new(config: &NotifyConfig) -> Result<NoticeRules, NotifyError> {
        let mut rules = NoticeRules {
            board: config.url.clone(),
            key: key_of(config)?,
            sendmail: sendmail_of(config)?,
            workers: config.workers.iter().cloned().collect(),
            jobs: config.jobs.clone(),
            failures: config.failures.clone(),
            users: config.users.clone(),
            user_failures: config.user_failures.clone(),
            ..NoticeRules::default()
        };
        if let Some(url) = config
            .url
            .as_deref()
            .filter(|url| !matches!(NoticeAddress::parse(url), Ok(NoticeAddress::Web(_))))
        {
            return Err(NotifyError::BoardUrl(url.to_owned()));
        }
        for host in &config.allow {
            rules.allowed.insert(allowed_host(host).ok_or_else(|| NotifyError::Allow(host.clone()))?);
        }
        let lists = [("jobs", &config.jobs), ("failures", &config.failures), ("workers", &config.workers)];
        let of_users = config.users.values().map(|to| ("users", to));
        let of_failures = config.user_failures.values().map(|to| ("user_failures", to));
        for (setting, addresses) in lists.into_iter().chain(of_users).chain(of_failures) {
            for address in addresses {
                rules.named.insert(address.clone());
                rules
                    .check_one(address)
                    .map_err(|why| NotifyError::Address { setting, why: why.to_string() })?;
            }
        }
        Ok(rules)
    }

    /// Checks what a submission names.
    pub(crate) fn check(&self, on_end: &[OnEnd]) -> Result<(), BadAddress> {
        if on_end.len() > ON_END_MAX {
            return Err(BadAddress::TooMany { is: on_end.len(), max: ON_END_MAX });
        }
        on_end.iter().try_for_each(|told| self.check_one(&told.to))
    }

    fn check_one(&self, address: &str) -> Result<(), BadAddress> {
        match NoticeAddress::parse(address)? {
            NoticeAddress::Mail(_) if self.sendmail.is_none() => Err(BadAddress::NoMail),
            NoticeAddress::Web(url) if !self.trusts(address, &url) && leads_inside(&url) => {
                Err(BadAddress::OwnNetwork(host_and_port(&url)))
            }
            NoticeAddress::Mail(_) | NoticeAddress::Web(_) => Ok(()),
        }
    }

    /// True of an address that may be in the server's own network.
    pub(crate) fn trusts(&self, address: &str, url: &Url) -> bool {
        self.named.contains(address) || self.allowed.contains(&host_and_port(url))
    }

    /// The settings' addresses for the jobs of a user, or for those that fail, too.
    pub(super) fn of_user(&self, user: &str, failed: bool) -> impl Iterator<Item = &String> {
        let failures = self.user_failures.get(user).filter(|_| failed);
        self.users.get(user).into_iter().chain(failures).flatten()
    }

    /// The settings' addresses for all jobs, or for those that fail, too.
    pub(super) fn of_all(&self, failed: bool) -> impl Iterator<Item = &String> {
        self.jobs.iter().chain(self.failures.iter().filter(move |_| failed))
    }
}

/// True of a URL that names the server's own network outright. Another name may still lead there.
pub(crate) fn leads_inside(url: &Url) -> bool {
    is_localhost(url) || literal(url).is_some_and(is_own_network)
}

/// A listed host in the form in which URLs name it.
fn allowed_host(listed: &str) -> Option<String> {
    let (_, port) = listed.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let url = Url::parse(&format!("http://{listed}/")).ok()?;
    let is_bare = url.path() == "/" && url.username().is_empty() && url.query().is_none();
    is_bare.then(|| host_and_port(&url))
}

fn key_of(config: &NotifyConfig) -> Result<Option<hmac::Key>, NotifyError> {
    let Some(path) = &config.secret else { return Ok(None) };
    let secret = std::fs::read(path).map_err(|source| NotifyError::Secret { path: path.clone(), source })?;
    let secret = secret.trim_ascii();
    match secret.len() < SECRET_BYTES_MIN {
        true => Err(NotifyError::ShortSecret { path: path.clone() }),
        false => Ok(Some(hmac::Key::new(hmac::HMAC_SHA256, secret))),
    }
}

fn sendmail_of(config: &NotifyConfig) -> Result<Option<Sendmail>, NotifyError> {
    let Some(command) = &config.sendmail else { return Ok(None) };
    if let Some(from) =
        config.mail_from.as_deref().filter(|from| NoticeAddress::parse(&format!("mailto:{from}")).is_err())
    {
        return Err(NotifyError::Sender(from.to_owned()));
    }
    let mut words = command.split_whitespace().map(str::to_owned);
    let program = words.next().ok_or(NotifyError::NoCommand)?;
    Ok(Some(Sendmail { program, arguments: words.collect(), from: config.mail_from.clone() }))
}
