//! Turns of commands on the machine of the client.

use super::servers::Patience;
use super::{Client, ClientError, lines, parts};
use crate::{TurnEnd, TurnHolds, TurnLine, TurnList, TurnRequest, Why};
use futures_util::{Stream, StreamExt};
use reqwest::Method;

/// Asks for a turn. It begins with the line that says so, and ends when the stream is dropped or the server is gone. The
/// client asks again then, with [`held`](TurnRequest::held) if its command runs.
pub async fn ask(
    client: &Client,
    request: &TurnRequest,
) -> Result<impl Stream<Item = Result<TurnLine, ClientError>> + use<>, ClientError> {
    let sent = client.request(Method::POST, "/api/v1/turns").json(request);
    // It is not repeated here: after a restart of the server, commands that run ask before those that wait. An answer comes
    // within a second.
    let call = client.call(sent, false, Patience::Answer)?;
    let (server, response) = client.servers.open(&call).await?;
    let address = server.address.clone();
    Ok(lines(parts(address.clone(), response, None)).map(move |line| {
        serde_json::from_slice(&line?)
            .map_err(|error| ClientError::Garbled { address: address.clone(), source: error.into() })
    }))
}

/// Says what the command of a turn holds while it runs.
pub async fn holds(client: &Client, turn: u64, held: &TurnHolds) -> Result<(), ClientError> {
    client.post_only(&format!("/api/v1/turns/{turn}/memory"), held).await
}

/// Says how the command of a turn ended, before the stream of [`ask`] is dropped.
pub async fn end(client: &Client, turn: u64, ended: &TurnEnd) -> Result<(), ClientError> {
    client.post_only(&format!("/api/v1/turns/{turn}/end"), ended).await
}

/// The turns that wait and run.
pub async fn list(client: &Client) -> Result<TurnList, ClientError> {
    client.get("/api/v1/turns", &()).await
}

/// Why a turn waits, or where it has its room.
pub async fn why(client: &Client, turn: u64) -> Result<Why, ClientError> {
    client.get(&format!("/api/v1/turns/{turn}/why"), &()).await
}
