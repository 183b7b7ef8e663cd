//! Messages of a later release, with fields, kinds of messages and phases that this release does not know.

use super::golden::By;
use prost::Message as _;
use prost::encoding::{decode_varint, encode_varint};
use windlass_api::wire::{FromWorker, Held, Task, report};

/// A number of a kind or field that no release has.
const LATER: u64 = 1_000;

/// The same message from a later release.
pub fn later(by: By, message: &[u8]) -> Vec<u8> {
    let mut message = sprinkle(&with_phases(by, message), 2);
    let mut unknown_kind = Vec::new();
    field(LATER, &sprinkle(&[], 0), &mut unknown_kind);
    field(1, &unknown_kind, &mut message);
    message
}

/// With an attempt in a phase that only a later release has.
fn with_phases(by: By, message: &[u8]) -> Vec<u8> {
    if by == By::Server {
        return message.to_vec();
    }
    let mut message = FromWorker::decode(message).unwrap();
    for report in &mut message.reports {
        let inventory = match &mut report.what {
            Some(report::What::Hello(hello)) => hello.inventory.as_mut(),
            Some(report::What::Beat(beat)) => beat.inventory.as_mut(),
            _ => None,
        };
        if let Some(inventory) = inventory {
            let task = Some(Task { job: 999, index: 0, attempt: 1 });
            inventory.held.push(Held { task, phase: 77, started: 5 });
        }
    }
    message.encode_to_vec()
}

/// The message with unknown fields at its end, and at the end of the messages in it down to `depth`.
fn sprinkle(message: &[u8], depth: u32) -> Vec<u8> {
    let (mut rest, mut out) = (message, Vec::new());
    while depth > 0 && !rest.is_empty() {
        let key = decode_varint(&mut rest).unwrap();
        match key & 7 {
            0 => {
                encode_varint(key, &mut out);
                encode_varint(decode_varint(&mut rest).unwrap(), &mut out);
            }
            2 => {
                let length = decode_varint(&mut rest).unwrap() as usize;
                field(key >> 3, &sprinkle(&rest[..length], depth - 1), &mut out);
                rest = &rest[length..];
            }
            other => panic!("envelopes have no fields of the kind {other}"),
        }
    }
    out.extend(rest);
    field(LATER, b"later", &mut out);
    encode_varint((LATER + 1) << 3, &mut out);
    encode_varint(u64::MAX, &mut out);
    out
}

fn field(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    encode_varint(number << 3 | 2, out);
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
}
