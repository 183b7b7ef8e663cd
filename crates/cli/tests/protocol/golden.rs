//! Recorded streams: `NAME.bin` has the messages one after the other, each behind its length, and
//! `NAME.txt` says for each who sent it, how many bytes it has and what they mean.

use prost::Message as _;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use windlass_api::wire::{FromWorker, Order, ToWorker, order, report};

/// Streams between a real agent and a real server.
pub const RECORDED: [&str; 4] = ["run", "control", "claim", "fenced"];
/// All streams: also those with rare messages, such as after a broken disk or after days, and with later additions.
pub const ALL: [&str; 8] = ["run", "control", "claim", "fenced", "made", "measured", "asked", "shared"];

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Worker,
    Server,
}

/// A stream from its beginning.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording(pub Vec<(By, Vec<u8>)>);

pub fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/worker-v1").join(file)
}

impl Recording {
    pub fn read(name: &str) -> Recording {
        let bytes = fs::read(path(&format!("{name}.bin"))).unwrap();
        let (mut rest, mut messages) = (&bytes[..], Vec::new());
        for line in index(name).lines().filter(|line| !line.starts_with(' ')) {
            let by = if line.starts_with("worker ") { By::Worker } else { By::Server };
            let length = prost::decode_length_delimiter(&mut rest).unwrap();
            let (message, more) = rest.split_at(length);
            messages.push((by, message.to_vec()));
            rest = more;
        }
        assert!(rest.is_empty(), "{name}.bin holds more than its index says");
        Recording(messages)
    }

    pub fn write(&self, name: &str) {
        let mut bytes = Vec::new();
        for (_, message) in &self.0 {
            prost::encode_length_delimiter(message.len(), &mut bytes).unwrap();
            bytes.extend(message);
        }
        fs::create_dir_all(path("")).unwrap();
        fs::write(path(&format!("{name}.bin")), bytes).unwrap();
        fs::write(path(&format!("{name}.txt")), self.describe()).unwrap();
    }

    /// Its index, by today's types.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (by, bytes) in &self.0 {
            let (who, lines) = match by {
                By::Worker => ("worker", reports(bytes).iter().map(|what| format!("{what:?}")).collect()),
                By::Server => ("server", orders(bytes).iter().map(describe_order).collect::<Vec<_>>()),
            };
            // Writing to a string cannot fail.
            _ = writeln!(text, "{who} {}", bytes.len());
            lines.iter().for_each(|line| _ = writeln!(text, "  {line}"));
        }
        text
    }

    /// The kinds of messages in it.
    pub fn kinds(&self) -> Vec<String> {
        let each = self.0.iter().flat_map(|(by, bytes)| match by {
            By::Worker => reports(bytes).iter().map(kind).collect::<Vec<_>>(),
            By::Server => orders(bytes).iter().filter_map(|order| order.what.as_ref()).map(kind).collect(),
        });
        each.collect()
    }
}

/// The index that is recorded beside the bytes.
pub fn index(name: &str) -> String {
    fs::read_to_string(path(&format!("{name}.txt"))).unwrap()
}

pub fn reports(bytes: &[u8]) -> Vec<report::What> {
    FromWorker::decode(bytes).unwrap().reports.into_iter().filter_map(|report| report.what).collect()
}

pub fn orders(bytes: &[u8]) -> Vec<Order> {
    ToWorker::decode(bytes).unwrap().orders
}

fn describe_order(Order { seq, what }: &Order) -> String {
    match what {
        // The name is sent as text.
        Some(order::What::Body(body)) => {
            let json = String::from_utf8_lossy(&body.body);
            format!("{seq} Body {}.{} of {}: {json}", body.job, body.step, body.user)
        }
        Some(what) => format!("{seq} {what:?}"),
        None => format!("{seq} nothing"),
    }
}

/// The name of a kind of message; of an end, how: `Exited`.
pub fn kind<T: std::fmt::Debug>(what: &T) -> String {
    let text = format!("{what:?}");
    let name = text.split(['(', ' ']).next().unwrap_or_default();
    let end = text.split_once("end: Some(").map(|(_, end)| end.trim_start_matches("Other("));
    let end = end.and_then(|end| end.split(['(', ')']).next());
    end.map_or_else(|| name.to_owned(), |end| format!("Finished:{end}"))
}
