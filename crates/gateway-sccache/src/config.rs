//! The settings of a stock scheduler (`scheduler.toml`), in their own format.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use serde::Deserialize;
use std::net::SocketAddr;
use windlass_core::load::formula::LoadSettings;

/// The settings of a scheduler.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// The address at which it listens.
    pub public_addr: SocketAddr,
    /// The authentication of clients.
    pub client_auth: ClientAuth,
    /// The authentication of build servers.
    pub server_auth: ServerAuth,
    /// What the load of build servers does. Stock schedulers do not know the table.
    #[serde(default)]
    pub scheduler: LoadThresholds,
}

/// The table `[scheduler]`: pressures from which a build server gets no compiles, in percent, and how much full pressure
/// adds to its load, as a multiple of it. What is absent is as the server has it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadThresholds {
    pub max_cpu_pressure: Option<f64>,
    pub max_memory_pressure: Option<f64>,
    pub max_io_pressure: Option<f64>,
    pub cpu_pressure_weight: Option<f64>,
    pub memory_pressure_weight: Option<f64>,
    pub io_pressure_weight: Option<f64>,
}

impl LoadThresholds {
    /// The values that are there, by their names, which are those of the server's settings `load.NAME`.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("max_cpu_pressure", self.max_cpu_pressure),
            ("max_memory_pressure", self.max_memory_pressure),
            ("max_io_pressure", self.max_io_pressure),
            ("cpu_pressure_weight", self.cpu_pressure_weight),
            ("memory_pressure_weight", self.memory_pressure_weight),
            ("io_pressure_weight", self.io_pressure_weight),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// The names of those that say something else than what is in force.
    pub fn overruled_by(&self, load: &LoadSettings) -> Vec<&'static str> {
        let in_force = LoadThresholds {
            max_cpu_pressure: Some(load.max_cpu_pressure),
            max_memory_pressure: Some(load.max_memory_pressure),
            max_io_pressure: Some(load.max_io_pressure),
            cpu_pressure_weight: Some(load.cpu_pressure_weight),
            memory_pressure_weight: Some(load.memory_pressure_weight),
            io_pressure_weight: Some(load.io_pressure_weight),
        };
        let same = |(name, value): (&str, f64)| in_force.entries().any(|entry| entry == (name, value));
        self.entries().filter(|entry| !same(*entry)).map(|(name, _)| name).collect()
    }
}

/// The authentication of clients.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ClientAuth {
    /// Every client is admitted.
    #[serde(rename = "DANGEROUSLY_INSECURE")]
    Insecure,
    #[serde(rename = "token")]
    Token { token: String },
    /// A JWT that an issuer signed.
    #[serde(rename = "jwt_validate")]
    JwtValidate {
        /// The audience that it must name.
        audience: String,
        /// The issuer that it must name.
        issuer: String,
        jwks_url: String,
    },
    /// A token about which an issuer is asked.
    #[serde(rename = "proxy_token")]
    ProxyToken {
        /// The URL to ask with the client's token. Success means that the token is valid.
        url: String,
        /// Seconds for which a consent counts; `None` asks each time.
        cache_secs: Option<u64>,
    },
}

/// The authentication of build servers.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum ServerAuth {
    /// Every build server is admitted.
    #[serde(rename = "DANGEROUSLY_INSECURE")]
    Insecure,
    /// Each build server has a JWT.
    #[serde(rename = "jwt_hs256")]
    JwtHs256 {
        /// The key that signs them: 32 bytes in URL-safe base64.
        secret_key: String,
    },
    #[serde(rename = "token")]
    Token { token: String },
}

/// Why a file of settings is refused.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// The file is not valid TOML, or not the settings of a scheduler. The line is not shown, because it may contain a
    /// token.
    #[error("these are not the settings of an sccache scheduler, line {line}: {why}")]
    Toml { line: usize, why: String },
    #[error("these are not the settings of an sccache scheduler: {0}")]
    Json(#[from] serde_json::Error),
}

impl SchedulerConfig {
    /// Reads the text of a file. Stock schedulers read JSON if the file's name ends so.
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
        // Logs must not contain tokens.
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
    fn the_table_of_thresholds_is_read_and_compared_with_what_holds() {
        let text = r#"
            public_addr = "127.0.0.1:10600"
            client_auth = { type = "DANGEROUSLY_INSECURE" }
            server_auth = { type = "DANGEROUSLY_INSECURE" }
            [scheduler]
            max_cpu_pressure = 80.0
            max_memory_pressure = 50
            max_io_pressure = 75.0
            cpu_pressure_weight = 2.0
            memory_pressure_weight = 1.5
            io_pressure_weight = 1.2
        "#;
        let thresholds = SchedulerConfig::parse(text, false).unwrap().scheduler;
        assert_eq!(thresholds.entries().count(), 6);
        let load = LoadSettings::DEFAULT;
        assert_eq!(thresholds.overruled_by(&load), ["memory_pressure_weight", "io_pressure_weight"]);
        let load = LoadSettings { memory_pressure_weight: 1.5, io_pressure_weight: 1.2, ..load };
        assert!(thresholds.overruled_by(&load).is_empty());
        let error = SchedulerConfig::parse(&text.replace("max_io_pressure", "max_oi"), false).unwrap_err();
        assert!(error.to_string().contains("unknown field `max_oi`"), "{error}");
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
