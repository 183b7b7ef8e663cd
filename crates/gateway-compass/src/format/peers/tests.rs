use super::*;
use serde_json::json;

/// The fields of node `node` of job 7, which runs on these nodes.
fn on(node: u32, roles: &[&str], sections: &Value) -> Fields {
    let mut fields = sections.as_object().unwrap().clone();
    fields.insert(CLUSTER_ROLES.to_owned(), json!(roles));
    fields.insert("node_roles".to_owned(), roles[node as usize].into());
    add_scripts(&mut fields, number(node));
    fields
}

fn number(node: u32) -> JobId {
    number_of(TaskId { job: JobId(7), index: node })
}

const MEET: &str = "update_job_vars job_stage=wait_peer ip=$ip direct_macs=\"$direct_macs\" direct_ips=\"$direct_ips\"\n\
    wait_peer_jobs 7.job_stage=wait_peer 1000000000007.job_stage=wait_peer 2000000000007.job_stage=wait_peer\n\
    update_job_vars job_stage=running";

fn nfs() -> (Value, [&'static str; 3]) {
    let sections = json!({
        "daemon": {"nfsd": {"if-role": "server", "post-script": "echo up"}, "ntpd": {"if-role": "server"}},
        "program": {"dd": {"if-role": "client", "depends-on": "nfsd"}, "sum": {"if-role": "client"}},
        "section_order": {"program": ["dd", "sum"]},
    });
    (sections, ["server", "client", "client"])
}

#[test]
fn nodes_meet_once_and_wait_for_what_they_depend_on() {
    let (sections, roles) = nfs();
    let server = on(0, &roles, &sections);
    let lines = |fields: &Fields, pointer: &str| {
        let script = Value::Object(fields.clone()).pointer(pointer).cloned().unwrap_or_default();
        script.as_str().unwrap_or_default().replace(MEET, "MEET")
    };
    let expected = [
        ("/daemon/nfsd/post-script", "echo up\nupdate_job_vars milestones=nfsd-ready"),
        (
            "/daemon/ntpd/post-script",
            "MEET\nwait_peer_jobs 1000000000007.milestones=dd-done 2000000000007.milestones=dd-done",
        ),
        ("/program/dd/pre-script", ""),
    ];
    for (pointer, script) in expected {
        assert_eq!(lines(&server, pointer), script, "{pointer}");
    }
    let client = on(1, &roles, &sections);
    let expected = [
        ("/daemon/nfsd/post-script", "echo up"),
        ("/program/dd/pre-script", "MEET\nwait_peer_jobs 7.milestones=nfsd-ready"),
        ("/program/dd/post-script", "update_job_vars milestones=dd-done"),
        ("/program/sum/pre-script", ""),
    ];
    for (pointer, script) in expected {
        assert_eq!(lines(&client, pointer), script, "{pointer}");
    }
    let jobs = cluster_jobs(&client, number(1)).unwrap();
    let expected = json!({"7": "server", "1000000000007": "client", "2000000000007": "client"});
    assert_eq!(Value::Object(jobs), expected);
}

#[test]
fn a_node_with_several_roles_meets_once_and_never_waits_for_itself() {
    let sections = json!({
        "daemon": {"nfsd": {"if-role": "server"}},
        "program": {"dd": {"if-role": "client", "depends-on": ["nfsd", "dd", "none"]}},
    });
    let both = on(0, &["server client", "server"], &sections);
    let text = Value::Object(both).to_string();
    assert_eq!(text.matches("job_stage=running").count(), 1, "{text}");
    assert!(
        !text.contains(" 7.milestones") && text.contains("1000000000007.milestones=nfsd-ready"),
        "{text}"
    );
    let other = Value::Object(on(1, &["server client", "server"], &sections)).to_string();
    assert!(other.contains("wait_peer_jobs 7.milestones=dd-done"), "{other}");
}

#[test]
fn nodes_that_depend_on_each_other_do_not_wait_for_ever() {
    let sections = json!({
        "daemon": {"a": {"if-role": "x"}, "b": {"if-role": "y"}},
        "program": {"of-a": {"if-role": "y", "depends-on": "a"}, "of-b": {"if-role": "x", "depends-on": "b"}},
    });
    for (node, program) in [(0, "of-b"), (1, "of-a")] {
        let fields = on(node, &["x", "y"], &sections);
        let script = fields["program"][program]["post-script"].as_str().unwrap();
        let (done, stays) = script.split_once('\n').unwrap();
        assert_eq!(done, format!("update_job_vars milestones={program}-done"));
        assert!(stays.starts_with("wait_peer_jobs ") && stays.ends_with("-done"), "{stays}");
    }
}

#[test]
fn entries_run_where_their_role_is() {
    let (sections, roles) = nfs();
    let client = on(1, &roles, &sections);
    let runs =
        |fields: &Fields, section: &str, name: &str| runs_here(fields, fields[section][name].as_object());
    assert!(!runs(&client, "daemon", "nfsd") && runs(&client, "program", "sum"));
    assert!(runs_here(&client, None), "what names no role runs on all nodes");
    let mut alone = client;
    alone.remove(CLUSTER_ROLES);
    assert!(runs(&alone, "daemon", "nfsd"), "a job on one machine runs all");
    let before = alone.clone();
    add_scripts(&mut alone, number(0));
    assert_eq!(alone, before);
    assert_eq!(cluster_jobs(&alone, number(0)), None);
}

#[test]
fn the_name_of_an_entry_is_one_word() {
    let sections = json!({
        "daemon": {"a; reboot": {"if-role": "x"}},
        "program": {"p": {"if-role": "y", "depends-on": "b"}, "b": {"if-role": "x", "pre-script": ["one"]}},
    });
    assert_eq!(milestone("a; reboot, $(x)"), "a__reboot____x_");
    let fields = on(0, &["x", "y"], &sections);
    assert_eq!(fields["program"]["b"]["pre-script"], json!(["one"]), "the daemon comes first");
}
