//! What monitors of jobs call: layers and frames, their order, what they wait for, and comments.

use crate::farm::{Client, farm};
use tonic::Code;
use windlass_cuebot::generated::comment::{
    Comment, CommentDeleteRequest, CommentDeleteResponse, CommentSaveRequest, CommentSaveResponse,
};
use windlass_cuebot::generated::depend::{
    Depend, DependSatisfyRequest, DependSatisfyResponse, DependTarget, DependType, DependUnsatisfyRequest,
    DependUnsatisfyResponse,
};
use windlass_cuebot::generated::job as wire;

/// A host of this machine at which no RQD listens.
const HOST: &str = "127.0.0.9";

fn job() -> Option<wire::Job> {
    Some(wire::Job { id: "J".to_owned(), ..Default::default() })
}

fn layer(id: &str) -> Option<wire::Layer> {
    Some(wire::Layer { id: id.to_owned(), ..Default::default() })
}

fn frame(id: &str) -> Option<wire::Frame> {
    Some(wire::Frame { id: id.to_owned(), ..Default::default() })
}

#[tokio::test]
async fn frames_of_a_layer_change_places_and_no_others_do() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 4), ("b", 2)], 0).await;
    farm.run("UPDATE frame SET int_dispatch_order = int_number").await;
    let client = Client::connect(&farm).await;
    let order = async |layer: &str| {
        let sql = "SELECT string_agg(int_number::text, ' ' ORDER BY int_dispatch_order) FROM frame WHERE pk_layer =";
        farm.value(&format!("{sql} '{layer}'")).await
    };
    for (range, place, expected) in [
        ("3,4", wire::Order::First, "3 4 1 2"),
        ("3", wire::Order::Last, "4 1 2 3"),
        ("1-4", wire::Order::Reverse, "3 2 1 4"),
    ] {
        let ask = wire::LayerReorderFramesRequest {
            layer: layer("a"),
            range: range.to_owned(),
            order: place.into(),
        };
        let _: wire::LayerReorderFramesResponse = client.ok("job.LayerInterface/ReorderFrames", ask).await;
        assert_eq!(order("a").await, expected, "{range}");
    }
    let ask = wire::LayerStaggerFramesRequest { layer: layer("a"), range: "1-4".to_owned(), stagger: 2 };
    let _: wire::LayerStaggerFramesResponse = client.ok("job.LayerInterface/StaggerFrames", ask).await;
    assert_eq!((order("a").await.as_str(), order("b").await.as_str()), ("1 3 2 4", "1 2"));
    let ask =
        wire::JobReorderFramesRequest { job: job(), range: "1".to_owned(), order: wire::Order::Last.into() };
    let _: wire::JobReorderFramesResponse = client.ok("job.JobInterface/ReorderFrames", ask).await;
    assert_eq!((order("a").await.as_str(), order("b").await.as_str()), ("3 2 4 1", "2 1"));
    let ask = wire::JobStaggerFramesRequest { job: job(), range: "1-2".to_owned(), stagger: 0 };
    let refused =
        client.call::<_, wire::JobStaggerFramesResponse>("job.JobInterface/StaggerFrames", ask).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    farm.audit().await;
}

