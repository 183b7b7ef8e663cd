//! `windlass job wait`: waits for jobs, and no longer than it is told to.

use crate::client::context::Context;
use crate::commands::verbs::{self, IdsArgs};
use crate::ui::error::{CliError, TIMED_OUT, end_with};
use crate::ui::message::message;
use crate::ui::quantity::exact;
use clap::Args;
use std::time::Duration;
use windlass_api::quantity::parse_duration;

/// The jobs to wait for, and how long.
#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    ids: IdsArgs,
    /// Wait no longer than this, and exit with code 124 while the jobs go on: 90s, 1h30m, 00:10:00, or seconds
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<u64>,
}

/// Runs the command `windlass job wait`.
pub async fn wait(context: &Context, args: &WaitArgs) -> Result<(), CliError> {
    let waiting = verbs::wait(context, &args.ids);
    let Some(timeout_ms) = args.timeout else { return waiting.await };
    match tokio::time::timeout(Duration::from_millis(timeout_ms), waiting).await {
        Ok(ended) => ended,
        Err(_) => {
            message!("not ended within {}: what was waited for goes on", exact(timeout_ms));
            end_with(TIMED_OUT)
        }
    }
}
