//! The connection by which a turn is waited for and kept. The turn lasts as long as the connection. After a restart of the
//! server the client asks again, and a command that runs has its turn again.

use crate::client::connect::{client_of, connect};
use crate::client::link::{ServerLink, hung_up};
use crate::node::own;
use crate::ui::error::{CliError, Doing as _, may_pass};
use crate::ui::message::message;
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::time::Duration;
use tokio::time::Instant;
use windlass_api::client::{Client, ClientError, turns};
use windlass_api::{Addresses, ErrorCode, HeldTurn, TurnEnd, TurnLine, TurnRequest, TurnState};

/// How long a person at a terminal waits before it is said why.
const QUIET: Duration = Duration::from_secs(2);
/// The same where standard error is a log, which has a line for each turn that is told.
const QUIET_IN_LOGS: Duration = Duration::from_secs(10);
/// How long a server may take to take a turn up. It does so within a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long the worker of a server that was just started may take to come, and how often it is looked for. Before, the
/// server knows of no machine that could ever have the room.
const WORKER_COMES_MAX: Duration = Duration::from_secs(10);
const WORKER_LOOK: Duration = Duration::from_millis(20);
/// How long a turn that waits leaves a new server to those that run: as long as these pause between two attempts.
const RUNNING_FIRST: Duration = Duration::from_secs(2);
/// How long a command that has ended waits for the server to learn what it needed.
const END_MAX: Duration = Duration::from_secs(2);

/// A turn's lines from the server.
type TurnLines = LocalBoxStream<'static, Result<TurnLine, ClientError>>;

/// A turn that came.
pub struct GivenTurn {
    /// Its number at the server.
    pub turn: u64,
    /// Bytes of memory that are booked for it.
    pub memory: Option<u64>,
    /// As long as they are read, the turn is kept.
    lines: TurnLines,
}

/// The connection to the server for one turn at a time.
pub struct TurnLink {
    link: ServerLink,
}

impl TurnLink {
    /// A link to the named servers, or to the machine's or the user's own. Nothing is sent yet: each request costs a
    /// command that has nothing to wait for.
    pub fn new(server: Option<Addresses>) -> Result<TurnLink, CliError> {
        let client = match &server {
            Some(named) => client_of(named)?,
            None => client_of(&own::address()?.into())?,
        };
        Ok(TurnLink { link: ServerLink::new(client, server) })
    }