#[tokio::test]
async fn a_job_is_followed_and_its_frames_are_killed_eaten_and_run_again() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    farm.job(&[("a", 4), ("b", 2)], 1).await;
    let client = Client::connect(&farm).await;
    let updated = async |last_check: i32| {
        let ask = wire::JobGetUpdatedFramesRequest { job: job(), last_check, layer_filter: None };
        client.ok::<_, wire::JobGetUpdatedFramesResponse>("job.JobInterface/GetUpdatedFrames", ask).await
    };
    let before = updated(0).await;
    assert!(before.updated_frames.unwrap().updated_frames.is_empty());
    farm.book("a-1", HOST, "p1").await;
    let after = updated(before.server_time).await;
    assert_eq!(after.state, i32::from(wire::JobState::Pending));
    let frames = after.updated_frames.unwrap().updated_frames;
    assert_eq!((frames.len(), frames[0].id.as_str()), (1, "a-1"));
    assert_eq!(frames[0].state, i32::from(wire::FrameState::Running));
    assert_eq!(frames[0].last_resource, format!("{HOST}/1.00"));

    let ask = wire::LayerKillFramesRequest { layer: layer("a"), ..Default::default() };
    let _: wire::LayerKillFramesResponse = client.ok("job.LayerInterface/KillFrames", ask).await;
    assert_eq!(farm.state("a-1").await, "WAITING");
    farm.audit().await;
    let ask = wire::FrameEatRequest { frame: frame("a-2") };
    let _: wire::FrameEatResponse = client.ok("job.FrameInterface/Eat", ask).await;
    assert_eq!(farm.state("a-2").await, "EATEN");
    let ask = wire::LayerEatFramesRequest { layer: layer("b") };
    let _: wire::LayerEatFramesResponse = client.ok("job.LayerInterface/EatFrames", ask).await;
    farm.audit().await;
    let ask = wire::FrameRetryRequest { frame: frame("a-2") };
    let _: wire::FrameRetryResponse = client.ok("job.FrameInterface/Retry", ask).await;
    let ask = wire::LayerRetryFramesRequest { layer: layer("b") };
    let _: wire::LayerRetryFramesResponse = client.ok("job.LayerInterface/RetryFrames", ask).await;
    assert_eq!(farm.value("SELECT int_waiting_count FROM job_stat").await, "6");
    farm.audit().await;

    let ask = wire::LayerGetFramesRequest { layer: layer("b"), s: None };
    let listed: wire::LayerGetFramesResponse = client.ok("job.LayerInterface/GetFrames", ask).await;
    assert_eq!(listed.frames.unwrap().frames.len(), 2);
    let named = "testing-s-u_j".to_owned();
    let ask = wire::FrameFindFrameRequest { job: named.clone(), layer: "b".to_owned(), frame: 2 };
    let found: wire::FrameFindFrameResponse = client.ok("job.FrameInterface/FindFrame", ask).await;
    assert_eq!(found.frame.unwrap().id, "b-2");
    let ask = wire::LayerFindLayerRequest { job: named, layer: "b".to_owned() };
    let found: wire::LayerFindLayerResponse = client.ok("job.LayerInterface/FindLayer", ask).await;
    assert_eq!(found.layer.unwrap().layer_stats.unwrap().waiting_frames, 2);

    let ask = wire::JobShutdownIfCompletedRequest { job: job() };
    let _: wire::JobShutdownIfCompletedResponse =
        client.ok("job.JobInterface/ShutdownIfCompleted", ask).await;
    assert_eq!(farm.value("SELECT str_state FROM job").await, "PENDING", "frames of it wait");
}

