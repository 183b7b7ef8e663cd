//! What clients submit and do with it, on a real PostgreSQL.

use crate::farm::farm;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use windlass_cuebot::generated::job as wire;

async fn call<Q, A>(grpc: &Grpc<Channel>, name: &str, ask: Q) -> Result<A, Status>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = grpc.clone();
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("/job.JobInterface/{name}")).unwrap();
    Ok(grpc.unary(Request::new(ask), path, ProstCodec::<Q, A>::default()).await?.into_inner())
}

#[tokio::test]
async fn a_job_of_pyoutline_is_made_listed_killed_and_finished() {
    let Some(farm) = farm().await else { return };
    farm.run("INSERT INTO limit_record (pk_limit_record, str_name, int_max_value) VALUES ('L', 'nuke', 9)")
        .await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(farm.cuebot.clone().serve(listener));
    let grpc = Grpc::new(Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap());
    let spec = include_str!("golden/pyoutline_1.37_spec.xml").to_owned();

    let launched: wire::JobLaunchSpecAndWaitResponse =
        call(&grpc, "LaunchSpecAndWait", wire::JobLaunchSpecAndWaitRequest { spec: spec.clone() })
            .await
            .unwrap();
    let job = launched.jobs.unwrap().jobs.remove(0);
    assert_eq!(job.name, "testing-shot01-artist_two_layers");
    assert_eq!(job.log_dir, format!("/logs/testing/shot01/logs/{}--{}", job.name, job.id));
    let stats = job.job_stats.as_ref().unwrap();
    assert_eq!((stats.total_layers, stats.waiting_frames, stats.depend_frames), (4, 9, 6));
    assert!(job.is_paused);
    farm.audit().await;
    let again: Result<wire::JobLaunchSpecResponse, Status> =
        call(&grpc, "LaunchSpec", wire::JobLaunchSpecRequest { spec }).await;
    assert_eq!(again.unwrap_err().code(), tonic::Code::AlreadyExists);
    assert_eq!(farm.value("SELECT count(*) FROM job").await, "1", "a refused document leaves nothing");

    let _: wire::JobResumeResponse =
        call(&grpc, "Resume", wire::JobResumeRequest { job: Some(job.clone()) }).await.unwrap();
    let ask = wire::JobGetFramesRequest { job: Some(job.clone()), req: None };
    let frames: wire::JobGetFramesResponse = call(&grpc, "GetFrames", ask).await.unwrap();
    let frames = frames.frames.unwrap().frames;
    let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).take(5).collect();
    assert_eq!(names, ["0001-sim", "0004-sim", "0007-sim", "0010-sim", "0020-sim"]);

    let first = wire::FrameSearchCriteria { layers: vec!["first".to_owned()], ..Default::default() };
    let ask = wire::JobEatFramesRequest { job: Some(job.clone()), req: Some(first.clone()) };
    let _: wire::JobEatFramesResponse = call(&grpc, "EatFrames", ask).await.unwrap();
    let ask = wire::JobRetryFramesRequest { job: Some(job.clone()), req: Some(first) };
    let _: wire::JobRetryFramesResponse = call(&grpc, "RetryFrames", ask).await.unwrap();
    assert_eq!(farm.value("SELECT int_waiting_count FROM job_stat").await, "9");

    let ask = wire::JobKillRequest { job: Some(job), reason: "test".to_owned(), ..Default::default() };
    let _: wire::JobKillResponse = call(&grpc, "Kill", ask).await.unwrap();
    let listed: wire::JobGetJobsResponse =
        call(&grpc, "GetJobs", wire::JobGetJobsRequest::default()).await.unwrap();
    assert!(listed.jobs.unwrap().jobs.is_empty());
    farm.audit().await;
}
