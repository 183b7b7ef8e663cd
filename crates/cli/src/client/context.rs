//! The global flags, and the client that they lead to.

use crate::client::connect::connect;
use crate::client::token_end::tell_token_end;
use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::output::Format;
use windlass_api::Addresses;
use windlass_api::client::Client;

/// The global flags, which every command gets.
pub struct Context {
    /// Format of the data on standard output.
    pub format: Format,
    /// The servers that the user named; `None` is the user's own.
    pub server: Option<Addresses>,
    /// How often `--verbose` was given.
    pub verbose: u8,
}

impl Context {
    /// A client of the server, which is started if it is this user's own.
    pub async fn client(&self) -> Result<Client, CliError> {
        let client = connect(self.server.as_ref()).await?;
        self.say_address(&client);
        tell_token_end();
        Ok(client)
    }

    /// Says which server answers, to those who want to know more.
    pub fn say_address(&self, client: &Client) {
        if self.verbose > 0 {
            message!("note: the server is at {}", client.address());
        }
    }
}
