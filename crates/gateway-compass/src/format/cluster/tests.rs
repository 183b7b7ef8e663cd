use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Six hosts as a laboratory's file has them: not in the order of their names.
const FILE: &str = "switch: Switch-P12\nip0: 7\nnodes:\n  \
    taishan200--a99: {roles: [ server, monitor ], macs: [ '44:67:47:d7:6d:14', '44:67:47:d7:6d:15' ]}\n  \
    taishan200--a32: {roles: [ client ], macs: [ '44:67:47:c9:db:38' ]}\n  \
    vm-2p16g-multi-node--1: {roles: client}\n  \
    taishan200--a33: {roles: [ spare ], macs: [ '44:67:47:c9:db:39' ]}\n";

fn job(more: &Value) -> Fields {
    let mut job = json!({
        "suite": "x", "os": "openeuler", "os_version": "22.03", "my_account": "ann", "cluster": "c",
        "testbox": "hw", "arch": "aarch64", "os_arch": "aarch64", "hw": {"nr_cpu": 4}, "memory": "1g",
        "daemon": {"nfsd": {"if-role": "server"}, "ntpd": null},
        "program": {"dd": {"if-role": "client, other"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        job[key] = value.clone();
    }
    job.as_object().unwrap().clone()
}

fn split_by(file: &str, more: &Value) -> Result<Vec<Vec<CompassJob>>, String> {
    let spec = ClusterSpec::of_text(file)?;
    nodes_of(vec![job(more)], Some(&spec)).map_err(|bad| bad.to_string())
}

#[test]
fn each_node_with_a_role_of_the_job_gets_a_copy() {
    let all = split_by(FILE, &Value::Null).unwrap();
    let nodes = &all[0];
    let told = |node: &CompassJob| {
        let keys =
            ["testbox", "tbox_group", "tbox_type", "node_roles", "direct_macs", "direct_ips", "nr_nic"];
        keys.map(|key| text_of(&node.fields, key).unwrap_or_default()).join("|")
    };
    let expected = [
        "taishan200--a99|taishan200|hw|server monitor|44:67:47:d7:6d:14 44:67:47:d7:6d:15|192.168.222.7 192.168.222.8|2",
        "taishan200--a32|taishan200|hw|client|44:67:47:c9:db:38|192.168.222.9|2",
        "vm-2p16g-multi-node--1|vm-2p16g|vm|client|||2",
    ];
    assert_eq!(nodes.iter().map(told).collect::<Vec<_>>(), expected);
    for node in nodes {
        for key in ["hw", "memory", "arch"] {
            assert!(!node.fields.contains_key(key), "{key}");
        }
        assert_eq!(node.fields["os_arch"], "aarch64");
        assert_eq!(node.fields[CLUSTER_ROLES], json!(["server monitor", "client", "client"]));
    }
    assert_eq!((all.len(), nodes[2].memory), (1, 16 << 30));
}

#[test]
fn the_engine_gets_one_job_whose_steps_start_together() {
    let nodes = split_by(FILE, &Value::Null).unwrap().remove(0);
    let nodes = nodes.into_iter().map(|node| (node, BTreeSet::new())).collect();
    let spec = super::super::cluster_job(nodes, "q").unwrap();
    let steps: Vec<(&str, Option<u16>, u32)> =
        spec.steps.iter().map(|step| (step.name.as_str(), step.with, step.tasks)).collect();
    let expected = [
        ("taishan200--a99", None, 1),
        ("taishan200--a32", Some(0), 1),
        ("vm-2p16g-multi-node--1", Some(0), 1),
    ];
    assert_eq!(steps, expected);
    assert_eq!(spec.steps[1].targets, BTreeSet::from(["compass:taishan200--a32".to_owned()]));
    assert!(super::super::is_compass(&spec));
}

#[test]
fn a_matrix_and_a_cluster_are_a_cluster_job_for_each_combination() {
    let submitted = job(&json!({"matrix": {"os_version": ["a", "b"]}}));
    let spec = ClusterSpec::of_text(FILE).unwrap();
    let all = nodes_of(super::super::jobs_of(submitted).unwrap(), Some(&spec)).unwrap();
    let versions: Vec<_> =
        all.iter().map(|nodes| (nodes.len(), nodes[2].fields["os_version"].clone())).collect();
    assert_eq!(versions, [(3, json!("a")), (3, json!("b"))]);
}

#[test]
fn a_jobs_own_specification_keeps_its_order() {
    let text = br#"{"cluster": "c", "cluster_spec": {"nodes": {"zeta": {"roles": ["a"]}, "beta": {"roles": ["a", "b c"]}}}}"#;
    let mut fields = serde_json::from_slice::<Fields>(text).unwrap();
    fields.insert("section_order".to_owned(), super::super::section_order(text, false).unwrap());
    let spec = ClusterSpec::of_job(&fields).unwrap().unwrap();
    let hosts: Vec<&str> = spec.nodes.iter().map(|node| node.host.as_str()).collect();
    assert_eq!((hosts.as_slice(), spec.ip0), (["zeta", "beta"].as_slice(), 1));
    assert_eq!(spec.nodes[1].roles, ["a", "b", "c"]);
    // What is stored is read again.
    assert_eq!(ClusterSpec::of_text(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    for one in
        [json!({}), json!({"cluster": ""}), json!({"cluster": "cs-localhost"}), json!({"cluster": null})]
    {
        assert_eq!(cluster_name(one.as_object().unwrap()), None, "{one}");
    }
    assert_eq!(cluster_name(&fields).as_deref(), Some("c"));
}

#[test]
fn what_makes_no_cluster_is_refused_by_name() {
    let many: String = (0..65).map(|n| format!("  n{n}: {{roles: a}}\n")).collect();
    for (file, why) in [
        ("ip0: 0\nnodes: {a: {roles: b}}", "ip0 must be a number from 1 to 254"),
        ("nodes: {a/b: {roles: x}}", "invalid testbox 'a/b'"),
        ("nodes: {a: {roles: {x: y}}}", "node 'a' must be a hash, whose roles"),
        ("nodes: {a: server}", "node 'a' must be a hash, whose roles"),
        ("nodes: {a: {roles: x, macs: ['$(id)']}}", "macs of node 'a' must be a list of addresses"),
        ("nodes: [{host: a, roles: x}, {host: a, roles: x}]", "node 'a' is there twice"),
        ("ip0: 1\n", "it has no nodes"),
        ("nodes: 5\n", "it is not a cluster's YAML"),
        (&format!("nodes:\n{many}"), "more than 64 nodes"),
        (
            "ip0: 254\nnodes: {a: {roles: server, macs: ['0', '1']}}",
            "no address for all macs in 192.168.222.254",
        ),
        ("nodes: {a: {roles: spare}}", "no node of it has one of the roles server, client, other"),
    ] {
        let error = split_by(file, &Value::Null).unwrap_err();
        assert!(error.contains(why), "{file}: {error}");
    }
    let entries: Fields = (0..=1_000).map(|n| (format!("p{n}"), Value::Null)).collect();
    let node = "nodes: {a: {roles: server}, b: {roles: client}}";
    for (more, why) in [
        (json!({"daemon": null, "program": {"dd": null}}), "no daemon and no program says by if-role"),
        (json!({"monitor": {"x": {"depends-on": "y ".repeat(257)}}}), "more than 256 in the job"),
        (json!({"setup": entries}), "more than 1000 entries together"),
        (json!({"big": "x".repeat(3 << 20)}), ""),
        (json!({"target_machines": ["c"]}), "target_machines names none"),
        (json!({"cluster_spec": 5}), "expect hash: Job[cluster_spec]"),
    ] {
        let split = split_by(node, &more);
        assert_eq!(split.is_err(), !why.is_empty(), "{why}");
        let error = split.err().unwrap_or_default();
        assert!(error.contains(why), "{why}: {error}");
    }
    let big = (0..12).map(|n| format!("  n{n}: {{roles: server}}\n")).collect::<String>();
    let error = split_by(&format!("nodes:\n{big}"), &json!({"big": "x".repeat(3 << 20)})).unwrap_err();
    assert!(error.contains("more than 33554432 bytes"), "{error}");
    for bad in ["", "a/b", ".x", "a b", "a\n"] {
        assert!(check_cluster_name(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_specification_is_read_or_refused(text in "(ip0: [0-9a-]{0,4}\n)?nodes:[ \n][a-z0-9{}\\[\\]:, '\n_./-]{0,80}") {
        _ = split_by(&text, &Value::Null);
    }

    #[test]
    fn any_specification_of_a_job_is_read_or_refused(
        ip0 in prop_oneof![Just(json!(null)), Just(json!("x")), (-2i64..300).prop_map(|n| json!(n))],
        nodes in proptest::collection::btree_map("[a-z0-9-]{0,6}|[ -~]{0,6}", (0usize..4, 0usize..5), 0..9),
    ) {
        let roles = ["server", "client", "spare", "monitor"];
        let node = |(host, (role, macs)): (&String, &(usize, usize))| {
            (host.clone(), json!({"roles": [roles[*role]], "macs": vec!["0a:0b"; *macs]}))
        };
        let hosts: Fields = nodes.iter().map(node).collect();
        let fields = job(&json!({"cluster_spec": {"ip0": ip0, "nodes": hosts}}));
        let Ok(Some(spec)) = ClusterSpec::of_job(&fields) else { return Ok(()) };
        let Ok(all) = nodes_of(vec![fields], Some(&spec)) else { return Ok(()) };
        let mut addresses = BTreeSet::new();
        for job in &all[0] {
            let (role, macs) = nodes[&job.testbox.name];
            prop_assert!(role < 2, "only nodes with a role of the job have one");
            let ips = text_of(&job.fields, "direct_ips").unwrap_or_default();
            prop_assert_eq!(ips.split_whitespace().count(), macs);
            for ip in ips.split_whitespace() {
                prop_assert!(addresses.insert(ip.to_owned()), "{ip} is given twice");
            }
        }
        prop_assert_eq!(all[0].len(), nodes.values().filter(|(role, _)| *role < 2).count());
    }
}
