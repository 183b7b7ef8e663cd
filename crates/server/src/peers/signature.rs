//! Signatures of the requests that a server leaves in the database, and of the rows by which the owner knows that it has done
//! one.
//!
//! A row says who asks, and the owner does what that caller may do. So a row must be a server's own. Each run of a server
//! makes a key that only its process has, and publishes the other half in its entry of the list of servers. A user of the
//! database who may write requests, but not that list, can make no request. A reader of the database or of a backup cannot
//! either. A user who may write all tables has the farm anyway, because that user can add tokens.

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_store::{AskId, Asked, DoneRow, ServerId};

/// What signatures are of, so that none can be taken for one of something else.
const SUBJECT: &[u8] = b"windlass: request of a server 1\0";
const SUBJECT_DONE: &[u8] = b"windlass: request that was done 1\0";
/// Requests that an owner remembers as begun, so that a copy of a row is not served again.
const BEGUN_MAX: usize = 65_536;

/// The key of one run of a server. Clones share it.
#[derive(Clone)]
pub struct ServerKey {
    pair: Arc<Ed25519KeyPair>,
}

/// The operating system gave no random numbers for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the operating system gives no random numbers for the server's key")]
pub struct NoServerKey;

impl ServerKey {
    /// A new one, which ends with the process.
    ///
    /// # Errors
    ///
    /// The operating system gives no random numbers.
    pub fn new() -> Result<ServerKey, NoServerKey> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| NoServerKey)?;
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| NoServerKey)?;
        Ok(ServerKey { pair: Arc::new(pair) })
    }

    /// The half by which other servers check signatures. It is not secret.
    pub fn verify_key(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// The signature of a request. `store` is the number of the store.
    pub(crate) fn sign(&self, store: i64, (id, by): (AskId, ServerId), kind: &str, body: &[u8]) -> Vec<u8> {
        self.pair.sign(&hash_of_request(store, (id, by), kind, body)).as_ref().to_vec()
    }

    /// The signature of the row of a request that the server `by` has done. `store` is the number of the store.
    pub(crate) fn sign_done(&self, store: i64, by: ServerId, key: &str, answer: &[u8]) -> Vec<u8> {
        self.pair.sign(&hash_of_done(store, by, key, answer)).as_ref().to_vec()
    }
}

impl std::fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerKey")
    }
}

/// The store and the number are part of it: a copy of a row, or a row of a copied database, is another request.
fn hash_of_request(store: i64, (id, by): (AskId, ServerId), kind: &str, body: &[u8]) -> Vec<u8> {
    hash(SUBJECT, &[store, id.0, by.0], kind, body)
}

fn hash_of_done(store: i64, by: ServerId, key: &str, answer: &[u8]) -> Vec<u8> {
    hash(SUBJECT_DONE, &[store, by.0], key, answer)
}

/// The length of the text is part of it, so that the text does not run on into the bytes.
fn hash(subject: &[u8], numbers: &[i64], text: &str, bytes: &[u8]) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    context.update(subject);
    for number in numbers.iter().copied().chain([text.len() as i64]) {
        context.update(&number.to_be_bytes());
    }
    context.update(text.as_bytes());
    context.update(bytes);
    context.finish().as_ref().to_vec()
}

/// Why a row is not served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unproven {
    #[error("the server {0:?} is of a release that does not sign its requests; upgrade it")]
    Unsigned(String),
    #[error("it is not signed by the server {0:?}, in whose name it is there")]
    Forged(String),
    #[error("it is there again, after it was served")]
    Served,
}

/// Checks that a row is the request of the server in whose name it is there.
pub(crate) fn check(store: i64, asked: &Asked) -> Result<(), Unproven> {
    let Some(key) = &asked.verify_key else { return Err(Unproven::Unsigned(asked.server.clone())) };
    let signature = asked.signature.as_deref().unwrap_or_default();
    let hash = hash_of_request(store, (asked.id, asked.by), &asked.kind, &asked.body);
    let checked = UnparsedPublicKey::new(&ED25519, key).verify(&hash, signature);
    checked.map_err(|_| Unproven::Forged(asked.server.clone()))
}

/// Why a row does not pass for a request that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the row that says what it did is not signed by the server of number {0}, in whose name it is there")]
pub(crate) struct UnprovenDone(i64);

/// Checks that the server in whose name it is there wrote the row of a request that was done. `verify_key` is that server's.
pub(crate) fn check_done(
    store: i64,
    key: &str,
    row: &DoneRow,
    verify_key: Option<&[u8]>,
) -> Result<(), UnprovenDone> {
    let hash = hash_of_done(store, row.by, key, &row.answer);
    let verify_key = UnparsedPublicKey::new(&ED25519, verify_key.unwrap_or_default());
    verify_key.verify(&hash, &row.signature).map_err(|_| UnprovenDone(row.by.0))
}

/// Requests that this owner began to serve. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Begins>>);

#[derive(Default)]
struct Begins {
    /// Requests up to this number were forgotten.
    forgotten: i64,
    /// By number, with the first bytes of the signature: a database that lost its last moments gives numbers again.
    marks: BTreeMap<i64, u64>,
}

