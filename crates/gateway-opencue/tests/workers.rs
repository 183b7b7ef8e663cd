//! Windlass workers among the hosts of a farm.

use crate::farm::farm;
use windlass_cuebot::HostCalls;
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_gateway_opencue::{Dialer, Workers};

#[tokio::test]
async fn hosts_that_were_registered_as_workers_are_workers_before_their_server_answers() {
    let Some(farm) = farm().await else { return };
    farm.host("box1").await;
    farm.host("box2").await;
    farm.run(
        "INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type)
         VALUES ('of box1', 'box1', 'windlass', 'MANUAL')",
    )
    .await;
    let text = "windlass: {cuebot: {listen: '127.0.0.1:1'}, workers: {server: /nonexistent/windlass.sock}}";
    let config = Config::parse(text).unwrap();
    let workers = Workers::new(config.workers.unwrap(), farm.pool.clone()).unwrap();
    workers.read_names(&farm.pool.get().await.unwrap()).await.unwrap();
    let (pool, database) = (farm.pool.clone(), farm.config.clone());
    let instance = Instance::with_dialer(pool, database, Dialer::plain(), config.instance, Some(workers));
    let hosts = instance.launcher();
    assert!(hosts.has_workers() && hosts.is_worker("box1") && !hosts.is_worker("box2"));
}
