//! What can be wrong with a config file.

/// Bytes of a config file.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// An error of a config file.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the config file is not valid YAML: {0}")]
    Yaml(String),
    #[error("the config file has {0} bytes; at most {CONFIG_BYTES_MAX} are read")]
    Long(usize),
    #[error("{key} = {value}: this must be {expected}")]
    Value { key: String, value: String, expected: &'static str },
}
