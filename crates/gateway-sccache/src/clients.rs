//! Authentication of clients: by one token that all know, by a JWT, or by a token about which an issuer is asked.

use crate::config::ClientAuth;
use crate::issuer::{NotLetIn, http, short_hash};
use crate::known::Known;
use crate::tokens::{BadToken, ClientToken};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// By how much the clocks of issuer and scheduler may differ.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);
/// The shortest interval at which unknown keys in tokens make the scheduler read the issuer's keys.
const KEYS_AGE_MIN: Duration = Duration::from_secs(60);
/// Bytes of the issuer's keys, and their number.
const KEYS_BYTES_MAX: usize = 1 << 20;
const KEYS_MAX: usize = 100;
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Letters of a subject that become part of a queue's name.
const SUBJECT_CHARS_MAX: usize = 64;

/// The way in which clients authenticate.
pub enum Clients {
    /// One token for all.
    One(ClientToken),
    /// JWTs that an issuer signed.
    Signed(Box<Signed>),
    /// Tokens that an issuer knows.
    Known(Box<Known>),
}

impl Clients {
    /// The authentication in the settings of a stock scheduler.
    pub fn new(config: &ClientAuth) -> Self {
        match config {
            ClientAuth::Insecure => Clients::One(ClientToken::insecure()),
            ClientAuth::Token { token } => Clients::One(ClientToken::of(token.clone())),
            ClientAuth::JwtValidate { audience, issuer, jwks_url } => {
                Clients::Signed(Box::new(Signed::new(audience, issuer, jwks_url)))
            }
            ClientAuth::ProxyToken { url, cache_secs } => {
                Clients::Known(Box::new(Known::new(url, cache_secs.map(Duration::from_secs))))
            }
        }
    }

    /// Admits a client that asks from this address. Returns the identity in its token; `None` if all clients have the
    /// same token.
    pub async fn check(&self, token: &str, from: IpAddr) -> Result<Option<String>, NotLetIn> {
        match self {
            Clients::One(one) => Ok(one.check(token).map(|()| None)?),
            _ if token.len() > TOKEN_BYTES_MAX => Err(BadToken::Client.into()),
            Clients::Signed(signed) => signed.check(token).await.map(Some),
            Clients::Known(known) => known.check(token, from).await.map(Some),
        }
    }
}

/// JWTs that an issuer signed with keys that it publishes.
pub struct Signed {
    audience: String,
    issuer: String,
    url: String,
    keys: Mutex<BTreeMap<String, DecodingKey>>,
    /// The time at which the keys were read. Locked while they are read.
    read_at: tokio::sync::Mutex<Option<Instant>>,
}

/// The claims of a client's JWT that are read here.
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    /// The time from which it is valid, in seconds since the Unix epoch. The library ignores a claim of another type,
    /// so it is read here, where that is an error.
    nbf: Option<f64>,
}

impl Claims {
    /// True if the token is not valid yet, even if the clocks differ by [`CLOCKS_DIFFER_MAX`].
    fn is_early(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.nbf.is_some_and(|from| from > (now + CLOCKS_DIFFER_MAX).as_secs_f64())
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kid: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl Signed {
    fn new(audience: &str, issuer: &str, url: &str) -> Self {
        let (audience, issuer, url) = (audience.to_owned(), issuer.to_owned(), url.to_owned());
        Signed { audience, issuer, url, keys: Mutex::default(), read_at: tokio::sync::Mutex::default() }
    }

    async fn check(&self, token: &str) -> Result<String, NotLetIn> {
        let head = jsonwebtoken::decode_header(token).map_err(|_| BadToken::Client)?;
        let is_rsa = matches!(head.alg, Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512);
        let kid = head.kid.filter(|_| is_rsa).ok_or(BadToken::Client)?;
        let key = match self.key(&kid) {
            Some(key) => key,
            None => {
                self.read_keys().await?;
                self.key(&kid).ok_or(BadToken::Client)?
            }
        };
        let mut rules = Validation::new(head.alg);
        rules.set_audience(&[&self.audience]);
        rules.set_issuer(&[&self.issuer]);
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        let claims =
            jsonwebtoken::decode::<Claims>(token, &key, &rules).map_err(|_| BadToken::Client)?.claims;
        if claims.is_early(SystemTime::now()) {
            return Err(BadToken::Client.into());
        }
        Ok(claims.sub.map_or_else(|| short_hash(token), |subject| plain(&subject)))
    }

    fn key(&self, kid: &str) -> Option<DecodingKey> {
        self.keys.lock().get(kid).cloned()
    }

    /// Reads the issuer's keys, unless they were read just now.
    async fn read_keys(&self) -> Result<(), NotLetIn> {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < KEYS_AGE_MIN) {
            return Ok(());
        }
        let unasked = |why: String| NotLetIn::Unasked { url: self.url.clone(), why };
        let response = http().map_err(|e| unasked(e.to_string()))?.get(&self.url).send().await;
        let mut response =
            response.and_then(reqwest::Response::error_for_status).map_err(|e| unasked(e.to_string()))?;
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|e| unasked(e.to_string()))? {
            body.extend_from_slice(&part);
            if body.len() > KEYS_BYTES_MAX {
                return Err(unasked("its keys are too large".to_owned()));
            }
        }
        let set: KeySet = serde_json::from_slice(&body).map_err(|e| unasked(e.to_string()))?;
        let rsa = set.keys.into_iter().take(KEYS_MAX).filter_map(|key| {
            let made = DecodingKey::from_rsa_components(&key.n?, &key.e?).ok()?;
            Some((key.kid?, made))
        });
        *self.keys.lock() = rsa.collect();
        *read_at = Some(Instant::now());
        Ok(())
    }
}

/// A subject with the characters that names of queues may have.
fn plain(subject: &str) -> String {
    let kept = subject.chars().take(SUBJECT_CHARS_MAX);
    kept.map(|c| if c.is_ascii_alphanumeric() || "-_.@".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_early_until_its_time_and_a_wrong_type_is_an_error() {
        let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        let is_early = |nbf: &str| {
            let claims: Result<Claims, _> = serde_json::from_str(&format!(r#"{{"sub":"ann"{nbf}}}"#));
            claims.map(|claims| claims.is_early(now)).map_err(|_| ())
        };
        for early in ["2000000061", "2000000060.5", "1e300", "4000000000"] {
            assert_eq!(is_early(&format!(r#","nbf":{early}"#)), Ok(true), "{early}");
        }
        for fine in ["2000000060", "0", "-1", "1.5", "null"] {
            assert_eq!(is_early(&format!(r#","nbf":{fine}"#)), Ok(false), "{fine}");
        }
        assert_eq!(is_early(""), Ok(false));
        for wrong in [r#""4000000000""#, "[4000000000]", "{}", "true"] {
            assert_eq!(is_early(&format!(r#","nbf":{wrong}"#)), Err(()), "{wrong}");
        }
    }
}
