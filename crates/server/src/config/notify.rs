//! Who is told of jobs that end and of workers that are lost, and how.

use super::setting::{Setting, SettingType, Unit, settings};
use std::collections::BTreeMap;
use std::path::PathBuf;

settings! {
    /// [Notices](../notices.md) of jobs that end and of workers that are lost. An address is a URL, or `mailto:` and a
    /// mail address.
    pub struct NotifyConfig {
        /// Where people reach the board, such as `https://farm.example`. Notices have links to it.
        url: Option<String> = None;
        /// File with the secret by which webhooks are signed. Only the server's user may read it. Absent: they are not
        /// signed.
        secret: Option<PathBuf> = None;
        /// `HOST:PORT` inside the server's own network to which users' notices may go.
        allow: Vec<String> = Vec::new();
        /// Command that sends a mail, such as `/usr/sbin/sendmail -t -i`. It gets the mail on standard input. Absent: no
        /// mail is sent.
        sendmail: Option<String> = None;
        /// The sender of mails. By default the command's.
        mail_from: Option<String> = None;
        /// Addresses that are told of every job that ends.
        jobs: Vec<String> = Vec::new();
        /// Addresses that are told of every job that fails.
        failures: Vec<String> = Vec::new();
        /// Addresses that are told of every job of a user that ends, by the user's name.
        users: BTreeMap<String, Vec<String>> = BTreeMap::new();
        /// Addresses that are told of every job of a user that fails, by the user's name.
        user_failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
        /// Addresses that are told of every worker that is lost.
        workers: Vec<String> = Vec::new();
    }
}

/// Lists of addresses, each under the name of a user.
impl SettingType for BTreeMap<String, Vec<String>> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        settings.push(Setting { kind: "table, `USER = [\"ADDRESS\"]`", ..at });
    }

    fn assign(&mut self, _: &str, text: &str, _: Unit) -> Result<(), String> {
        for part in text.split(',') {
            let (user, to) =
                part.split_once('=').ok_or_else(|| format!("write USER=ADDRESS, not '{part}'"))?;
            self.entry(user.trim().to_owned()).or_default().push(to.trim().to_owned());
        }
        Ok(())
    }
}
