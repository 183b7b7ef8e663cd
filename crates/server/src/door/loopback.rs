//! The board's port of a server that has a unix socket only: opened when a client of the socket asks for it, and closed
//! when no browser uses it any more.

use super::sessions::{CODE_MS, Sessions};
use crate::handle::Handle;
use crate::listen::{ListenError, Listener, Served};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// How long the port stays open although no session of it was used. The event stream of an open board uses its session.
const UNUSED_MS_MAX: u64 = 3_600_000;
/// Between two looks whether a browser still uses the port.
const LOOK: Duration = Duration::from_secs(15);
/// Requests to open the port that may wait.
const ASKED_MAX: usize = 16;

type Ask = oneshot::Sender<Result<String, ListenError>>;

#[derive(Clone)]
pub(crate) struct LoopbackDoor(mpsc::Sender<Ask>);

/// Requests to open the port, for [`keep`].
pub(crate) struct DoorAsks(mpsc::Receiver<Ask>);

impl LoopbackDoor {
    /// Closed at first. [`keep`] does the work.
    pub fn new() -> (LoopbackDoor, DoorAsks) {
        let (ask, asked) = mpsc::channel(ASKED_MAX);
        (LoopbackDoor(ask), DoorAsks(asked))
    }

    /// Where it is; opens it if it is not open. `None` while the server ends.
    pub async fn open(&self) -> Option<Result<String, ListenError>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        answered.await.ok()
    }
}

/// Opens and closes the port until the server ends.
pub(crate) async fn keep(mut asked: DoorAsks, served: Served, sessions: Arc<Sessions>, handle: Handle) {
    let mut closing = handle.closing();
    let mut open: Option<OpenPort> = None;
    let mut conversations = JoinSet::new();
    loop {
        let answer = tokio::select! {
            ask = asked.0.recv() => ask,
            () = tokio::time::sleep(LOOK), if open.is_some() => {
                if !sessions.is_own_in_use(handle.now(), UNUSED_MS_MAX.max(CODE_MS)) {
                    tracing::info!("nobody looks at the board: closing its port");
                    open = None;
                }
                continue;
            }
            Some(_) = conversations.join_next() => continue,
            _ = closing.wait_for(|closing| *closing) => None,
        };
        let Some(answer) = answer else { break };
        let address = match &open {
            Some(port) => Ok(port.url.clone()),
            None => {
                OpenPort::new(&served, &mut conversations).await.map(|port| open.insert(port).url.clone())
            }
        };
        _ = answer.send(address);
    }
    drop(open);
    while conversations.join_next().await.is_some() {}
}

/// The port while it is open. Dropping it takes no more connections, and ends those that are open.
struct OpenPort {
    /// As browsers reach it: `http://HOST:PORT`.
    url: String,
    _closing: watch::Sender<bool>,
}

impl OpenPort {
    async fn new(served: &Served, conversations: &mut JoinSet<()>) -> Result<OpenPort, ListenError> {
        let listener = Listener::bind_board().await?;
        let url = listener.url_here().unwrap_or_default();
        let (closing, closed) = watch::channel(false);
        let served = Served { closing: closed, ..served.clone() };
        tracing::info!("the board is at {url}");
        conversations.spawn(async move {
            if let Err(error) = listener.serve(served).await {
                tracing::error!("the board's port does not answer: {error}");
            }
        });
        Ok(OpenPort { url, _closing: closing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Right;
    use crate::config::Config;
    use crate::connections::RoomLimits;
    use crate::refusals::Refusals;
    use crate::shell::ShellOptions;
    use axum::Router;
    use prometheus_client::metrics::counter::Counter;
    use std::net::TcpStream;
    use windlass_store::Store;

    fn reachable(url: &str) -> bool {
        TcpStream::connect(url.strip_prefix("http://").unwrap()).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_port_is_closed_when_nobody_looks_and_opened_again_when_asked() {
        let store = Store::open("memory").unwrap();
        let options = ShellOptions { settings: Config::default().engine_settings() };
        let handle = crate::start(store, options).await.unwrap();
        let refusals = Arc::new(Refusals::new(Counter::default()));
        let served = Served::new(Router::new(), refusals, handle.closing(), RoomLimits::new(None, None), 1);
        let (door, asks) = LoopbackDoor::new();
        let sessions = Arc::new(Sessions::default());
        let kept = tokio::spawn(keep(asks, served, sessions.clone(), handle.clone()));
        // A code that was not used yet keeps it open.
        let code = sessions.make_code(Right::Own, handle.now()).unwrap();
        let url = door.open().await.unwrap().unwrap();
        for _ in 0..3 {
            tokio::time::advance(LOOK).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(door.open().await.unwrap().unwrap(), url);
        assert!(url.starts_with("http://127.0.0.1:") && reachable(&url), "{url}");
        // A session with the right of a token does not: its browser comes by the server's other port.
        sessions.redeem(&code, handle.now()).unwrap();
        sessions.begin(Right::Token("a".to_owned()), None, handle.now()).unwrap();
        while reachable(&url) {
            tokio::time::advance(LOOK).await;
            tokio::task::yield_now().await;
        }
        assert!(reachable(&door.open().await.unwrap().unwrap()));
        handle.close();
        kept.await.unwrap();
        assert!(door.open().await.is_none(), "the server has ended");
        handle.stop().await;
    }
}
