//! Notifications, on a connection of their own. It is made again whenever it is lost, and the listener is told each
//! time, because PostgreSQL keeps no notification for a server that is not connected.

use super::Postgres;
use super::address::Target;
use crate::mailbox::{Listener, NOTICES_MAX, Notice};
use futures_util::FutureExt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

/// The pause before a lost connection is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How often the connection is tested. A database that disappears silently is noticed by this.
const TRY_EVERY: Duration = Duration::from_secs(10);

impl Postgres {
    pub(crate) fn listen(&self, channels: &'static [&'static str]) -> Listener {
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        let target = self.database.target.clone();
        let task = self.database.runtime.spawn(async move {
            while !sender.is_closed() {
                listen_once(&target, channels, &sender).await;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
        Listener { notices, silence: None, task: Some(task) }
    }
}

/// Listens until the connection is lost, or the listener is dropped.
async fn listen_once(target: &Target, channels: &[&str], sender: &mpsc::Sender<Notice>) {
    let Ok((client, mut connection)) = target.config.connect(target.tls.clone()).await else { return };
    let listen: String = channels.iter().map(|channel| format!("LISTEN {channel};")).collect();
    let mut said = client.batch_execute(&listen).map(|done| done.is_ok()).boxed();
    let (mut listens, mut has_missed) = (false, false);
    loop {
        let message = std::future::poll_fn(|cx| connection.poll_message(cx));
        tokio::select! {
            message = message => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => {
                    let notice =
                        Notice::Said { channel: heard.channel().to_owned(), payload: heard.payload().to_owned() };
                    has_missed |= sender.try_send(notice).is_err();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            is_there = &mut said => {
                if !is_there || sender.is_closed() {
                    return;
                }
                if !listens {
                    (listens, has_missed) = (true, true);
                }
                said = is_still_there(&client).boxed();
            }
        }
        if has_missed && listens && sender.try_send(Notice::Listens).is_ok() {
            has_missed = false;
        }
    }
}

/// Tests the connection after a pause. False if it is lost.
async fn is_still_there(client: &Client) -> bool {
    tokio::time::sleep(TRY_EVERY).await;
    let asked = tokio::time::timeout(TRY_EVERY, client.batch_execute("")).await;
    asked.is_ok_and(|answered| answered.is_ok())
}
