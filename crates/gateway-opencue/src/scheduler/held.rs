//! Hosts and layers that running instances leave out for a while. Only the instance itself knows them, and the
//! question why a frame waits comes from another process. That process asks all instances by a notification of
//! PostgreSQL, and they answer by another.

use super::recovery::LOCKS;
use crate::dial::{Dialed, Dialer};
use crate::faults::HeldLayer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_postgres::{Client, Error};

/// The channel on which instances are asked.
pub const ASK: &str = "windlass_opencue_ask";
/// The channel on which they answer.
const ANSWER: &str = "windlass_opencue_held";
/// Bytes of an answer: PostgreSQL carries less than 8,000.
const ANSWER_BYTES_MAX: usize = 7_500;
/// How long answers are waited for. Instances answer between passes, which take milliseconds.
const ANSWER_TIME: Duration = Duration::from_secs(1);

const LIVE: &str = "SELECT count(DISTINCT objid) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::int::oid
    AND objsubid = 2 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Answers with what this instance leaves out.
pub async fn answer(client: &Client, instance: u32, held: &[HeldLayer]) -> Result<(), Error> {
    client.execute("SELECT pg_notify($1, $2)", &[&ANSWER, &encode(instance, held)]).await?;
    Ok(())
}

/// Asks the running instances what they leave out. It takes no time where none runs.
pub async fn ask(dialer: &Dialer, config: &tokio_postgres::Config) -> Result<Vec<HeldLayer>, Error> {
    let Dialed { client, mut notices, .. } = dialer.dial(config).await?;
    client.batch_execute(&format!("LISTEN {ANSWER}")).await?;
    let live: i64 = client.query_one(LIVE, &[&LOCKS]).await?.get(0);
    let (mut told, mut held) = (BTreeSet::new(), Vec::new());
    if live == 0 {
        return Ok(held);
    }
    client.execute("SELECT pg_notify($1, '')", &[&ASK]).await?;
    let deadline = tokio::time::Instant::now() + ANSWER_TIME;
    while (told.len() as i64) < live
        && let Ok(Some(notice)) = tokio::time::timeout_at(deadline, notices.recv()).await
    {
        if let Some((instance, layers)) = decode(notice.payload())
            && told.insert(instance)
        {
            held.extend(layers);
        }
    }
    Ok(held)
}

/// An answer within its bound. Layers that do not fit are left out.
fn encode(instance: u32, held: &[HeldLayer]) -> String {
    let mut layers: Vec<Value> = Vec::new();
    let mut bytes = 0;
    for HeldLayer { layer, reason, left } in held {
        let entry = json!({ "layer": layer, "reason": reason, "left_ms": left.as_millis() as u64 });
        bytes += entry.to_string().len() + 1;
        if bytes > ANSWER_BYTES_MAX {
            break;
        }
        layers.push(entry);
    }
    json!({ "instance": instance, "held": layers }).to_string()
}

/// Reads an answer of another process. `None` where it cannot be read.
fn decode(text: &str) -> Option<(u64, Vec<HeldLayer>)> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let layers = answer["held"].as_array()?.iter().filter_map(|entry| {
        Some(HeldLayer {
            layer: entry["layer"].as_str()?.to_owned(),
            reason: entry["reason"].as_str()?.to_owned(),
            left: Duration::from_millis(entry["left_ms"].as_u64()?),
        })
    });
    Some((answer["instance"].as_u64()?, layers.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_a_notification_and_is_read_as_it_was() {
        let held = |number: usize| HeldLayer {
            layer: format!("layer{number}"),
            reason: "2 hosts refuse its frames".to_owned(),
            left: Duration::from_millis(29_500),
        };
        let few = [held(1), held(2)];
        assert_eq!(decode(&encode(7, &few)), Some((7, few.to_vec())));
        let many: Vec<HeldLayer> = (0..1_000).map(held).collect();
        let text = encode(7, &many);
        assert!(text.len() < 8_000, "{}", text.len());
        assert!(decode(&text).is_some_and(|(_, layers)| layers.len() > 50));
        assert_eq!(decode("{}"), None);
        assert_eq!(decode("no"), None);
    }
}
