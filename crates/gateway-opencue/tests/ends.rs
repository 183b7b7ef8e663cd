//! Ends of frames beside bookings, reports and calls: many layers, of which each waits for the one before, end
//! together.

use crate::farm::{Client, farm};
use crate::running::{Chain, Lasting, Running};
use windlass_cuebot::generated::job as wire;

fn at_once() -> Lasting {
    Box::pin(std::future::ready(()))
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_layers_that_wait_for_each_other_end_together_on_one_host() {
    let Some(farm) = farm().await else { return };
    let chain = Chain { jobs: 1, layers: 5, frames: 14 };
    let running = Running::start(farm, (1, 8), chain).await;
    running.finish(chain, at_once).await;
    running.check(chain).await;
}

/// What people do while frames run, a hundred times.
async fn call(client: Client) {
    for number in 0..100 {
        let layer = Some(wire::Layer { id: "J1L3".to_owned(), ..Default::default() });
        let ask = wire::LayerSetDispatchOrderRequest { layer: layer.clone(), order: number };
        let _: wire::LayerSetDispatchOrderResponse =
            client.ok("job.LayerInterface/SetDispatchOrder", ask).await;
        let (range, order) = ("1-20".to_owned(), wire::Order::Reverse.into());
        let ask = wire::LayerReorderFramesRequest { layer, range, order };
        let _: wire::LayerReorderFramesResponse = client.ok("job.LayerInterface/ReorderFrames", ask).await;
        let frame = Some(wire::Frame { id: "J2L5F40".to_owned(), ..Default::default() });
        let ask = wire::FrameMarkAsDependRequest { frame };
        let _: wire::FrameMarkAsDependResponse = client.ok("job.FrameInterface/MarkAsDepend", ask).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_jobs_that_wait_for_each_other_end_beside_bookings_reports_and_calls() {
    let Some(farm) = farm().await else { return };
    let chain = Chain { jobs: 3, layers: 5, frames: 40 };
    let running = Running::start(farm, (6, 4), chain).await;
    let client = Client::connect(&running.farm).await;
    let calls = tokio::spawn(call(client));
    running.finish(chain, at_once).await;
    calls.await.unwrap();
    running.check(chain).await;
}
