//! What monitors of the farm call: groups, shows, subscriptions, allocations, hosts, procs, limits and services.

use crate::farm::{Client, Farm, farm};
use tonic::Code;
use windlass_cuebot::generated::comment::Comment;
use windlass_cuebot::generated::{facility, host, job as wire, limit, service, show, subscription};

/// A host of this machine at which no RQD listens.
const HOST: &str = "127.0.0.9";
/// Another show, with figures that no call here may write, right or wrong.
const OTHERS: &str = "
INSERT INTO show (pk_show, str_name) VALUES ('OTHER', 'other');
INSERT INTO folder (pk_folder, pk_show, str_name, pk_dept) VALUES ('OFOLDER', 'OTHER', 'other', 'DEPT');
INSERT INTO point (pk_point, pk_dept, pk_show) VALUES ('OPOINT', 'DEPT', 'OTHER');
INSERT INTO subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst, int_cores)
VALUES ('OSUB', 'ALLOC', 'OTHER', 700, 700, 300);
UPDATE folder_resource SET int_cores = 500 WHERE pk_folder = 'OFOLDER';
UPDATE point SET int_cores = 900 WHERE pk_point = 'OPOINT'";

async fn others(farm: &Farm) -> String {
    farm.value(
        "SELECT s.int_cores || ' ' || f.int_cores || ' ' || p.int_cores FROM subscription s, folder_resource f, point p
          WHERE s.pk_subscription = 'OSUB' AND f.pk_folder = 'OFOLDER' AND p.pk_point = 'OPOINT'",
    )
    .await
}

fn group(id: &str) -> Option<wire::Group> {
    Some(wire::Group { id: id.to_owned(), ..Default::default() })
}

fn the_host() -> Option<host::Host> {
    Some(host::Host { id: HOST.to_owned(), ..Default::default() })
}

async fn new_group(client: &Client, parent: &str, name: &str) -> wire::Group {
    let ask = wire::GroupCreateSubGroupRequest { group: group(parent), name: name.to_owned() };
    let made: wire::GroupCreateSubGroupResponse = client.ok("job.GroupInterface/CreateSubGroup", ask).await;
    made.group.unwrap()
}

#[tokio::test]
async fn a_job_that_moves_takes_its_cores_along_and_no_figure_of_others_changes() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    farm.job(&[("a", 2)], 0).await;
    farm.book("a-1", HOST, "p1").await;
    farm.run(OTHERS).await;
    let client = Client::connect(&farm).await;
    let sub = new_group(&client, "FOLDER", "sub").await;
    assert_eq!((sub.level, sub.parent_id.as_str(), sub.max_cores), (1, "FOLDER", -1.0));
    let ask = wire::GroupSetMaxCoresRequest { group: group(&sub.id), max_cores: 2.5 };
    let _: wire::GroupSetMaxCoresResponse = client.ok("job.GroupInterface/SetMaxCores", ask).await;
    let ask = wire::GroupSetDefJobPriorityRequest { group: group(&sub.id), priority: 77 };
    let _: wire::GroupSetDefJobPriorityResponse =
        client.ok("job.GroupInterface/SetDefaultJobPriority", ask).await;
    let moved = wire::Job { id: "J".to_owned(), ..Default::default() };
    let ask = wire::JobSetGroupRequest { job: Some(moved.clone()), group_id: sub.id.clone() };
    let _: wire::JobSetGroupResponse = client.ok("job.JobInterface/SetGroup", ask).await;
    farm.audit().await;
    let ask = wire::GroupFindGroupRequest { show: "testing".to_owned(), name: "sub".to_owned() };
    let found: wire::GroupFindGroupResponse = client.ok("job.GroupInterface/FindGroup", ask).await;
    let found = found.group.unwrap();
    let stats = found.group_stats.unwrap();
    assert_eq!((found.max_cores, stats.pending_jobs, stats.reserved_cores), (2.5, 1, 1.0));
    let ask = wire::GroupGetJobsRequest { group: group(&sub.id) };
    let listed: wire::GroupGetJobsResponse = client.ok("job.GroupInterface/GetJobs", ask).await;
    assert_eq!(listed.jobs.unwrap().jobs[0].priority, 77, "the group's default");
    let ask = wire::GroupReparentJobsRequest {
        group: group("OFOLDER"),
        jobs: Some(wire::JobSeq { jobs: vec![moved.clone()] }),
    };
    let refused =
        client.call::<_, wire::GroupReparentJobsResponse>("job.GroupInterface/ReparentJobs", ask).await;
    assert!(refused.unwrap_err().message().contains("not one of the show of job"));

    let ask = wire::GroupDeleteRequest { group: group(&sub.id) };
    let refused = client.call::<_, wire::GroupDeleteResponse>("job.GroupInterface/Delete", ask.clone()).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let jobs = Some(wire::JobSeq { jobs: vec![moved] });
    let back = wire::GroupReparentJobsRequest { group: group("FOLDER"), jobs };
    let _: wire::GroupReparentJobsResponse = client.ok("job.GroupInterface/ReparentJobs", back).await;
    let _: wire::GroupDeleteResponse = client.ok("job.GroupInterface/Delete", ask).await;
    farm.audit().await;
    assert_eq!(others(&farm).await, "300 500 900");
}

