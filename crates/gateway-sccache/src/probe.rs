//! Asking a scheduler, ours or a stock one, how its farm is.

use crate::wire::SchedulerStatus;
use std::net::SocketAddr;
use std::time::Duration;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The farm of the scheduler at an address.
///
/// # Errors
///
/// Nobody answers there, or no scheduler does.
pub async fn probe(address: SocketAddr) -> Result<SchedulerStatus, reqwest::Error> {
    let http = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
    let request = http.get(format!("http://{address}/api/v1/scheduler/status"));
    let response = request.header("Accept", "application/json").send().await?;
    response.error_for_status()?.json().await
}
