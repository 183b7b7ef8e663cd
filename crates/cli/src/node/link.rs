//! A connection that outlives the server: servers are restarted while jobs run.

use crate::ui::error::{CliError, Doing};
use crate::ui::output::talk;
use std::time::{Duration, Instant};
use windlass_api::client::{Address, Client, ClientError};

/// How long a server may be unreachable.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// The first pause before a retry, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A client, and what it does when the server stops answering.
pub struct ServerLink {
    /// The client.
    pub client: Client,
    server: Option<Address>,
    own: bool,
    outage: Option<Outage>,
}

struct Outage {
    since: Instant,
    pause: Duration,
    told: bool,
}

impl ServerLink {
    /// A link to the named server; to the per-user one if `None`.
    pub fn new(client: Client, server: Option<Address>) -> Self {
        ServerLink { client, server, own: false, outage: None }
    }

    /// A link to the server inside this process, which is never restarted.
    pub fn to_own(client: Client) -> Self {
        ServerLink { client, server: None, own: true, outage: None }
    }

    /// Notes that the server answers, and ends an outage.
    pub fn calm(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.told) {
            talk!("note: the server is back");
        }
    }

    /// Repeats a request until there is an answer, or until waiting cannot help.
    pub async fn ask<T, Answer>(
        &mut self,
        doing: &str,
        mut question: impl FnMut(Client) -> Answer,
    ) -> Result<T, CliError>
    where
        Answer: Future<Output = Result<T, ClientError>>,
    {
        loop {
            match question(self.client.clone()).await {
                Ok(answer) => {
                    self.calm();
                    return Ok(answer);
                }
                Err(error) => self.pause(doing, error).await?,
            }
        }
    }

    /// True if the user named the server: then this program does not start it.
    pub fn is_named(&self) -> bool {
        self.own || self.server.is_some()
    }

    /// Waits a moment after a failure, and starts the per-user server if that is the one. Returns the error if waiting
    /// cannot help, or has not helped for too long.
    pub async fn pause(&mut self, doing: &str, error: ClientError) -> Result<(), CliError> {
        if !may_pass(&error) {
            return Err(error).doing(doing);
        }
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: Instant::now(),
            pause: PAUSE_MIN,
            told: false,
        });
        if outage.since.elapsed() > OUTAGE_MAX {
            return Err(error).doing(doing);
        }
        // The first retry is silent: a clean restart needs no more.
        if outage.pause > PAUSE_MIN && !outage.told {
            outage.told = true;
            let (address, seconds) = (self.client.address(), OUTAGE_MAX.as_secs());
            talk!("note: the server at {address} does not answer; retrying for {seconds} s");
        }
        tokio::time::sleep(outage.pause).await;
        outage.pause = (outage.pause * 2).min(PAUSE_MAX);
        if !self.is_named() {
            // If this fails, the next request fails too, and this function is called again.
            if let Ok(client) = crate::node::serve::connect(None).await {
                self.client = client;
            }
        }
        Ok(())
    }
}

/// True if a retry may help. A truncated answer looks garbled.
pub fn may_pass(error: &ClientError) -> bool {
    error.is_temporary() || matches!(error, ClientError::Garbled { .. })
}

/// The error for an event stream that ended. A server ends it only when it stops.
pub fn hung_up(client: &Client) -> ClientError {
    ClientError::Garbled {
        address: client.address().clone(),
        source: "it closed the stream of events".into(),
    }
}
