//! Events for the clients of servers that stand by. The owner writes them as rows, several to a row, while there are such
//! servers; they read the rows and tell their clients.

use crate::events::{Events, Subscription};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::ServerEvent;
use windlass_store::{ServerId, Store, StoreError};

/// How long events are gathered for one row.
const GATHER: Duration = Duration::from_millis(25);
/// Bytes of a row. One event may be more.
const ROW_BYTES_MAX: usize = 256 << 10;
/// How often the owner looks whether there are other servers.
const PEERS_EVERY: Duration = Duration::from_secs(1);
/// A server that has not beaten for this long is gone.
const PEER_SILENT_MAX: Duration = Duration::from_secs(10);
/// After a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows that are read at a time.
const ROWS_MAX: usize = 64;

/// Writes events for other servers until `closing` turns true. `own` is this server.
pub(crate) async fn send_events(
    store: Store,
    own: ServerId,
    told: Events,
    mut closing: watch::Receiver<bool>,
) {
    let mut peers = tokio::time::interval(PEERS_EVERY);
    let mut events: Option<Subscription> = None;
    let mut row = EventRow::default();
    let ended = async {
        _ = closing.wait_for(|closing| *closing).await;
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => return,
            _ = peers.tick() => match (has_peers(&store, own).await, &events) {
                (Some(true), None) => {
                    events = Some(told.subscribe());
                    // What happened before is not told, so listeners read all again.
                    row.add(&ServerEvent::Lagged);
                }
                (Some(false), Some(_)) => (events, row) = (None, EventRow::default()),
                _ => {}
            },
            event = next(&mut events), if row.has_room() => row.add(&event),
            () = tokio::time::sleep_until(row.due.unwrap_or_else(Instant::now)), if row.due.is_some() => {
                let lines = std::mem::take(&mut row).lines;
                if let Err(error) = store.relay_events(lines).await {
                    tracing::warn!("other servers' clients are not told what happens: {error}");
                    row.add(&ServerEvent::Lagged);
                    row.due = Some(Instant::now() + PAUSE);
                }
            }
        }
    }
}

/// `None` if that cannot be found out now.
async fn has_peers(store: &Store, own: ServerId) -> Option<bool> {
    let servers = store.servers().await.ok()?;
    Some(servers.iter().any(|server| server.id != own && server.silent < PEER_SILENT_MAX))
}

async fn next(events: &mut Option<Subscription>) -> ServerEvent {
    match events {
        None => std::future::pending().await,
        Some(events) => match events.recv().await {
            Ok(event) => (*event).clone(),
            Err(RecvError::Lagged(_)) => ServerEvent::Lagged,
            Err(RecvError::Closed) => std::future::pending().await,
        },
    }
}

/// Events of a row, a line of JSON each.
#[derive(Default)]
struct EventRow {
    lines: String,
    /// When it is to be written; `None` while it is empty.
    due: Option<Instant>,
}

impl EventRow {
    fn has_room(&self) -> bool {
        self.lines.len() < ROW_BYTES_MAX
    }

    fn add(&mut self, event: &ServerEvent) {
        self.lines += &serde_json::to_string(event).unwrap_or_default();
        self.lines.push('\n');
        self.due.get_or_insert_with(|| Instant::now() + GATHER);
    }
}

/// Reads the owner's events for the clients of this server.
pub(super) struct EventReader {
    store: Store,
    events: Events,
    /// The row that was read last; `None` until one can be read.
    after: Option<i64>,
}

impl EventReader {
    /// Reads the rows that come from now on.
    pub async fn new(store: Store, events: Events) -> EventReader {
        let after = store.last_relayed_event().await.ok();
        EventReader { store, events, after }
    }

    /// Reads what is new and tells the listeners.
    pub async fn read(&mut self) -> Result<(), StoreError> {
        if self.after.is_none() || !self.events.is_wanted() {
            let last = self.store.last_relayed_event().await.ok();
            if last.is_some() && last != self.after {
                // A client that comes back later has missed something, too.
                self.events.tell(ServerEvent::Lagged);
            }
            // Rows that are gone leave their last number unknown, and numbers only rise.
            self.after = last.map(|last| last.max(self.after.unwrap_or(0)));
            return Ok(());
        }
        while let Some(after) = self.after {
            let rows = self.store.relayed_events(after, ROWS_MAX).await?;
            let count = rows.len();
            for (id, lines) in rows {
                self.tell(id, &lines);
            }
            if count < ROWS_MAX {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self, id: i64, lines: &str) {
        // A number that is left out is a row that is gone, or one that was never committed.
        if self.after.is_some_and(|after| id > after + 1) {
            self.events.tell(ServerEvent::Lagged);
        }
        self.after = Some(id);
        for line in lines.lines() {
            // A later release may have events that this one does not know.
            self.events.tell(serde_json::from_str(line).unwrap_or(ServerEvent::Lagged));
        }
    }
}
