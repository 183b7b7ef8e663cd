//! Credentials: how the client verifies a server and authenticates itself.

use crate::client::own;
use crate::system;
use crate::ui::error::CliError;
use crate::ui::message::message;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use windlass_api::client::{Address, Credentials};

/// The flags; they hold for every connection of this process.
static FLAGS: OnceLock<CredentialFlags> = OnceLock::new();

/// Flags for credentials. A token is never a flag: all users of the machine could read it in the process list.
#[derive(Args, Clone, Debug, Default)]
pub struct CredentialFlags {
    /// CA certificates to trust for the server [default: the system's]
    #[arg(
        long,
        global = true,
        help_heading = crate::ui::GLOBAL,
        display_order = 100,
        env = "WINDLASS_CA",
        value_name = "FILE"
    )]
    pub ca: Option<PathBuf>,
    /// File with the token; WINDLASS_TOKEN, the token itself, takes precedence
    #[arg(
        long,
        global = true,
        help_heading = crate::ui::GLOBAL,
        display_order = 100,
        env = "WINDLASS_TOKEN_FILE",
        value_name = "FILE"
    )]
    pub token_file: Option<PathBuf>,
}

/// Stores the flags; only the first call has an effect.
pub fn set(flags: CredentialFlags) {
    _ = FLAGS.set(flags);
}

/// Reads the credentials that flags and environment name. Without a token there, the one of this user's own server is
/// used if that server is at the address.
pub fn credentials(address: &Address) -> Result<Credentials, CliError> {
    let flags = FLAGS.get().cloned().unwrap_or_default();
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let is_named = |path: &&Path| !path.as_os_str().is_empty();
    let token = std::env::var("WINDLASS_TOKEN").ok().map(|token| token.trim().to_owned());
    let (cert, key) = (var("WINDLASS_CERT"), var("WINDLASS_KEY"));
    let read = Credentials::read(
        flags.ca.as_deref().filter(is_named),
        token.filter(|token| !token.is_empty()),
        flags.token_file.as_deref().filter(is_named),
        (cert.as_deref(), key.as_deref()),
    );
    let mut read = read.map_err(|error| CliError::Other(error.into()))?;
    if let Some(path) = flags.token_file.as_deref().filter(is_named) {
        warn_if_readable(path);
    }
    read.token = read.token.or_else(|| own::token_for(address));
    Ok(read)
}

/// The files of the token and of the certificate's key that flags and environment name, with their whole paths.
#[cfg(target_os = "linux")]
pub fn secret_files() -> Vec<PathBuf> {
    let flags = FLAGS.get().cloned().unwrap_or_default();
    let key = std::env::var_os("WINDLASS_KEY").map(PathBuf::from);
    let named = flags.token_file.into_iter().chain(key).filter(|path| !path.as_os_str().is_empty());
    named.filter_map(|path| std::path::absolute(path).ok()).collect()
}

/// Warns of a token file that other users can read: they could use the token.
fn warn_if_readable(path: &Path) {
    let mode = std::fs::metadata(path).map(|found| found.permissions());
    if mode.is_ok_and(|mode| system::is_open_to_others(&mode)) {
        message!("warning: others can read the token in {}; 'chmod 600' it", path.display());
    }
}