#[tokio::test]
async fn groups_stay_a_tree_and_a_show_is_one_answer() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2)], 0).await;
    let client = Client::connect(&farm).await;
    let sub = new_group(&client, "FOLDER", "sub").await;
    let deep = new_group(&client, &sub.id, "deep").await;
    assert_eq!(deep.level, 2);
    for (moved, parent) in [("FOLDER", sub.id.as_str()), (sub.id.as_str(), deep.id.as_str())] {
        let ask = wire::GroupSetGroupRequest { group: group(moved), parent_group: group(parent) };
        let refused = client.call::<_, wire::GroupSetGroupResponse>("job.GroupInterface/SetGroup", ask).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{moved} to {parent}");
    }
    let groups = Some(wire::GroupSeq { groups: vec![deep.clone()] });
    let ask = wire::GroupReparentGroupsRequest { group: group("FOLDER"), groups };
    let _: wire::GroupReparentGroupsResponse = client.ok("job.GroupInterface/ReparentGroups", ask).await;
    let ask = wire::GroupGetGroupRequest { id: deep.id };
    let found: wire::GroupGetGroupResponse = client.ok("job.GroupInterface/GetGroup", ask).await;
    assert_eq!(found.group.unwrap().level, 1);
    let again = wire::GroupCreateSubGroupRequest { group: group("FOLDER"), name: "deep".to_owned() };
    let again =
        client.call::<_, wire::GroupCreateSubGroupResponse>("job.GroupInterface/CreateSubGroup", again).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let of_show = Some(show::Show { id: "SHOW".to_owned(), ..Default::default() });
    let ask = show::ShowGetJobWhiteboardRequest { show: of_show.clone(), fresh: false };
    let tree: show::ShowGetJobWhiteboardResponse =
        client.ok("show.ShowInterface/GetJobWhiteboard", ask).await;
    let top = tree.whiteboard.unwrap();
    assert_eq!((top.name.as_str(), top.jobs[0].as_str()), ("testing", "J"));
    assert_eq!(top.inline_jobs[0].name, "testing-s-u_j");
    let names: Vec<String> =
        top.groups.unwrap().nested_groups.into_iter().map(|nested| nested.name).collect();
    assert_eq!(names, ["deep", "sub"]);
    let ask = show::ShowGetGroupsRequest { show: of_show };
    let all: show::ShowGetGroupsResponse = client.ok("show.ShowInterface/GetGroups", ask).await;
    assert_eq!(all.groups.unwrap().groups.len(), 3);
}

