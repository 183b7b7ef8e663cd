//! A connection that outlives the server. Servers are restarted while jobs run, and of several servers another one
//! takes over.

use crate::client::connect::{client_of, connect};
use crate::client::context::Context;
use crate::ui::error::{CliError, Doing, may_pass};
use crate::ui::message::message;
use std::time::{Duration, Instant};
use windlass_api::Addresses;
use windlass_api::client::{Address, Client, ClientError};

/// A request that failed after this time was with a server, or with one that is cut off.
const HELD_MIN: Duration = Duration::from_secs(2);
/// How long no server may answer.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// The first pause before a retry, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A client, and what it does when no server answers.
pub struct ServerLink {
    /// The client of the server that answered last.
    pub client: Client,
    server: Option<Addresses>,
    own: bool,
    outage: Option<Outage>,
}

struct Outage {
    since: Instant,
    pause: Duration,
    told: bool,
}

impl ServerLink {
    /// A link to the servers that the user named, for a verb that follows; to the per-user one if there are none. Where
    /// several are named it waits until one answers, because they may be changing places.
    pub async fn open(context: &Context) -> Result<Self, CliError> {
        let several = context.server.as_ref().filter(|named| named.only().is_none());
        let Some(several) = several else {
            return Ok(ServerLink::new(context.client().await?, context.server.clone()));
        };
        let mut link = ServerLink::new(client_of(several)?, context.server.clone());
        link.ask("reach a server", |client| async move { client.version().await }).await?;
        context.say_address(&link.client);
        Ok(link)
    }

    /// A link to the named servers; to the per-user one if `None`.
    pub fn new(client: Client, server: Option<Addresses>) -> Self {
        ServerLink { client, server, own: false, outage: None }
    }

    /// A link to the server inside this process, which is never restarted.
    pub fn to_own(client: Client) -> Self {
        ServerLink { client, server: None, own: true, outage: None }
    }

    /// Another link to the same servers, for requests beside those of this one.
    pub fn beside(&self) -> Self {
        ServerLink { client: self.client.clone(), server: self.server.clone(), own: self.own, outage: None }
    }

    /// Notes that a server answers, and ends an outage.
    pub fn calm(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.told) {
            match self.client.servers() {
                1 => message!("note: the server is back"),
                _ => message!("note: the server at {} answers", self.client.address()),
            }
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
            let asked = Instant::now();
            let error = match question(self.client.clone()).await {
                Ok(answer) => {
                    self.calm();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            // A request that waits for something is lost with the server that has it. That server was there, and if one
            // is there now, this is another outage and not the same one.
            if asked.elapsed() >= HELD_MIN && may_pass(&error) && self.client.version().await.is_ok() {
                self.calm();
            }
            self.pause(doing, error).await?;
        }
    }

    /// As if no server had answered for so long.
    #[cfg(test)]
    pub fn set_outage(&mut self, lasted: Duration) {
        let since = Instant::now().checked_sub(lasted).unwrap();
        self.outage = Some(Outage { since, pause: PAUSE_MIN, told: false });
    }

    /// True if the user named the server: then this program does not start it.
    pub fn is_named(&self) -> bool {
        self.own || self.server.is_some()
    }

    /// True if the user named several servers.
    pub fn is_to_several(&self) -> bool {
        self.client.servers() > 1
    }

    /// Waits a moment after a failure, and starts the per-user server if that is the one; of several servers the next one
    /// is asked first. Returns the error if waiting cannot help, or has not helped for too long.
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
            let seconds = OUTAGE_MAX.as_secs();
            match self.client.servers() == 1 && error.code().is_none() {
                true => {
                    let address = self.client.address();
                    message!("note: the server at {address} does not answer; retrying for {seconds} s");
                }
                false => message!("note: {error}; retrying for {seconds} s"),
            }
        }
        self.client.pass(&error);
        tokio::time::sleep(outage.pause).await;
        outage.pause = (outage.pause * 2).min(PAUSE_MAX);
        if !self.is_named() {
            // If this fails, the next request fails too, and this function is called again.
            if let Ok(client) = connect(None).await {
                self.client = client;
            }
        }
        Ok(())
    }
}

/// The error for an event stream of the server at the address that ended. A server ends it only when it stops.
pub fn hung_up(address: &Address) -> ClientError {
    ClientError::Garbled { address: address.clone(), source: "it closed the stream of events".into() }
}
