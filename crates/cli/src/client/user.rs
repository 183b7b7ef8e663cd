//! The name under which a user submits jobs.

use crate::client::own;
use crate::system::account_name;
use crate::ui::error::{CliError, Doing};
use windlass_api::client::Client;

/// The user's name on the server: that of the token, if there is one, or the one by which the machine's server knows them.
pub async fn user_on(client: &Client) -> Result<String, CliError> {
    if !client.shows_token() && !own::names_users(client.address()) {
        return Ok(user_name());
    }
    let version = client.version().await.doing("ask the server for the user's name")?;
    Ok(version.user.unwrap_or_else(user_name))
}

/// The user's name on this machine: `USER` or `LOGNAME`, else what the system says.
pub fn user_name() -> String {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    var("USER").or_else(|| var("LOGNAME")).unwrap_or_else(account_name)
}