#[tokio::test]
async fn a_show_is_made_with_its_group_and_gets_and_loses_a_subscription() {
    let Some(farm) = farm().await else { return };
    let client = Client::connect(&farm).await;
    let path = "show.ShowInterface/CreateShow";
    let ask = show::ShowCreateShowRequest { name: "film".to_owned() };
    let made: show::ShowCreateShowResponse = client.ok(path, ask.clone()).await;
    let made = made.show.unwrap();
    assert!(!made.scheduler_managed, "an operator says so first");
    let again = client.call::<_, show::ShowCreateShowResponse>(path, ask).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let ask = show::ShowSetDefaultMaxCoresRequest { show: Some(made.clone()), max_cores: 12.0 };
    let _: show::ShowSetDefaultMaxCoresResponse =
        client.ok("show.ShowInterface/SetDefaultMaxCores", ask).await;
    let ask = show::ShowGetRootGroupRequest { show: Some(made.clone()) };
    let root: show::ShowGetRootGroupResponse = client.ok("show.ShowInterface/GetRootGroup", ask).await;
    assert_eq!(root.group.unwrap().name, "film");
    let path = "show.ShowInterface/CreateSubscription";
    let ask = show::ShowCreateSubscriptionRequest {
        show: Some(made.clone()),
        allocation_id: "ALLOC".to_owned(),
        size: 10.0,
        burst: 20.0,
    };
    let _: show::ShowCreateSubscriptionResponse = client.ok(path, ask.clone()).await;
    let again = client.call::<_, show::ShowCreateSubscriptionResponse>(path, ask).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let find = subscription::SubscriptionFindRequest { name: "local.general.film".to_owned() };
    let found: subscription::SubscriptionFindResponse =
        client.ok("subscription.SubscriptionInterface/Find", find.clone()).await;
    let found = found.subscription.unwrap();
    assert_eq!((found.size, found.burst, found.reserved_cores), (1_000, 2_000, 0));
    let ask = subscription::SubscriptionSetBurstRequest { subscription: Some(found.clone()), burst: 500 };
    let _: subscription::SubscriptionSetBurstResponse =
        client.ok("subscription.SubscriptionInterface/SetBurst", ask).await;
    let ask = show::ShowGetSubscriptionRequest { show: Some(made) };
    let all: show::ShowGetSubscriptionResponse = client.ok("show.ShowInterface/GetSubscriptions", ask).await;
    assert_eq!(all.subscriptions.unwrap().subscriptions[0].burst, 500);
    let ask = subscription::SubscriptionDeleteRequest { subscription: Some(found) };
    let _: subscription::SubscriptionDeleteResponse =
        client.ok("subscription.SubscriptionInterface/Delete", ask).await;
    let gone = client
        .call::<_, subscription::SubscriptionFindResponse>("subscription.SubscriptionInterface/Find", find)
        .await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_show_is_deleted_with_what_is_its_own_unless_it_had_jobs() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 1)], 0).await;
    let client = Client::connect(&farm).await;
    let ask = show::ShowCreateShowRequest { name: "mistyped".to_owned() };
    let made: show::ShowCreateShowResponse = client.ok("show.ShowInterface/CreateShow", ask).await;
    let made = made.show.unwrap();
    let root: show::ShowGetRootGroupResponse = client
        .ok("show.ShowInterface/GetRootGroup", show::ShowGetRootGroupRequest { show: Some(made.clone()) })
        .await;
    new_group(&client, &root.group.unwrap().id, "sub").await;
    let ask = show::ShowCreateSubscriptionRequest {
        show: Some(made.clone()),
        allocation_id: "ALLOC".to_owned(),
        size: 10.0,
        burst: 20.0,
    };
    let _: show::ShowCreateSubscriptionResponse =
        client.ok("show.ShowInterface/CreateSubscription", ask).await;
    let path = "show.ShowInterface/Delete";
    let ask = show::ShowDeleteRequest { show: Some(made) };
    let _: show::ShowDeleteResponse = client.ok(path, ask.clone()).await;
    let gone = client.call::<_, show::ShowDeleteResponse>(path, ask).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    let rows =
        "SELECT (SELECT count(*) FROM show) || ' ' || (SELECT count(*) FROM folder WHERE pk_show <> 'SHOW')
        || ' ' || (SELECT count(*) FROM subscription WHERE pk_show <> 'SHOW')";
    assert_eq!(farm.value(rows).await, "1 0 0");
    let ask =
        show::ShowDeleteRequest { show: Some(show::Show { id: "SHOW".to_owned(), ..Default::default() }) };
    let refused = client.call::<_, show::ShowDeleteResponse>(path, ask).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("stays; 'cueadmin -disable-show' hides it"), "{}", refused.message());
    farm.audit().await;
}

