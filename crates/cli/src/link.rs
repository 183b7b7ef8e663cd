//! A connection that outlives the server: servers are restarted under running jobs.

use crate::error::{CliError, Doing};
use crate::output::talk;
use std::time::{Duration, Instant};
use windlass_api::client::{Address, Client, ClientError};

/// How long a server may be gone.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// The first pause before another try, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A client and what to do when it finds no server any more.
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
    /// The link of a client of the server that was asked for; of the per-user one if `None`.
    pub fn new(client: Client, server: Option<Address>) -> Self {
        ServerLink { client, server, own: false, outage: None }
    }

    /// The link to a server in this very process: if it is gone, so are we.
    pub fn to_own(client: Client) -> Self {
        ServerLink { client, server: None, own: true, outage: None }
    }

    /// The server answers.
    pub fn calm(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.told) {
            talk!("note: the server is back");
        }
    }

    /// Asks until there is an answer, or waiting does not help.
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

    /// True where somebody named the server, which nobody but them starts.
    pub fn is_named(&self) -> bool {
        self.own || self.server.is_some()
    }

    /// Waits a moment after a failure and starts the per-user server if that is the one. An error
    /// where waiting does not help, or helped for too long not.
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
        // The first try again is silent: a server that restarts in good order needs no more.
        if outage.pause > PAUSE_MIN && !outage.told {
            outage.told = true;
            let (address, seconds) = (self.client.address(), OUTAGE_MAX.as_secs());
            talk!("note: the server at {address} does not answer; trying for {seconds} s to reach it again");
        }
        tokio::time::sleep(outage.pause).await;
        outage.pause = (outage.pause * 2).min(PAUSE_MAX);
        if !self.is_named() {
            // If this fails the next request says so, and we are back here.
            if let Ok(client) = crate::serve::connect(None).await {
                self.client = client;
            }
        }
        Ok(())
    }
}

/// True where another try may help. An answer cut off in the middle looks garbled.
pub fn may_pass(error: &ClientError) -> bool {
    error.is_temporary() || matches!(error, ClientError::Garbled { .. })
}

/// What to say of an event stream that ended, which servers end only when they end themselves.
pub fn hung_up(client: &Client) -> ClientError {
    ClientError::Garbled {
        address: client.address().clone(),
        source: "it hung up in the middle of the events".into(),
    }
}