    /// Waits for a turn, and says once why it waits.
    pub async fn wait(&mut self, request: &TurnRequest) -> Result<GivenTurn, CliError> {
        let quiet = if io::stderr().is_terminal() { QUIET } else { QUIET_IN_LOGS };
        let mut reason = WaitReason { tell_at: Some(Instant::now() + quiet), said: None };
        let mut lines = self.first_lines(request).await?;
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = reason.due() => {
                    reason.tell();
                    continue;
                }
            };
            match line {
                Some(Ok(TurnLine { turn, state: TurnState::Runs, memory, .. })) => {
                    return Ok(GivenTurn { turn, memory, lines });
                }
                Some(Ok(TurnLine { turn, state: TurnState::Waits, why, .. })) => {
                    reason.said = why.map(|why| (turn, why));
                }
                Some(Ok(TurnLine { state: TurnState::Refused, why, .. })) => {
                    let why = why.unwrap_or_else(|| "the server does not say why".to_owned());
                    return Err(CliError::Failed { message: format!("it gets no turn: {why}"), hint: None });
                }
                Some(Err(error)) => lines = self.lines_again(request, error).await?,
                None => {
                    let error = hung_up(self.link.client.address());
                    lines = self.lines_again(request, error).await?;
                }
            }
        }
    }

    /// Keeps a turn while its command runs, and takes it up again after a restart of the server. `turn` is its number
    /// from then on.
    pub async fn keep(&mut self, mut request: TurnRequest, given: GivenTurn, turn: &Cell<u64>) -> Infallible {
        let mut lines = given.lines;
        request.memory = given.memory;
        // Its room was found, and holds whatever came since.
        request.wait_max_ms = None;
        loop {
            let error = match lines.next().await {
                Some(Ok(line)) => {
                    match line.state {
                        TurnState::Runs => turn.set(line.turn),
                        TurnState::Waits => {}
                        // The command runs on without room of its own.
                        TurnState::Refused => return pending().await,
                    }
                    continue;
                }
                Some(Err(error)) => error,
                None => hung_up(self.link.client.address()),
            };
            request.held = Some(HeldTurn { turn: turn.get() });
            lines = match self.lines_again(&request, error).await {
                Ok(lines) => lines,
                Err(gone) => {
                    message!("warning: the command runs on without its turn: {}", gone.message());
                    return pending().await;
                }
            };
        }
    }

    /// Tells the server what the command needed, while the turn is kept. It is worth no error and no long wait.
    pub async fn end(client: &Client, turn: u64, ended: &TurnEnd) {
        _ = tokio::time::timeout(END_MAX, turns::end(client, turn, ended)).await;
    }

    /// A client for requests beside the turn's own.
    pub fn client(&self) -> Client {
        self.link.client.clone()
    }

    /// Asks for the first time. The user's own server is started if it does not run; other servers have to.
    async fn first_lines(&mut self, request: &TurnRequest) -> Result<TurnLines, CliError> {
        if self.link.is_named() {
            return match self.ask(request).await {
                Err(error) if may_pass(&error) && !error.is_unreachable() => {
                    self.lines_again(request, error).await
                }
                asked => asked.doing("ask for a turn"),
            };
        }
        match self.ask_started(request).await {
            Err(error) if error.is_unreachable() => {
                self.link.client = connect(None).await?;
                self.ask_started(request).await.doing("ask for a turn")
            }
            Err(error) => self.lines_again(request, error).await,
            Ok(lines) => Ok(lines),
        }
    }

    /// Asks again after a failure, until the server answers or has been away for too long. Commands that run ask first, for
    /// the room that they have.
    async fn lines_again(
        &mut self,
        request: &TurnRequest,
        mut error: ClientError,
    ) -> Result<TurnLines, CliError> {
        loop {
            self.link.pause("ask for a turn", error).await?;
            if request.held.is_none() {
                if let Err(again) = self.link.client.version().await {
                    error = again;
                    continue;
                }
                tokio::time::sleep(RUNNING_FIRST).await;
            }
            match self.ask_started(request).await {
                Ok(lines) => {
                    self.link.calm();
                    return Ok(lines);
                }
                Err(again) => error = again,
            }
        }
    }

    /// Asks a server that may have been started a moment ago.
    async fn ask_started(&self, request: &TurnRequest) -> Result<TurnLines, ClientError> {
        let until = Instant::now() + WORKER_COMES_MAX;
        loop {
            match self.ask(request).await {
                Err(error) if error.code() == Some(ErrorCode::CannotBePlaced) && Instant::now() < until => {
                    tokio::time::sleep(WORKER_LOOK).await;
                }
                asked => return asked,
            }
        }
    }

    async fn ask(&self, request: &TurnRequest) -> Result<TurnLines, ClientError> {
        let client = &self.link.client;
        match tokio::time::timeout(ANSWER_MAX, turns::ask(client, request)).await {
            // The server went while it had the request: another one is on its way, as for a stream that ends.
            Ok(Err(error)) if error.code().is_none() && error.was_sent() => Err(hung_up(client.address())),
            Ok(asked) => Ok(asked?.boxed_local()),
            Err(_) => Err(ClientError::Silent { address: client.address().clone(), after: ANSWER_MAX }),
        }
    }
}

/// Why a turn waits, which is said once.
struct WaitReason {
    /// When it is said; `None` once it was.
    tell_at: Option<Instant>,
    /// The turn's number, and what the server said last.
    said: Option<(u64, String)>,
}

impl WaitReason {
    /// Waits until it is to be said.
    async fn due(&self) {
        match self.tell_at.filter(|_| self.said.is_some()) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => pending().await,
        }
    }

    fn tell(&mut self) {
        if let Some((turn, why)) = &self.said {
            message!("windlass: turn {turn} waits: {why}");
            self.tell_at = None;
        }
    }
}