#[tokio::test]
async fn a_host_gets_tags_and_another_allocation_when_nothing_runs_there() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    farm.job(&[("a", 1)], 0).await;
    farm.book("a-1", HOST, "p1").await;
    let client = Client::connect(&farm).await;
    let ask = facility::FacilityGetRequest { name: "local".to_owned() };
    let place: facility::FacilityGetResponse = client.ok("facility.FacilityInterface/Get", ask).await;
    let ask = facility::AllocCreateRequest {
        name: "desk".to_owned(),
        tag: "desk".to_owned(),
        facility: place.facility,
    };
    let made: facility::AllocCreateResponse = client.ok("facility.AllocationInterface/Create", ask).await;
    let desk = made.allocation.unwrap();
    assert_eq!((desk.name.as_str(), desk.tag.as_str()), ("local.desk", "desk"));
    let hosts = Some(host::HostSeq { hosts: vec![the_host().unwrap()] });
    let give = facility::AllocReparentHostsRequest { allocation: Some(desk.clone()), hosts };
    let path = "facility.AllocationInterface/ReparentHosts";
    let refused = client.call::<_, facility::AllocReparentHostsResponse>(path, give.clone()).await;
    assert!(refused.unwrap_err().message().contains("frames run on host"));
    farm.audit().await;

    let ask = wire::FrameKillRequest {
        frame: Some(wire::Frame { id: "a-1".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let _: wire::FrameKillResponse = client.ok("job.FrameInterface/Kill", ask).await;
    farm.run("DELETE FROM proc; UPDATE host SET int_cores_idle = int_cores, int_mem_idle = int_mem").await;
    let _: facility::AllocReparentHostsResponse = client.ok(path, give).await;
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<String>>();
    let ask = host::HostAddTagsRequest { host: the_host(), tags: tags(&["gpu", "big"]) };
    let _: host::HostAddTagsResponse = client.ok("host.HostInterface/AddTags", ask).await;
    let ask = host::HostRemoveTagsRequest { host: the_host(), tags: tags(&["big", "desk"]) };
    let _: host::HostRemoveTagsResponse = client.ok("host.HostInterface/RemoveTags", ask).await;
    let (old_tag, new_tag) = ("gpu".to_owned(), "cuda".to_owned());
    let ask = host::HostRenameTagRequest { host: the_host(), old_tag, new_tag };
    let _: host::HostRenameTagResponse = client.ok("host.HostInterface/RenameTag", ask).await;
    let ask = host::HostSetThreadModeRequest { host: the_host(), mode: host::ThreadMode::All.into() };
    let _: host::HostSetThreadModeResponse = client.ok("host.HostInterface/SetThreadMode", ask).await;
    let ask = facility::AllocGetHostsRequest { allocation: Some(desk) };
    let listed: facility::AllocGetHostsResponse =
        client.ok("facility.AllocationInterface/GetHosts", ask).await;
    let listed = listed.hosts.unwrap().hosts.remove(0);
    assert_eq!(listed.tags, ["cuda", "desk"], "the allocation's tag comes with the host");
    assert_eq!(listed.thread_mode, i32::from(host::ThreadMode::All));
    assert_eq!(farm.value("SELECT str_tags FROM host").await, "desk cuda");
}

#[tokio::test]
async fn a_host_is_noted_and_forgotten_and_never_restarted() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    let client = Client::connect(&farm).await;
    let note = Comment { user: "ann".to_owned(), subject: "noisy".to_owned(), ..Default::default() };
    let ask = host::HostAddCommentRequest { host: the_host(), new_comment: Some(note) };
    let _: host::HostAddCommentResponse = client.ok("host.HostInterface/AddComment", ask).await;
    let ask = host::HostGetCommentsRequest { host: the_host() };
    let notes: host::HostGetCommentsResponse = client.ok("host.HostInterface/GetComments", ask).await;
    assert_eq!(notes.comments.unwrap().comments[0].subject, "noisy");
    let state = host::HardwareState::Repair.into();
    let ask = host::HostSetHardwareStateRequest { host: the_host(), state };
    let _: host::HostSetHardwareStateResponse = client.ok("host.HostInterface/SetHardwareState", ask).await;
    assert_eq!(farm.value("SELECT str_state FROM host_stat").await, "REPAIR");
    let ask = host::HostLockRequest { host: the_host() };
    let refused = client.call::<_, host::HostLockResponse>("host.HostInterface/RebootWhenIdle", ask).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("restarts no machine"), "{}", refused.message());
    let ask = host::HostDeleteRequest { host: the_host() };
    let _: host::HostDeleteResponse = client.ok("host.HostInterface/Delete", ask).await;
    for table in ["host", "host_stat", "host_tag", "comments"] {
        assert_eq!(farm.value(&format!("SELECT count(*) FROM {table}")).await, "0", "{table}");
    }
}

