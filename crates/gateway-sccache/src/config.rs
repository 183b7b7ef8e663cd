//! The settings of a stock scheduler (`scheduler.toml`), read as they are.

use serde::Deserialize;
use std::net::SocketAddr;

/// The settings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// The address at which it listens.
    pub public_addr: SocketAddr,
    /// How clients show who they are.
    pub client_auth: ClientAuth,
    /// How build servers do.
    pub server_auth: ServerAuth,
}

/// How clients show who they are.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ClientAuth {
    /// Everybody is let in.
    #[serde(rename = "DANGEROUSLY_INSECURE")]
    Insecure,
    /// One token for all.
    #[serde(rename = "token")]
    Token {
        /// The token.
        token: String,
    },
    /// A JWT that somebody else signed.
    #[serde(rename = "jwt_validate")]
    JwtValidate {
        /// For whom it must be.
        audience: String,
        /// Who must have signed it.
        issuer: String,
        /// Where that one's keys are.
        jwks_url: String,
    },
    /// A token that somebody else is asked about.
    #[serde(rename = "proxy_token")]
    ProxyToken {
        /// Where to ask: with the client's token, success means that it is valid.
        url: String,
        /// Seconds for which an answer counts; `None`: it is asked each time.
        cache_secs: Option<u64>,
    },
}

/// How build servers show who they are.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ServerAuth {
    /// Everybody may be one.
    #[serde(rename = "DANGEROUSLY_INSECURE")]
    Insecure,
    /// A JWT for each.
    #[serde(rename = "jwt_hs256")]
    JwtHs256 {
        /// The key that signs them: 32 bytes in URL-safe base64.
        secret_key: String,
    },
    /// One token for all.
    #[serde(rename = "token")]
    Token {
        /// The token.
        token: String,
    },
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// It is no TOML, or no settings of a scheduler. The line itself is not shown: it may have a token.
    #[error("these are no settings of an sccache scheduler, line {line}: {why}")]
    Toml {
        /// Where, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// It is no JSON, or no settings of a scheduler.
    #[error("these are no settings of an sccache scheduler: {0}")]
    Json(#[from] serde_json::Error),
}

impl SchedulerConfig {
    /// Reads the text of a file. Stock schedulers read JSON if the file is called so.
    ///
    /// # Errors
    ///
    /// The line, and what is wrong there.
    pub fn parse(text: &str, is_json: bool) -> Result<Self, BadConfig> {
        if is_json {
            return Ok(serde_json::from_str(text)?);
        }
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
            BadConfig::Toml { line, why: error.message().to_owned() }
        })
    }
}

impl std::fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are in no log.
        f.write_str(match self {
            ClientAuth::Insecure => "DANGEROUSLY_INSECURE",
            ClientAuth::Token { .. } => "token",
            ClientAuth::JwtValidate { .. } => "jwt_validate",
            ClientAuth::ProxyToken { .. } => "proxy_token",
        })
    }
}

impl std::fmt::Debug for ServerAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ServerAuth::Insecure => "DANGEROUSLY_INSECURE",
            ServerAuth::JwtHs256 { .. } => "jwt_hs256",
            ServerAuth::Token { .. } => "token",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_settings_are_read_as_they_are() {
        let text = r#"
            public_addr = "127.0.0.1:10600"
            [client_auth]
            type = "token"
            token = "my client token"
            [server_auth]
            type = "jwt_hs256"
            secret_key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
        "#;
        let config = SchedulerConfig::parse(text, false).unwrap();
        assert_eq!(config.public_addr.port(), 10600);
        assert_eq!(config.client_auth, ClientAuth::Token { token: "my client token".to_owned() });
        assert!(!format!("{config:?}").contains("my client token"));
        let kinds = [
            r#"{"type":"DANGEROUSLY_INSECURE"}"#,
            r#"{"type":"jwt_validate","audience":"a","issuer":"i","jwks_url":"https://x/keys"}"#,
            r#"{"type":"proxy_token","url":"https://x","cache_secs":60}"#,
            r#"{"type":"proxy_token","url":"https://x"}"#,
        ];
        for kind in kinds {
            let text = format!(
                r#"{{"public_addr":"[::1]:1","client_auth":{kind},"server_auth":{{"type":"token","token":"t"}}}}"#
            );
            SchedulerConfig::parse(&text, true).unwrap();
        }
    }

    #[test]
    fn a_mistake_is_named() {
        let error = |text: &str| SchedulerConfig::parse(text, false).unwrap_err().to_string();
        assert!(error("public_addr = \"nowhere\"").contains("line 1"));
        let text = "public_addr = \"1.2.3.4:5\"\n[client_auth]\ntype = \"mozilla\"";
        let said = error(text);
        assert!(said.contains("line 3") && said.contains("unknown variant `mozilla`"), "{said}");
        let text = "public_addr = \"1.2.3.4:5\"\n[client_auth]\ntype = \"token\"\ntokn = \"s3cret\"";
        let said = error(text);
        assert!(!said.contains("s3cret"), "{said}");
    }
}
