//! This user's own server, as clients reach it. `main` hands the functions in, because the module that starts servers
//! stands above this one.

use crate::ui::error::CliError;
use std::pin::Pin;
use std::sync::OnceLock;
use windlass_api::client::{Address, Client};

/// A client that is being connected.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Client, CliError>> + Send>>;

/// The functions of the user's own server.
pub struct OwnAccess {
    /// A client of it; the server is started if needed.
    pub start: fn() -> Connecting,
    /// A client of it, if it answers.
    pub running: fn() -> Connecting,
    /// Its token, if it is at the address.
    pub token_for: fn(&Address) -> Option<String>,
    /// True of an address where the server knows by itself who its clients are.
    pub names_users: fn(&Address) -> bool,
}

static OWN: OnceLock<OwnAccess> = OnceLock::new();

/// Stores the functions; only the first call has an effect.
pub fn set(access: OwnAccess) {
    _ = OWN.set(access);
}

/// A client of the user's own server, which is started if needed.
pub async fn start() -> Result<Client, CliError> {
    (access()?.start)().await
}

/// A client of the user's own server, if it answers.
pub async fn running() -> Result<Client, CliError> {
    (access()?.running)().await
}

/// The token of the user's own server, if that server is at the address.
pub fn token_for(address: &Address) -> Option<String> {
    OWN.get().and_then(|access| (access.token_for)(address))
}

/// True of an address where the server knows by itself who its clients are, because it is that of all users of this
/// machine.
pub fn names_users(address: &Address) -> bool {
    OWN.get().is_some_and(|access| (access.names_users)(address))
}

fn access() -> Result<&'static OwnAccess, CliError> {
    OWN.get().ok_or_else(|| CliError::usage("no server is named"))
}