#[tokio::test]
async fn a_proc_shows_what_it_runs_and_ends_when_a_client_unbooks_it() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    farm.job(&[("a", 2)], 0).await;
    farm.book("a-1", HOST, "p1").await;
    farm.book("a-2", HOST, "p2").await;
    let client = Client::connect(&farm).await;
    let r = host::ProcSearchCriteria {
        hosts: vec![HOST.to_owned()],
        shows: vec!["testing".to_owned()],
        ..Default::default()
    };
    let ask = host::ProcGetProcsRequest { r: Some(r.clone()) };
    let listed: host::ProcGetProcsResponse = client.ok("host.ProcInterface/GetProcs", ask).await;
    let procs = listed.procs.unwrap().procs;
    assert_eq!((procs.len(), procs[0].name.clone()), (2, format!("{HOST}/1.00/0")));
    assert_eq!(procs[0].log_path, "/testing-s-u_j.0001-a.rqlog");
    let small = host::ProcSearchCriteria {
        memory_less_than: vec![windlass_cuebot::generated::criterion::GreaterThanIntegerSearchCriterion {
            value: 1_000,
        }],
        ..Default::default()
    };
    let ask = host::ProcGetProcsRequest { r: Some(small) };
    let none: host::ProcGetProcsResponse = client.ok("host.ProcInterface/GetProcs", ask).await;
    assert!(none.procs.unwrap().procs.is_empty());
    let ask = host::ProcGetFrameRequest { proc: Some(procs[0].clone()) };
    let frame: host::ProcGetFrameResponse = client.ok("host.ProcInterface/GetFrame", ask).await;
    assert_eq!(frame.frame.unwrap().id, "a-1");
    let ask = host::ProcGetLayerRequest { proc: Some(procs[0].clone()) };
    let layer: host::ProcGetLayerResponse = client.ok("host.ProcInterface/GetLayer", ask).await;
    assert_eq!(layer.layer.unwrap().layer_stats.unwrap().running_frames, 2);
    let ask = host::HostGetHostWhiteboardRequest {};
    let board: host::HostGetHostWhiteboardResponse =
        client.ok("host.HostInterface/GetHostWhiteboard", ask).await;
    let board = board.nested_hosts.unwrap().nested_hosts.remove(0);
    assert_eq!((board.idle_cores, board.procs.unwrap().nested_procs.len()), (2.0, 2));

    let ask = host::ProcUnbookRequest { proc: Some(procs[0].clone()), kill: false };
    let _: host::ProcUnbookResponse = client.ok("host.ProcInterface/Unbook", ask).await;
    assert_eq!(farm.state("a-1").await, "RUNNING", "it ends with its frame");
    assert_eq!(farm.value("SELECT b_unbooked FROM proc WHERE pk_proc = 'p1'").await, "true");
    let ask = host::ProcUnbookProcsRequest { r: Some(r), kill: true };
    let ended: host::ProcUnbookProcsResponse = client.ok("host.ProcInterface/UnbookProcs", ask).await;
    assert_eq!(ended.num_procs, 2);
    let held = "SELECT count(*) FROM proc WHERE pk_frame IS NULL";
    assert_eq!((farm.state("a-1").await.as_str(), farm.value(held).await.as_str()), ("WAITING", "2"));
    farm.audit().await;
}

