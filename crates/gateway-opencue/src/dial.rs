//! Connections to PostgreSQL: plain, or with the TLS that the program brings. This crate has no TLS of its own, so
//! that a program with several databases uses one kind of TLS for all.

use deadpool_postgres::Connect;
use futures_util::future::BoxFuture;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, Notification, Socket};

/// Notifications that wait to be read. One that does not fit is dropped: each says only that there is something to
/// look for.
const NOTICES_MAX: usize = 1_024;

/// An open connection, with its notifications.
pub(crate) struct Dialed {
    /// The connection. It ends when this is dropped.
    pub client: Client,
    /// The notifications of the session. The stream ends with the connection.
    pub notices: mpsc::Receiver<Notification>,
    task: JoinHandle<()>,
}

type Dialing = BoxFuture<'static, Result<Dialed, Error>>;

/// Makes connections to PostgreSQL.
#[derive(Clone)]
pub struct Dialer {
    dial: Arc<dyn Fn(Config) -> Dialing + Send + Sync>,
}

impl Dialer {
    /// A dialer of connections without TLS.
    pub fn plain() -> Dialer {
        Dialer::with(NoTls)
    }

    /// A dialer of connections with this TLS, where the settings of a connection ask for it.
    pub fn with<T>(tls: T) -> Dialer
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let dial = move |config: Config| -> Dialing {
            let tls = tls.clone();
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                Ok(attend(client, connection))
            })
        };
        Dialer { dial: Arc::new(dial) }
    }

    pub(crate) async fn dial(&self, config: &Config) -> Result<Dialed, Error> {
        (self.dial)(config.clone()).await
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// Connections of a pool. Their notifications are not read.
impl Connect for Dialer {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let dialing = (self.dial)(config.clone());
        Box::pin(async move {
            let Dialed { client, task, .. } = dialing.await?;
            Ok((client, task))
        })
    }
}

/// Drives a connection until it or its client ends.
fn attend<S>(client: Client, mut connection: Connection<Socket, S>) -> Dialed
where
    S: TlsStream + Unpin + Send + 'static,
{
    let (sender, notices) = mpsc::channel(NOTICES_MAX);
    let task = tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => _ = sender.try_send(notification),
                Some(Ok(_)) => {}
                // A request that waits for an answer gets the same error.
                Some(Err(_)) | None => return,
            }
        }
    });
    Dialed { client, notices, task }
}
