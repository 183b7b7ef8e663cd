//! Tokens about which an issuer is asked (`proxy_token`). Anyone can show a token, and a slow issuer holds up the
//! question about each new one. Strangers must not take the places of clients that were admitted before:
//!
//! - Tokens that the issuer knew before have places of their own. All others share the rest, with a few for each address.
//! - A refusal is remembered for a while, a consent as long as the settings say. Both memories are bounded.
//! - A question waits and lasts for seconds. A client that cannot be asked about compiles by itself.

use crate::issuer::{NotLetIn, http, short_hash};
use crate::tokens::BadToken;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};
use windlass_server::PerKey;

/// How long a question waits for its place, and how long the issuer may take to answer it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Questions at a time about tokens that the issuer knew before.
const KNOWN_QUESTIONS_MAX: usize = 32;
/// Questions at a time about all other tokens, and about those of one address.
const NEW_QUESTIONS_MAX: usize = 32;
const ADDRESS_QUESTIONS_MAX: usize = 4;
/// How long a refusal counts. The issuer may accept the token later.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(30);
/// Tokens of which an answer is remembered, of each kind.
const ANSWERS_MAX: usize = 10_000;

/// The SHA-256 of a token.
type TokenHash = [u8; 32];

/// Tokens about which an issuer is asked.
pub struct Known {
    url: String,
    /// How long a consent counts; `None` asks the issuer each time.
    remember: Option<Duration>,
    answers: Mutex<Answers>,
    of_known: Semaphore,
    of_new: Semaphore,
    /// The places of the addresses that ask about new tokens now.
    of_addresses: PerKey<IpAddr, Semaphore>,
}

/// The times of the issuer's last answers.
#[derive(Default)]
struct Answers {
    consents: BTreeMap<TokenHash, Instant>,
    refusals: BTreeMap<TokenHash, Instant>,
}

/// The state of a token without a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    LetIn,
    Refused,
    /// The issuer has to be asked. It knew the token before.
    KnownBefore,
    /// The issuer has to be asked about a token that it may not know.
    New,
}

impl Answers {
    fn standing(&self, token: &TokenHash, now: Instant, remember: Option<Duration>) -> Standing {
        let is_within = |at: &Instant, most: Duration| now.saturating_duration_since(*at) < most;
        if self.refusals.get(token).is_some_and(|at| is_within(at, REFUSAL_AGE_MAX)) {
            return Standing::Refused;
        }
        match (self.consents.get(token), remember) {
            (Some(at), Some(remember)) if is_within(at, remember) => Standing::LetIn,
            (Some(_), _) => Standing::KnownBefore,
            (None, _) => Standing::New,
        }
    }

    fn note(&mut self, token: TokenHash, is_known: bool, now: Instant) {
        let (to, other) = match is_known {
            true => (&mut self.consents, &mut self.refusals),
            false => (&mut self.refusals, &mut self.consents),
        };
        other.remove(&token);
        if to.len() >= ANSWERS_MAX && !to.contains_key(&token) {
            let oldest = to.iter().min_by_key(|(_, at)| **at).map(|(token, _)| *token);
            if let Some(oldest) = oldest {
                to.remove(&oldest);
            }
        }
        to.insert(token, now);
    }
}

impl Known {
    /// Tokens of the issuer at this URL. Its consent counts for `remember`.
    pub fn new(url: &str, remember: Option<Duration>) -> Known {
        Known {
            url: url.to_owned(),
            remember,
            answers: Mutex::default(),
            of_known: Semaphore::new(KNOWN_QUESTIONS_MAX),
            of_new: Semaphore::new(NEW_QUESTIONS_MAX),
            of_addresses: PerKey::default(),
        }
    }

    /// Admits a client that asks from this address. Returns a hash of its token.
    pub async fn check(&self, token: &str, from: IpAddr) -> Result<String, NotLetIn> {
        let hash: TokenHash = Sha256::digest(token).into();
        let asked = match self.standing(&hash) {
            Standing::LetIn => return Ok(short_hash(token)),
            Standing::Refused => return Err(BadToken::Client.into()),
            Standing::KnownBefore => {
                let _place = self.place(&self.of_known).await?;
                self.ask(token).await
            }
            Standing::New => self.ask_about_new(token, &hash, &self.places_of(from)).await,
        };
        let is_known = asked?;
        self.answers.lock().note(hash, is_known, Instant::now());
        if is_known { Ok(short_hash(token)) } else { Err(BadToken::Client.into()) }
    }

    /// Asks the issuer whether it knows a token that may be a stranger's.
    async fn ask_about_new(&self, token: &str, hash: &TokenHash, own: &Semaphore) -> Result<bool, NotLetIn> {
        let _own_place = self.place(own).await?;
        let _place = self.place(&self.of_new).await?;
        // Another request with the same token may have been answered meanwhile.
        match self.standing(hash) {
            Standing::LetIn => Ok(true),
            Standing::Refused => Ok(false),
            Standing::KnownBefore | Standing::New => self.ask(token).await,
        }
    }