#[tokio::test]
async fn a_layer_asks_for_what_people_set_and_refuses_what_no_host_has() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 1)], 0).await;
    let client = Client::connect(&farm).await;
    let tags = vec!["general".to_owned(), "gpu".to_owned()];
    let ask = wire::LayerSetTagsRequest { layer: layer("a"), tags };
    let _: wire::LayerSetTagsResponse = client.ok("job.LayerInterface/SetTags", ask).await;
    let ask = wire::LayerSetMinCoresRequest { layer: layer("a"), cores: -1.5 };
    let _: wire::LayerSetMinCoresResponse = client.ok("job.LayerInterface/SetMinCores", ask).await;
    let ask = wire::LayerSetMinMemoryRequest { layer: layer("a"), memory: 1 };
    let _: wire::LayerSetMinMemoryResponse = client.ok("job.LayerInterface/SetMinMemory", ask).await;
    let ask = wire::LayerSetThreadableRequest { layer: layer("a"), threadable: true };
    let _: wire::LayerSetThreadableResponse = client.ok("job.LayerInterface/SetThreadable", ask).await;
    let ask = wire::LayerSetTimeoutLluRequest { layer: layer("a"), timeout_llu: 9 };
    let _: wire::LayerSetTimeoutLluResponse = client.ok("job.LayerInterface/SetTimeoutLLU", ask).await;
    let ask = wire::LayerSetDispatchOrderRequest { layer: layer("a"), order: 7 };
    let _: wire::LayerSetDispatchOrderResponse = client.ok("job.LayerInterface/SetDispatchOrder", ask).await;
    let username = "ann".to_owned();
    let ask = wire::LayerSetStartAfterRequest { layer: layer("a"), start_after: 4_000_000_000, username };
    let _: wire::LayerSetStartAfterResponse = client.ok("job.LayerInterface/SetStartAfter", ask).await;
    let spec = "/shots/a.exr".to_owned();
    let ask = wire::LayerRegisterOutputPathRequest { layer: layer("a"), spec };
    let _: wire::LayerRegisterOutputPathResponse =
        client.ok("job.LayerInterface/RegisterOutputPath", ask).await;

    let ask = wire::LayerGetLayerRequest { id: "a".to_owned() };
    let found: wire::LayerGetLayerResponse = client.ok("job.LayerInterface/GetLayer", ask).await;
    let found = found.layer.unwrap();
    assert_eq!(found.tags, ["general", "gpu"]);
    assert_eq!((found.min_cores, found.min_memory, found.is_threadable), (-1.5, 256 << 10, true));
    assert_eq!((found.timeout_llu, found.dispatch_order, found.start_after), (9, 7, 4_000_000_000));
    assert_eq!(found.start_after_reason, "set by ann");
    let ask = wire::LayerGetOutputPathsRequest { layer: layer("a") };
    let paths: wire::LayerGetOutputPathsResponse = client.ok("job.LayerInterface/GetOutputPaths", ask).await;
    assert_eq!(paths.output_paths, ["/shots/a.exr"]);

    let ask = wire::LayerSetTagsRequest { layer: layer("a"), tags: vec!["a | b".to_owned()] };
    let refused = client.call::<_, wire::LayerSetTagsResponse>("job.LayerInterface/SetTags", ask).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let ask = wire::LayerSetMinMemoryRequest { layer: layer("a"), memory: i64::MAX };
    let refused =
        client.call::<_, wire::LayerSetMinMemoryResponse>("job.LayerInterface/SetMinMemory", ask).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let ask = wire::LayerSetTimeoutRequest { layer: layer("nothing"), timeout: 1 };
    let missing = client.call::<_, wire::LayerSetTimeoutResponse>("job.LayerInterface/SetTimeout", ask).await;
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_layer_waits_for_another_until_a_client_says_otherwise() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2), ("b", 2)], 0).await;
    let client = Client::connect(&farm).await;
    let path = "job.LayerInterface/CreateDependencyOnLayer";
    let ask = wire::LayerCreateDependOnLayerRequest { layer: layer("b"), depend_on_layer: layer("a") };
    let made: wire::LayerCreateDependOnLayerResponse = client.ok(path, ask.clone()).await;
    let depend = made.depend.unwrap();
    assert_eq!((depend.r#type, depend.active), (DependType::LayerOnLayer.into(), true));
    assert_eq!((depend.depend_er_layer.as_str(), depend.depend_on_layer.as_str()), ("b", "a"));
    let states = "SELECT string_agg(str_state, ' ' ORDER BY pk_frame) FROM frame";
    assert_eq!(farm.value(states).await, "WAITING WAITING DEPEND DEPEND");
    farm.audit().await;
    let again = client.call::<_, wire::LayerCreateDependOnLayerResponse>(path, ask).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let ask = wire::LayerGetWhatDependsOnThisRequest { layer: layer("a") };
    let on: wire::LayerGetWhatDependsOnThisResponse =
        client.ok("job.LayerInterface/GetWhatDependsOnThis", ask).await;
    assert_eq!(on.depends.unwrap().depends, std::slice::from_ref(&depend));
    let ask = wire::FrameGetWhatThisDependsOnRequest { frame: frame("b-1") };
    let of: wire::FrameGetWhatThisDependsOnResponse =
        client.ok("job.FrameInterface/GetWhatThisDependsOn", ask).await;
    assert_eq!(of.depends.unwrap().depends, std::slice::from_ref(&depend));

    let ask = DependSatisfyRequest { depend: Some(depend.clone()) };
    let _: DependSatisfyResponse = client.ok("depend.DependInterface/Satisfy", ask).await;
    assert_eq!(farm.value(states).await, "WAITING WAITING WAITING WAITING");
    let ask = DependUnsatisfyRequest { depend: Some(depend.clone()) };
    let _: DependUnsatisfyResponse = client.ok("depend.DependInterface/Unsatisfy", ask.clone()).await;
    assert_eq!(farm.value(states).await, "WAITING WAITING DEPEND DEPEND");
    let open = client.call::<_, DependUnsatisfyResponse>("depend.DependInterface/Unsatisfy", ask).await;
    assert_eq!(open.unwrap_err().code(), Code::InvalidArgument);
    let ask = wire::LayerDropDependsRequest { layer: layer("b"), target: DependTarget::External.into() };
    let _: wire::LayerDropDependsResponse = client.ok("job.LayerInterface/DropDepends", ask).await;
    assert_eq!(farm.state("b-1").await, "DEPEND", "it waits within its job");
    let ask = wire::LayerDropDependsRequest { layer: layer("b"), target: DependTarget::AnyTarget.into() };
    let _: wire::LayerDropDependsResponse = client.ok("job.LayerInterface/DropDepends", ask).await;
    assert_eq!(farm.value(states).await, "WAITING WAITING WAITING WAITING");
    farm.audit().await;
    let ask = wire::JobCreateDependencyOnJobRequest { job: job(), on_job: job() };
    let circle = client
        .call::<_, wire::JobCreateDependencyOnJobResponse>("job.JobInterface/CreateDependencyOnJob", ask)
        .await;
    assert_eq!(circle.unwrap_err().code(), Code::InvalidArgument);
    let unknown = Depend { id: "nothing".to_owned(), ..Default::default() };
    let ask = DependUnsatisfyRequest { depend: Some(unknown) };
    assert!(
        client.call::<_, DependUnsatisfyResponse>("depend.DependInterface/Unsatisfy", ask).await.is_err()
    );
}

#[tokio::test]
async fn frames_wait_for_frames_of_the_same_number_and_run_when_those_count_as_done() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2), ("b", 2)], 0).await;
    let client = Client::connect(&farm).await;
    let ask = wire::LayerCreateFrameByFrameDependRequest {
        layer: layer("b"),
        depend_layer: layer("a"),
        any_frame: false,
    };
    let _: wire::LayerCreateFrameByFrameDependResponse =
        client.ok("job.LayerInterface/CreateFrameByFrameDependency", ask).await;
    let states = "SELECT string_agg(str_state, ' ' ORDER BY pk_frame) FROM frame WHERE pk_layer = 'b'";
    assert_eq!(farm.value(states).await, "DEPEND DEPEND");
    let ask = wire::FrameMarkAsWaitingRequest { frame: frame("b-1") };
    let _: wire::FrameMarkAsWaitingResponse = client.ok("job.FrameInterface/MarkAsWaiting", ask).await;
    assert_eq!(farm.value(states).await, "WAITING DEPEND");
    let ask = wire::FrameMarkAsDependRequest { frame: frame("b-1") };
    let _: wire::FrameMarkAsDependResponse = client.ok("job.FrameInterface/MarkAsDepend", ask).await;
    assert_eq!(farm.value(states).await, "DEPEND DEPEND");
    let req = Some(wire::FrameSearchCriteria { frames: vec!["0002-a".to_owned()], ..Default::default() });
    let ask = wire::JobMarkDoneFramesRequest { job: job(), req };
    let _: wire::JobMarkDoneFramesResponse = client.ok("job.JobInterface/MarkDoneFrames", ask).await;
    assert_eq!(farm.value(states).await, "DEPEND WAITING");
    let ask = wire::JobGetDependsRequest { job: job() };
    let depends: wire::JobGetDependsResponse = client.ok("job.JobInterface/GetDepends", ask).await;
    let depends = depends.depends.unwrap().depends;
    assert_eq!((depends.len(), depends[0].r#type), (1, DependType::FrameByFrame.into()));
    let ask = DependSatisfyRequest { depend: Some(depends[0].clone()) };
    let _: DependSatisfyResponse = client.ok("depend.DependInterface/Satisfy", ask).await;
    assert_eq!(farm.value(states).await, "WAITING WAITING");
    assert_eq!(farm.value("SELECT count(*) FROM depend WHERE b_active").await, "0");
    farm.audit().await;
}

#[tokio::test]
async fn a_comment_is_added_changed_and_deleted_with_its_mark() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 1)], 0).await;
    let client = Client::connect(&farm).await;
    let comment = Comment {
        user: "ann".to_owned(),
        subject: "late".to_owned(),
        message: "two\nlines".to_owned(),
        ..Default::default()
    };
    let ask = wire::JobAddCommentRequest { job: job(), new_comment: Some(comment.clone()) };
    let _: wire::JobAddCommentResponse = client.ok("job.JobInterface/AddComment", ask).await;
    assert_eq!(farm.value("SELECT b_comment FROM job").await, "true");
    let listed = async || {
        let ask = wire::JobGetCommentsRequest { job: job() };
        let listed: wire::JobGetCommentsResponse = client.ok("job.JobInterface/GetComments", ask).await;
        listed.comments.unwrap().comments
    };
    let kept = listed().await.remove(0);
    assert_eq!((kept.user.as_str(), kept.message.as_str()), ("ann", "two\nlines"));
    let ask = CommentSaveRequest { comment: Some(Comment { message: "one".to_owned(), ..kept.clone() }) };
    let _: CommentSaveResponse = client.ok("comment.CommentInterface/Save", ask).await;
    assert_eq!(listed().await[0].message, "one");
    let long = Comment { message: "x".repeat(4_001), ..comment };
    let ask = wire::JobAddCommentRequest { job: job(), new_comment: Some(long) };
    let refused = client.call::<_, wire::JobAddCommentResponse>("job.JobInterface/AddComment", ask).await;
    assert!(refused.unwrap_err().message().contains("at most 4000 fit"));
    let ask = CommentDeleteRequest { comment: Some(kept) };
    let _: CommentDeleteResponse = client.ok("comment.CommentInterface/Delete", ask.clone()).await;
    assert_eq!(farm.value("SELECT b_comment FROM job").await, "false");
    let gone = client.call::<_, CommentDeleteResponse>("comment.CommentInterface/Delete", ask).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}