#[tokio::test]
async fn a_limit_counts_frames_or_hosts_and_leaves_its_layers_when_it_goes() {
    let Some(farm) = farm().await else { return };
    farm.host(HOST).await;
    farm.job(&[("a", 2)], 0).await;
    farm.book("a-1", HOST, "p1").await;
    farm.book("a-2", HOST, "p2").await;
    let client = Client::connect(&farm).await;
    let path = "limit.LimitInterface/Create";
    let ask = limit::LimitCreateRequest { name: "nuke".to_owned(), max_value: 3, ..Default::default() };
    let made: limit::LimitCreateResponse = client.ok(path, ask.clone()).await;
    let again = client.call::<_, limit::LimitCreateResponse>(path, ask).await;
    assert_eq!(again.unwrap_err().code(), Code::AlreadyExists);
    let layer = Some(wire::Layer { id: "a".to_owned(), ..Default::default() });
    let limit_id = made.limit.unwrap().id;
    let ask = wire::LayerAddLimitRequest { layer: layer.clone(), limit_id: limit_id.clone() };
    let _: wire::LayerAddLimitResponse = client.ok("job.LayerInterface/AddLimit", ask).await;
    let find = async |name: &str| {
        let ask = limit::LimitFindRequest { name: name.to_owned() };
        let found: limit::LimitFindResponse = client.ok("limit.LimitInterface/Find", ask).await;
        found.limit.unwrap()
    };
    assert_eq!(find("nuke").await.current_running, 2);
    let ask = limit::LimitSetTypeRequest { name: "nuke".to_owned(), r#type: limit::LimitType::Host.into() };
    let _: limit::LimitSetTypeResponse = client.ok("limit.LimitInterface/SetType", ask).await;
    let ask = limit::LimitSetMaxValueRequest { name: "nuke".to_owned(), max_value: 5 };
    let _: limit::LimitSetMaxValueResponse = client.ok("limit.LimitInterface/SetMaxValue", ask).await;
    let (old_name, new_name) = ("nuke".to_owned(), "nuke_x".to_owned());
    let ask = limit::LimitRenameRequest { old_name, new_name };
    let _: limit::LimitRenameResponse = client.ok("limit.LimitInterface/Rename", ask).await;
    let found = find("nuke_x").await;
    assert_eq!((found.current_running, found.max_value), (1, 5), "one host");
    let ask = wire::LayerGetLimitsRequest { layer: layer.clone() };
    let held: wire::LayerGetLimitsResponse = client.ok("job.LayerInterface/GetLimits", ask).await;
    assert_eq!(held.limits, [found]);
    let ask = limit::LimitDeleteRequest { name: "nuke_x".to_owned() };
    let _: limit::LimitDeleteResponse = client.ok("limit.LimitInterface/Delete", ask).await;
    let ask = wire::LayerDropLimitRequest { layer, limit_id };
    let gone = client.call::<_, wire::LayerDropLimitResponse>("job.LayerInterface/DropLimit", ask).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_service_is_made_changed_and_deleted_and_the_default_stays() {
    let Some(farm) = farm().await else { return };
    let client = Client::connect(&farm).await;
    let given = service::Service {
        name: "comp".to_owned(),
        min_cores: 100,
        min_memory: 1 << 20,
        tags: vec!["general".to_owned(), "gpu".to_owned()],
        ..Default::default()
    };
    let ask = service::ServiceCreateServiceRequest { data: Some(given) };
    let made: service::ServiceCreateServiceResponse =
        client.ok("service.ServiceInterface/CreateService", ask).await;
    let made = made.service.unwrap();
    assert_eq!(made.tags, ["general", "gpu"]);
    let changed = service::Service { min_memory: 2 << 20, ..made.clone() };
    let ask = service::ServiceUpdateRequest { service: Some(changed) };
    let _: service::ServiceUpdateResponse = client.ok("service.ServiceInterface/Update", ask).await;
    let ask = service::ServiceGetServiceRequest { name: "comp".to_owned() };
    let found: service::ServiceGetServiceResponse =
        client.ok("service.ServiceInterface/GetService", ask).await;
    assert_eq!(found.service.unwrap().min_memory, 2 << 20);
    let huge = service::Service { min_memory: i64::MAX, ..made.clone() };
    let ask = service::ServiceUpdateRequest { service: Some(huge) };
    let path = "service.ServiceInterface/Update";
    let refused = client.call::<_, service::ServiceUpdateResponse>(path, ask).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    for (id, is_deleted) in [(made.id, true), ("SERVICE".to_owned(), false)] {
        let own = service::Service { id, ..Default::default() };
        let ask = service::ServiceDeleteRequest { service: Some(own) };
        let path = "service.ServiceInterface/Delete";
        let deleted = client.call::<_, service::ServiceDeleteResponse>(path, ask).await;
        assert_eq!(deleted.is_ok(), is_deleted);
    }
}
