//! Tokens of clients, of build servers, and of jobs.

use crate::wire::{JobId, ServerId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

/// The token of clients of an insecure scheduler.
const INSECURE_CLIENT: &str = "dangerously_insecure_client";
/// The word that build servers of an insecure scheduler show after their address.
const INSECURE_SERVER: &str = "dangerously_insecure_server";
/// Bytes of the key of build servers' tokens.
const SECRET_BYTES: usize = 32;

/// Why a token is refused. The words are those of a stock scheduler's `WWW-Authenticate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadToken {
    /// The request has no token.
    #[error("no_bearer_auth")]
    Missing,
    /// The token of a client is not valid.
    #[error("bearer_auth_failed")]
    Client,
    /// The token of a build server is not valid.
    #[error("invalid_bearer_token")]
    Server,
    /// The token of a build server names another machine.
    #[error("invalid_bearer_token_mismatched_address")]
    Address,
}

/// Why a key cannot be used.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    #[error("the secret key is not URL-safe base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("the secret key has {0} bytes, and must have {SECRET_BYTES}")]
    Length(usize),
}

/// The token of a request, after `Bearer` in its header.
pub fn bearer(header: Option<&str>) -> Result<&str, BadToken> {
    let token = header.and_then(|header| header.strip_prefix("Bearer "));
    token.filter(|token| !token.is_empty()).ok_or(BadToken::Missing)
}

/// A token that the scheduler checks by itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientToken(String);

impl ClientToken {
    /// The token that every client of an insecure scheduler knows.
    pub fn insecure() -> Self {
        ClientToken(INSECURE_CLIENT.to_owned())
    }

    /// A token that the settings name.
    pub fn of(token: String) -> Self {
        ClientToken(token)
    }

    /// Compares in constant time.
    pub fn check(&self, token: &str) -> Result<(), BadToken> {
        if bool::from(self.0.as_bytes().ct_eq(token.as_bytes())) { Ok(()) } else { Err(BadToken::Client) }
    }
}

impl std::fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientToken(…)")
    }
}

/// The way in which build servers authenticate.
#[derive(Clone)]
pub enum ServerTokens {
    /// By their address, and a word that all of them know.
    Shared(ClientToken),
    /// By a JWT that names the address and is signed by the scheduler's key.
    Signed(Box<DecodingKey>),
}

/// The claims of a build server's JWT, which does not expire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerClaims {
    exp: u64,
    server_id: ServerId,
}

/// The claims of a job's token. It does not expire, because the job's only build server forgets the job.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobClaims {
    exp: u64,
    job_id: JobId,
}

impl ServerTokens {
    /// Build servers of an insecure scheduler, which all know one word.
    pub fn insecure() -> Self {
        ServerTokens::Shared(ClientToken::of(INSECURE_SERVER.to_owned()))
    }

    /// Build servers that know this word.
    pub fn shared(token: String) -> Self {
        ServerTokens::Shared(ClientToken::of(token))
    }

    /// Build servers with JWTs by HS256. The key is 32 bytes in URL-safe base64 without padding.
    pub fn signed(secret_key: &str) -> Result<Self, BadKey> {
        let key = URL_SAFE_NO_PAD.decode(secret_key)?;
        if key.len() != SECRET_BYTES {
            return Err(BadKey::Length(key.len()));
        }
        Ok(ServerTokens::Signed(Box::new(DecodingKey::from_secret(&key))))
    }

    /// The build server that a token names.
    pub fn server(&self, token: &str) -> Result<ServerId, BadToken> {
        match self {
            ServerTokens::Shared(shared) => {
                let (address, word) = token.split_once(' ').ok_or(BadToken::Server)?;
                let address = address.parse().map_err(|_| BadToken::Server)?;
                shared.check(word).map_err(|_| BadToken::Server)?;
                Ok(ServerId(address))
            }
            ServerTokens::Signed(key) => {
                let mut rules = Validation::new(Algorithm::HS256);
                // Stock tokens have the claim with the value 0, and do not expire.
                rules.validate_exp = false;
                let claims = jsonwebtoken::decode::<ServerClaims>(token, key, &rules);
                claims.map(|decoded| decoded.claims.server_id).map_err(|_| BadToken::Server)
            }
        }
    }
}

/// The token by which a build server lets a client run a job. `key` is from its heartbeat.
pub fn of_job(key: &[u8], job_id: JobId) -> Option<String> {
    let claims = JobClaims { exp: 0, job_id };
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(key)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const EXAMPLE: &str = include_str!("../tests/golden/wire_examples.txt");

    /// The text after these words in the recorded examples.
    fn recorded(words: &str) -> &'static str {
        let line = EXAMPLE.lines().find_map(|line| line.strip_prefix(words)).unwrap();
        line.split_whitespace().next().unwrap()
    }

    fn key() -> Vec<u8> {
        (0..32).collect()
    }

    fn server() -> ServerId {
        ServerId("192.168.1.10:10501".parse::<SocketAddr>().unwrap())
    }

    #[test]
    fn a_job_s_token_is_the_one_that_a_stock_scheduler_makes() {
        let expected = recorded("job token job_id=7 key=00..1f: ");
        assert_eq!(of_job(&key(), JobId(7)).as_deref(), Some(expected));
    }

    #[test]
    fn a_stock_server_s_jwt_names_it() {
        let token = recorded("server JWT (secret 00..1f) for 192.168.1.10:10501: ");
        let tokens = ServerTokens::signed(&URL_SAFE_NO_PAD.encode(key())).unwrap();
        assert_eq!(tokens.server(token), Ok(server()));
        let other = ServerTokens::signed(&URL_SAFE_NO_PAD.encode([7; 32])).unwrap();
        assert_eq!(other.server(token), Err(BadToken::Server), "forged");
        for wrong in ["", "a.b.c", &token[..token.len() - 2], &format!("{token}x")] {
            assert_eq!(tokens.server(wrong), Err(BadToken::Server), "{wrong}");
        }
        let none = token.split('.').nth(1).unwrap();
        let unsigned = format!("{}.{none}.", URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"none"}"#));
        assert_eq!(tokens.server(&unsigned), Err(BadToken::Server), "unsigned");
    }

    #[test]
    fn a_shared_word_comes_behind_the_address() {
        let tokens = ServerTokens::shared("word".to_owned());
        assert_eq!(tokens.server("192.168.1.10:10501 word"), Ok(server()));
        for wrong in ["192.168.1.10:10501 words", "192.168.1.10 word", "word", "192.168.1.10:10501", ""] {
            assert_eq!(tokens.server(wrong), Err(BadToken::Server), "{wrong}");
        }
        assert_eq!(
            ServerTokens::insecure().server(&format!("[::1]:1 {INSECURE_SERVER}")).unwrap().0.port(),
            1
        );
    }

    #[test]
    fn clients_show_one_word() {
        assert_eq!(bearer(None), Err(BadToken::Missing));
        assert_eq!(bearer(Some("Basic abc")), Err(BadToken::Missing));
        let shown = bearer(Some("Bearer abc")).unwrap();
        assert_eq!(ClientToken::of("abc".to_owned()).check(shown), Ok(()));
        assert_eq!(ClientToken::of("abcd".to_owned()).check(shown), Err(BadToken::Client));
        assert_eq!(format!("{:?}", ClientToken::of("abc".to_owned())), "ClientToken(…)");
    }

    #[test]
    fn a_key_has_32_bytes() {
        assert!(matches!(ServerTokens::signed("abc="), Err(BadKey::Base64(_))));
        assert!(matches!(ServerTokens::signed("AAAA"), Err(BadKey::Length(3))));
    }
}