    async fn ask(&self, token: &str) -> Result<bool, NotLetIn> {
        let request = http().map_err(|e| self.unasked(e.to_string()))?.get(&self.url).bearer_auth(token);
        let answer = request.timeout(PATIENCE).send().await;
        let status = answer.map_err(|e| self.unasked(e.to_string()))?.status();
        // The statuses 408 and 429 do not concern the token.
        if status.is_server_error() || [408, 429].contains(&status.as_u16()) {
            return Err(self.unasked(format!("it answers {status}")));
        }
        Ok(status.is_success())
    }

    async fn place<'a>(&self, places: &'a Semaphore) -> Result<SemaphorePermit<'a>, NotLetIn> {
        match timeout(PATIENCE, places.acquire()).await {
            Ok(place) => place.map_err(|e| self.unasked(e.to_string())),
            Err(_) => Err(self.unasked("too many other tokens are asked about".to_owned())),
        }
    }

    fn places_of(&self, address: IpAddr) -> Arc<Semaphore> {
        self.of_addresses.of(address, || Semaphore::new(ADDRESS_QUESTIONS_MAX))
    }

    fn standing(&self, hash: &TokenHash) -> Standing {
        self.answers.lock().standing(hash, Instant::now(), self.remember)
    }

    fn unasked(&self, why: String) -> NotLetIn {
        NotLetIn::Unasked { url: self.url.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> TokenHash {
        Sha256::digest(number.to_le_bytes()).into()
    }

    #[test]
    fn answers_count_for_their_time() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        let minute = Some(Duration::from_secs(60));
        assert_eq!(answers.standing(&token(1), now, minute), Standing::New);
        answers.note(token(1), true, now);
        answers.note(token(2), false, now);
        let after = |s| now + Duration::from_secs(s);
        assert_eq!(answers.standing(&token(1), after(59), minute), Standing::LetIn);
        assert_eq!(answers.standing(&token(1), after(60), minute), Standing::KnownBefore);
        assert_eq!(answers.standing(&token(1), now, None), Standing::KnownBefore, "asked each time");
        assert_eq!(answers.standing(&token(1), after(59), Some(Duration::MAX)), Standing::LetIn);
        assert_eq!(answers.standing(&token(2), after(29), minute), Standing::Refused);
        assert_eq!(answers.standing(&token(2), after(30), minute), Standing::New);
        answers.note(token(1), false, after(60));
        assert_eq!(answers.standing(&token(1), after(61), minute), Standing::Refused, "it was revoked");
        answers.note(token(1), true, after(100));
        assert_eq!(answers.standing(&token(1), after(101), minute), Standing::LetIn);
    }

    #[test]
    fn the_memory_is_bounded_and_strangers_push_out_no_known_token() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.note(token(0), true, now);
        for number in 1..=ANSWERS_MAX + 2 {
            answers.note(token(number), false, now + Duration::from_millis(number as u64));
        }
        assert_eq!((answers.consents.len(), answers.refusals.len()), (1, ANSWERS_MAX));
        assert!(!answers.refusals.contains_key(&token(2)), "the oldest is forgotten first");
        assert_eq!(answers.standing(&token(0), now, None), Standing::KnownBefore);
    }

    /// An issuer that knows all tokens but those that begin with `slow`, about which it never answers.
    async fn issuer() -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = vec![0; 16 << 10];
                    let bytes = stream.read(&mut head).await.unwrap();
                    if String::from_utf8_lossy(&head[..bytes]).contains("slow") {
                        return std::future::pending().await;
                    }
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    _ = stream.write_all(answer).await;
                });
            }
        });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn strangers_whose_tokens_take_long_hold_up_no_known_client() {
        _ = rustls::crypto::ring::default_provider().install_default();
        let known = Arc::new(Known::new(&issuer().await, None));
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + number));
        let own = short_hash("own");
        assert_eq!(known.check("own", address(0)).await.unwrap(), own);
        // More than there are places, from any number of addresses.
        let strangers: Vec<_> = (0..200)
            .map(|number| {
                let known = known.clone();
                tokio::spawn(async move { known.check(&format!("slow{number}"), address(number)).await })
            })
            .collect();
        while known.of_new.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(known.check("own", address(0)).await.unwrap(), own);
        assert_eq!(known.of_new.available_permits(), 0, "the strangers' questions are still open");
        for stranger in strangers {
            let said = stranger.await.unwrap().map_err(|e| e.to_string());
            assert!(said.as_ref().is_err_and(|why| why.contains("cannot ask")), "{said:?}");
        }
        // One address cannot take all places of new tokens.
        let one: Vec<_> = (0..200)
            .map(|number| {
                let known = known.clone();
                tokio::spawn(async move { known.check(&format!("slow{number}"), address(1)).await })
            })
            .collect();
        while known.of_new.available_permits() > NEW_QUESTIONS_MAX - ADDRESS_QUESTIONS_MAX {
            tokio::task::yield_now().await;
        }
        assert!(known.check("another", address(2)).await.is_ok());
        assert_eq!(known.of_new.available_permits(), NEW_QUESTIONS_MAX - ADDRESS_QUESTIONS_MAX);
        one.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