impl Begun {
    /// Notes that a request is begun. An error if it was before.
    pub fn begin(&self, asked: &Asked) -> Result<(), Unproven> {
        let (number, mark) = (asked.id.0, mark(asked));
        let mut begins = self.0.lock();
        if number <= begins.forgotten || begins.marks.get(&number) == Some(&mark) {
            return Err(Unproven::Served);
        }
        begins.marks.insert(number, mark);
        if begins.marks.len() > BEGUN_MAX
            && let Some((first, _)) = begins.marks.pop_first()
        {
            begins.forgotten = first;
        }
        Ok(())
    }

    /// The request was left without an answer, so it may be begun again.
    pub fn give_back(&self, id: AskId) {
        self.0.lock().marks.remove(&id.0);
    }
}

fn mark(asked: &Asked) -> u64 {
    let first = asked.signature.as_deref().and_then(|signature| signature.first_chunk::<8>());
    u64::from_be_bytes(*first.unwrap_or(&[0; 8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: i64 = 7;

    fn asked(key: &ServerKey, id: i64) -> Asked {
        let (id, by, body) = (AskId(id), ServerId(3), b"{}\n".to_vec());
        let signature = Some(key.sign(STORE, (id, by), "http", &body));
        let verify_key = Some(key.verify_key().to_vec());
        Asked { id, by, server: "two".to_owned(), kind: "http".to_owned(), body, signature, verify_key }
    }

    #[test]
    fn a_request_is_served_for_the_server_that_signed_it_and_for_no_other() {
        let (key, other) = (ServerKey::new().unwrap(), ServerKey::new().unwrap());
        let good = asked(&key, 5);
        assert_eq!(check(STORE, &good), Ok(()));
        assert_eq!(check(STORE + 1, &good), Err(Unproven::Forged("two".to_owned())), "another store");
        let forged: [fn(&mut Asked); 7] = [
            |asked| asked.id = AskId(6),
            |asked| asked.by = ServerId(4),
            |asked| asked.kind = "http:2".to_owned(),
            |asked| asked.body = b"{ }\n".to_vec(),
            |asked| asked.signature = None,
            |asked| asked.signature = Some(vec![0; 64]),
            |asked| asked.verify_key = Some(vec![0; 3]),
        ];
        for change in forged {
            let mut row = good.clone();
            change(&mut row);
            assert_eq!(check(STORE, &row), Err(Unproven::Forged("two".to_owned())), "{row:?}");
        }
        let of_another = Asked { verify_key: Some(other.verify_key().to_vec()), ..good.clone() };
        assert_eq!(check(STORE, &of_another), Err(Unproven::Forged("two".to_owned())));
        // A kind does not run on into the body.
        let shifted = Asked { kind: "htt".to_owned(), body: b"p{}\n".to_vec(), ..good.clone() };
        assert_eq!(check(STORE, &shifted), Err(Unproven::Forged("two".to_owned())));
        let old = Asked { verify_key: None, ..good };
        assert_eq!(check(STORE, &old), Err(Unproven::Unsigned("two".to_owned())));
    }

    #[test]
    fn a_request_was_done_if_the_server_that_did_it_has_signed_that() {
        let (key, other) = (ServerKey::new().unwrap(), ServerKey::new().unwrap());
        let (by, answer) = (ServerId(3), b"\"done\"".to_vec());
        let signature = key.sign_done(STORE, by, "k1", &answer);
        let row = DoneRow { answer, by, signature, verify_key: None };
        let own = Some(key.verify_key());
        assert_eq!(check_done(STORE, "k1", &row, own), Ok(()));
        let forged = Err(UnprovenDone(3));
        assert_eq!(check_done(STORE + 1, "k1", &row, own), forged, "another store");
        assert_eq!(check_done(STORE, "k2", &row, own), forged, "another request");
        assert_eq!(check_done(STORE, "k1", &row, Some(other.verify_key())), forged);
        assert_eq!(check_done(STORE, "k1", &row, None), forged, "the list has no key of it");
        let changed = DoneRow { answer: b"\"else\"".to_vec(), ..row.clone() };
        assert_eq!(check_done(STORE, "k1", &changed, own), forged);
        let of_another = DoneRow { by: ServerId(4), ..row };
        assert_eq!(check_done(STORE, "k1", &of_another, own), Err(UnprovenDone(4)));
        // The signature of a request is not that of a row that says that it was done.
        let asked = asked(&key, 5);
        let signature = asked.signature.unwrap();
        let taken = DoneRow { answer: asked.body, by, signature, verify_key: None };
        assert_eq!(check_done(STORE, "http", &taken, own), forged);
    }

    #[test]
    fn a_row_that_is_put_back_is_served_once() {
        let (key, begun) = (ServerKey::new().unwrap(), Begun::default());
        let row = asked(&key, 5);
        assert_eq!(begun.begin(&row), Ok(()));
        assert_eq!(begun.begin(&row), Err(Unproven::Served));
        begun.give_back(row.id);
        assert_eq!(begun.begin(&row), Ok(()), "it was left without an answer");
        // A database that lost its last moments gives the number to another request.
        let later = asked(&ServerKey::new().unwrap(), 5);
        assert_eq!((begun.begin(&later), begun.begin(&later)), (Ok(()), Err(Unproven::Served)));
        let many = 6..=6 + BEGUN_MAX as i64;
        for id in many {
            let row = Asked { id: AskId(id), ..row.clone() };
            assert_eq!(begun.begin(&row), Ok(()));
        }
        assert_eq!(begun.begin(&row), Err(Unproven::Served), "it is older than what is remembered");
        assert!(begun.0.lock().marks.len() <= BEGUN_MAX);
    }
}
