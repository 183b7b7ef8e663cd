//! Clients of the named servers, or of the user's own.

use crate::client::credentials::credentials;
use crate::client::own;
use crate::ui::error::CliError;
use crate::ui::message::message;
use windlass_api::Addresses;
use windlass_api::client::Client;

/// A client of the named servers, or of the per-user one, which is started if needed.
pub async fn connect(server: Option<&Addresses>) -> Result<Client, CliError> {
    match server {
        Some(addresses) => connect_to(addresses).await,
        None => own::start().await,
    }
}

/// A client of the named servers, or of the per-user one, if one answers.
pub async fn connect_running(server: Option<&Addresses>) -> Result<Client, CliError> {
    match server {
        Some(addresses) => connect_to(addresses).await,
        None => own::running().await,
    }
}

/// A client of these servers, if one answers.
pub async fn connect_to(addresses: &Addresses) -> Result<Client, CliError> {
    let client = client_of(addresses)?;
    client.version().await?;
    Ok(client)
}

/// A client of these servers, each with the credentials for its address; nothing is sent yet.
pub fn client_of(addresses: &Addresses) -> Result<Client, CliError> {
    let mut servers = Vec::new();
    for address in addresses.iter() {
        servers.push((address.clone(), credentials(address)?));
    }
    Ok(Client::among(servers, |what| message!("warning: {what}"))?)
}
