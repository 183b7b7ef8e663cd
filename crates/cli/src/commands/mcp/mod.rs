//! `windlass mcp`: the Model Context Protocol on standard input and output, for coding agents.
//!
//! - Standard output has messages of the protocol alone, each in a line. Notes for people go to standard error.
//! - A call acts as its command does: with the same server, the same token, the same checks.
//! - The end of standard input ends the process. Jobs go on.

mod answer;
mod arguments;
mod calls;
mod input;
mod protocol;
mod tools;

use crate::client::context::Context;
use crate::ui::error::CliError;
use calls::CallProgress;
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use input::{InputLine, LINE_BYTES_MAX, LINES_MAX, read_lines};
use protocol::{CallId, Incoming, McpSession, ToolCall};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;
use tokio::sync::mpsc;

/// Calls under way. A call over it is answered with an error: each has a connection to the server.
const CALLS_MAX: usize = 32;
/// Messages of progress that wait to be written. One over it is left out: the next says more.
const PROGRESS_MAX: usize = 64;
/// How long calls under way may take after the end of the input. Clients kill what does not end within two seconds.
const END_GRACE: Duration = Duration::from_secs(1);

/// The Model Context Protocol, which has no flags of its own.
#[derive(Args, Debug)]
#[command(after_help = "A client starts it and speaks the protocol on its standard input and output:
  claude mcp add windlass -- windlass mcp
  codex mcp add windlass -- windlass mcp

Tools: submit, preview, wait, why, logs, cancel, list, tasks, show, workers. They act with the token and on
the server of every command: --server, WINDLASS_SERVER, WINDLASS_TOKEN_FILE.")]
pub struct McpArgs {}

/// Runs the command `windlass mcp`.
pub async fn mcp(context: &Context, _: &McpArgs) -> Result<(), CliError> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    // A read of standard input cannot be taken back, and must not delay the exit.
    let thread = std::thread::Builder::new().name("mcp-input".to_owned());
    let reader = thread.spawn(move || read_lines(io::stdin().lock(), &sender));
    reader.map_err(|error| anyhow::Error::new(error).context("cannot read standard input"))?;
    serve(context, lines, io::stdout()).await
}

/// Calls that are not answered yet.
#[derive(Default)]
struct CallsUnderWay<'a> {
    /// Each ends with its answer, or without one if it was cancelled.
    running: FuturesUnordered<LocalBoxFuture<'a, (CallId, Option<Value>)>>,
    handles: BTreeMap<CallId, AbortHandle>,
}

/// Answers the lines until they end.
async fn serve(
    context: &Context,
    mut lines: mpsc::Receiver<InputLine>,
    mut output: impl Write,
) -> Result<(), CliError> {
    let mut session = McpSession::default();
    let (progress, mut told) = mpsc::channel(PROGRESS_MAX);
    let mut calls = CallsUnderWay::default();
    loop {
        tokio::select! {
            // Progress of a call stands before its answer, and answers do not wait for a client that asks on.
            biased;
            Some(message) = told.recv() => write(&mut output, &message)?,
            Some((id, answer)) = calls.running.next() => {
                calls.handles.remove(&id);
                if let Some(answer) = answer {
                    write(&mut output, &answer)?;
                }
            }
            line = lines.recv() => {
                let incoming = match line {
                    None => break,
                    Some(InputLine::Whole(line)) => session.take(&line),
                    Some(InputLine::TooLong) => Incoming::Answered(protocol::too_long(LINE_BYTES_MAX)),
                };
                if let Some(answer) = calls.take(context, incoming, &progress) {
                    write(&mut output, &answer)?;
                }
            }
        }
    }
    let rest = async {
        while let Some((_, answer)) = calls.running.next().await {
            if let Some(answer) = answer {
                write(&mut output, &answer)?;
            }
        }
        Ok::<(), CliError>(())
    };
    // A client that has closed the input may still read, as a pipe from a file does.
    tokio::time::timeout(END_GRACE, rest).await.unwrap_or(Ok(()))
}

impl<'a> CallsUnderWay<'a> {
    /// Begins or ends a call; returns what is answered at once.
    fn take(
        &mut self,
        context: &'a Context,
        incoming: Incoming,
        progress: &mpsc::Sender<Value>,
    ) -> Option<Value> {
        match incoming {
            Incoming::Nothing => None,
            Incoming::Answered(answer) => Some(answer),
            Incoming::Canceled(id) => {
                // One that has ended meanwhile was answered.
                if let Some(handle) = self.handles.get(&id) {
                    handle.abort();
                }
                None
            }
            Incoming::Called(call) if self.handles.contains_key(&call.id) => {
                Some(protocol::id_in_use(call.id))
            }
            Incoming::Called(call) if self.handles.len() >= CALLS_MAX => {
                let why =
                    format!("{CALLS_MAX} calls are under way, the most at a time: wait for one of them");
                Some(protocol::answer(call.id, call.era, Err(why)))
            }
            Incoming::Called(call) => {
                self.begin(context, call, progress);
                None
            }
        }
    }

    fn begin(&mut self, context: &'a Context, call: ToolCall, progress: &mpsc::Sender<Value>) {
        let ToolCall { id, era, tool, arguments, progress_token } = call;
        let told = progress_token.map(|token| CallProgress { token, sender: progress.clone() });
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(id.clone(), handle);
        let call_id = id.clone();
        let working = async move {
            let ended = calls::call(context, tool, arguments, told).await;
            protocol::answer(call_id, era, ended.map_err(|error| calls::told_error(&error)))
        };
        self.running.push(Box::pin(async move { (id, Abortable::new(working, registration).await.ok()) }));
    }
}

/// Writes a message at once. A client that reads nothing holds everything up, and it is the only one here.
fn write(output: &mut impl Write, message: &Value) -> Result<(), CliError> {
    writeln!(output, "{message}").and_then(|()| output.flush()).map_err(CliError::output)
}
