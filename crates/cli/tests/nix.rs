//! Real Nix with `windlass nix-hook` as its build hook: clients and builders are worlds of their own on this machine. Runs as
//! root, where Nix is installed.

use crate::support::nix::{Worlds, builders, expression};
use crate::support::{self, kill, show, wait_until};
use std::fs;
use std::process::{Command, Stdio};

/// A script that shows whether another build runs in the same world at the same time.
const ALONE: &str =
    "/bin/mkdir /nix/var/busy || echo $name >> /nix/var/overlaps; /bin/sleep 0.05; /bin/rmdir /nix/var/busy;";

/// A script that waits for a file of the test.
fn until(worlds: &Worlds, file: &str) -> String {
    format!("while ! [ -e {} ]; do /bin/sleep 0.1; done;", worlds.path(file).display())
}

#[test]
fn derivations_wait_for_a_place_and_all_machines_build() {
    let Some(worlds) = Worlds::with_server("derivations_wait_for_a_place_and_all_machines_build") else {
        return;
    };
    let output =
        worlds.build("client", &expression("wide", 24, "", ALONE), &builders(&["b1", "b2", "b3"], 1));
    assert!(output.status.success(), "{}", show(&output));
    let built = worlds.built();
    assert_eq!(built.iter().sum::<usize>(), 24);
    assert!(built.iter().all(|builds| (7..=9).contains(builds)), "{built:?}");
    for world in ["b1", "b2", "b3"] {
        assert!(worlds.noted(world, "overlaps").is_empty(), "{world} has one place");
    }
    // Nix polls what is postponed every 5 s.
    assert_eq!(worlds.metric(r#"windlass_nix_tries_total{answer="postpone"}"#), 0.0);
    assert_eq!(worlds.metric(r#"windlass_nix_attempts_total{how="succeeded"}"#), 24.0);
    let jobs = worlds.farm.json(&["jobs", "--state", "succeeded", "--limit", "100"]);
    assert_eq!(jobs.as_array().map(Vec::len), Some(24));
}

#[test]
fn two_clients_share_one_place_and_take_turns() {
    let Some(worlds) = Worlds::with_server("two_clients_share_one_place_and_take_turns") else { return };
    let builders = builders(&["b1"], 1);
    let first = format!("{} {ALONE}", until(&worlds, "go"));
    let many = worlds.begin("client", &expression("many", 12, "", &first), &builders);
    wait_until("all of the first client's wait or run", || worlds.metric("windlass_nix_builds") == 12.0);
    let derivations = worlds.derivations("client2", &expression("one", 1, "", ALONE));
    let mut one = worlds.realise("client2", &derivations, &builders, true);
    let one = one.env("USER", "bob").stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the second client waits", || worlds.metric("windlass_nix_builds") == 13.0);
    let why = worlds.farm.ok(&["why", "13"]);
    assert!(why.contains("busy"), "{why}");
    fs::write(worlds.path("go"), "").unwrap();
    for client in [many, one] {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
    }
    assert!(worlds.noted("b1", "overlaps").is_empty());
    let order = worlds.noted("b1", "builds");
    let place = order.iter().position(|name| name == "one-0").unwrap();
    assert!(place <= 2, "one more of the first client's may have been on its way: {order:?}");
}

#[test]
fn a_dead_machine_delays_only_what_was_placed_there() {
    let Some(worlds) = Worlds::with_server("a_dead_machine_delays_only_what_was_placed_there") else {
        return;
    };
    fs::write(worlds.path("dead-b1"), "600").unwrap();
    let both = builders(&["b1", "b2"], 1);
    let derivations = worlds.derivations("client", &expression("four", 4, "", ALONE));
    let mut build = worlds.realise("client", &derivations, &both, true);
    let output = build.env("WINDLASS_NIX_CONNECT_MAX", "1").output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(show(&output).contains("b1 is not connected (not connected within 1 s)"), "{}", show(&output));
    assert_eq!(worlds.built(), [0, 4, 0]);
    assert_eq!(worlds.metric(r#"windlass_nix_attempts_total{how="not_connected"}"#), 1.0);
    // It is known to be dead, to other clients as well.
    let output = worlds.build("client2", &expression("more", 2, "", ALONE), &both);
    assert!(output.status.success(), "{}", show(&output));
    let tried = worlds.connections().iter().filter(|host| *host == "b1").count();
    assert_eq!(tried, 1);
}

#[test]
fn a_builder_that_fails_runs_once_and_says_why() {
    let Some(worlds) = Worlds::with_server("a_builder_that_fails_runs_once_and_says_why") else { return };
    let three = builders(&["b1", "b2", "b3"], 1);
    let output = worlds.build("client", &expression("seven", 1, "", "echo it breaks; exit 7;"), &three);
    assert_eq!(output.status.code(), Some(100), "{}", show(&output));
    assert!(show(&output).contains("failed with exit code 7"), "{}", show(&output));
    assert_eq!(worlds.built().iter().sum::<usize>(), 1);
    let derivations = worlds.derivations("client", &expression("slow", 1, "", "/bin/sleep 60;"));
    let output =
        worlds.realise("client", &derivations, &three, true).args(["--timeout", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{}", show(&output));
    let jobs = worlds.farm.json(&["jobs", "--state", "failed"]);
    assert_eq!(jobs.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_build_whose_machine_is_lost_is_built_elsewhere() {
    let Some(worlds) = Worlds::with_server("a_build_whose_machine_is_lost_is_built_elsewhere") else {
        return;
    };
    let script = "[ $(/bin/cat /nix/var/world) = b2 ] || /bin/sleep 600;";
    let build = worlds.begin("client", &expression("lost", 1, "", script), &builders(&["b1", "b2"], 1));
    let b1 = || worlds.serving("b1");
    wait_until("it is built on b1", || !worlds.noted("b1", "builds").is_empty() && !b1().is_empty());
    b1().into_iter().for_each(|pid| kill(pid, "KILL"));
    let output = build.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(show(&output).contains("lost-0 was lost on ssh://b1"), "{}", show(&output));
    assert_eq!(worlds.built(), [1, 1, 0]);
}

#[test]
fn builds_go_on_while_the_server_is_restarted() {
    let Some(mut worlds) = Worlds::with_server("builds_go_on_while_the_server_is_restarted") else { return };
    let script = until(&worlds, "go");
    let build = worlds.begin("client", &expression("on", 24, "", &script), &builders(&["b1", "b2", "b3"], 7));
    wait_until("all places are taken", || worlds.built() == [7, 7, 7]);
    // A hook that is started while the server is away leaves its build to Nix's own.
    wait_until("all others wait", || worlds.metric("windlass_nix_builds") == 24.0);
    worlds.farm.kill_server();
    worlds.farm.start();
    let booked = || {
        worlds
            .farm
            .json(&["workers"])
            .as_array()
            .unwrap()
            .iter()
            .map(|w| w["running"].as_u64().unwrap())
            .sum::<u64>()
    };
    wait_until("the places are taken up again", || booked() == 21);
    assert_eq!(worlds.built(), [7, 7, 7], "nothing was begun twice");
    fs::write(worlds.path("go"), "").unwrap();
    let output = build.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built().iter().sum::<usize>(), 24, "each ran once");
    wait_until("the places are free", || booked() == 0);
    let jobs = || worlds.farm.json(&["jobs", "--state", "succeeded"]).as_array().map(Vec::len);
    wait_until("all jobs have succeeded", || jobs() == Some(24));
}

#[test]
fn workers_take_builds_as_their_load_allows() {
    let Some(worlds) = Worlds::open("workers_take_builds_as_their_load_allows") else { return };
    let (_server, address) = worlds.serve_tcp();
    let pressure = worlds.path("pressure");
    fs::write(&pressure, stalled(0)).unwrap();
    let hog = format!("mount --bind {} /proc/pressure/memory;", pressure.display());
    let _b1 = worlds.worker("b1", &address, &hog);
    let b2 = worlds.worker("b2", &address, "");
    let ask = |args: &[&str]| worlds.farm.json(&[&["--server", &address], args].concat());
    let up = || ask(&["workers"]).as_array().unwrap().iter().filter(|w| w["load"].is_object()).count();
    wait_until("both workers report their load", || up() == 2);
    // The client names no machine: these are the farm's.
    let build = |name: &str, count| {
        let derivations = worlds.derivations("client", &expression(name, count, "", ALONE));
        let output = worlds
            .realise("client", &derivations, "", true)
            .env("WINDLASS_SERVER", &address)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", show(&output));
    };
    build("both", 8);
    let built = worlds.built();
    assert!(built[0] >= 3 && built[1] >= 3 && built.iter().sum::<usize>() == 8, "{built:?}");
    fs::write(&pressure, stalled(95)).unwrap();
    let held = || {
        let shown = ask(&["worker", "show", "b1"]);
        shown["load"]["machine"]["memory"]["full"]["avg10"].as_f64().is_some_and(|percent| percent > 90.0)
    };
    wait_until("the pressure is known", held);
    build("one", 4);
    assert_eq!(worlds.built(), [built[0], built[1] + 4, 0], "b1 is under pressure");
    fs::write(&pressure, stalled(0)).unwrap();
    // b2 as a client: Nix there holds locks that a build on b2 itself would wait for.
    let derivations = worlds.derivations("b2", &expression("own", 3, "", ALONE));
    let output =
        worlds.realise("b2", &derivations, "", true).env("WINDLASS_SERVER", &address).output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built(), [built[0] + 3, built[1] + 4, 0]);
    // A worker that takes builds runs tasks as well.
    worlds.farm.ok(&["--server", &address, "run", "--worker", "b2", "--", "true"]);
    // A build goes on without the worker that keeps room for it, and Nix has it in the end.
    let script = until(&worlds, "go");
    let derivations = worlds.derivations("b1", &expression("alone", 1, "", &script));
    let mut build = worlds.realise("b1", &derivations, "", true);
    let build = build.env("WINDLASS_SERVER", &address).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it is built on b2", || worlds.built()[1] == built[1] + 5);
    drop(b2);
    let state = fs::read(worlds.path("b2/worker/keeper.json")).unwrap();
    let keeper: serde_json::Value = serde_json::from_slice(&state).unwrap();
    kill(i32::try_from(keeper["pid"].as_i64().unwrap()).unwrap(), "KILL");
    fs::write(worlds.path("go"), "").unwrap();
    let output = build.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
}

/// A file of memory pressure.
fn stalled(percent: u32) -> String {
    let line =
        |kind: &str| format!("{kind} avg10={percent}.00 avg60={percent}.00 avg300={percent}.00 total=1000\n");
    line("some") + &line("full")
}

#[test]
fn without_a_server_all_is_as_with_nix_alone() {
    let Some(worlds) = Worlds::open("without_a_server_all_is_as_with_nix_alone") else { return };
    let output = worlds.build("client", &expression("alone", 2, "", ALONE), &builders(&["b1", "b2"], 1));
    assert!(output.status.success(), "{}", show(&output));
    let said = show(&output);
    assert!(said.contains("on 'ssh://b1'") && said.contains("Nix's own build hook is used"), "{said}");
    let output =
        worlds.build("client", &expression("alone", 1, "bad = 1;", "exit 7;"), &builders(&["b1"], 1));
    assert_eq!(output.status.code(), Some(1), "as stock: {}", show(&output));
}

#[test]
fn a_client_has_so_many_builds_and_no_more_cpus_than_there_are() {
    let test = "a_client_has_so_many_builds_and_no_more_cpus_than_there_are";
    let Some(worlds) = Worlds::with_server(test) else { return };
    let derivations = worlds.derivations("client", &expression("bound", 4, "", ALONE));
    let mut nix = worlds.realise("client", &derivations, &builders(&["b1"], 2), true);
    nix.args(["--option", "build-poll-interval", "1", "--cores", "5"]);
    let output = nix.env("WINDLASS_NIX_BUILDS_MAX", "1").output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(worlds.metric(r#"windlass_nix_tries_total{answer="postpone"}"#) >= 3.0);
    assert!(worlds.noted("b1", "overlaps").is_empty(), "one at a time");
    let job = worlds.farm.json(&["job", "show", "1"]);
    let job = if job.is_array() { job[0].clone() } else { job };
    assert_eq!(job["steps"][0]["resources"]["cpus"], 5.0, "{job}");
    let name = worlds.farm.ok(&["workers", "-o", "name"]);
    let name = name.trim();
    assert!(name.starts_with("nix:") && name.contains(":b1:"), "{name}");
    let shown = worlds.farm.json(&["worker", "show", name]);
    assert_eq!(shown["capacity"]["cpus"], 10.0, "two places of five cpus: {shown}");
    worlds.farm.ok(&["worker", "drain", name]);
}

#[test]
fn what_no_machine_could_build_is_declined_with_the_reason() {
    let Some(worlds) = Worlds::with_server("what_no_machine_could_build_is_declined_with_the_reason") else {
        return;
    };
    let kvm = expression("kvm", 1, r#"requiredSystemFeatures = [ "kvm" ];"#, ALONE);
    let output = worlds.build("client", &kvm, &builders(&["b1"], 1));
    assert!(!output.status.success());
    assert!(show(&output).contains("lacks nix.feature=kvm"), "{}", show(&output));
    let builders = "ssh://b1 x86_64-linux - 1 1\nssh://b2 x86_64-linux - 1 1 kvm kvm\n";
    let output = worlds.build("client", &kvm, builders);
    assert!(output.status.success(), "{}", show(&output));
    let output = worlds.build("client", &expression("plain", 3, "", ALONE), builders);
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built(), [3, 1, 0], "b2 is only for what asks for kvm");
}

#[test]
fn one_derivation_of_two_stores_is_built_once() {
    let Some(worlds) = Worlds::with_server("one_derivation_of_two_stores_is_built_once") else { return };
    let (expression, three) =
        (expression("same", 1, "", &until(&worlds, "go")), builders(&["b1", "b2", "b3"], 1));
    let first = worlds.begin("client", &expression, &three);
    wait_until("it is built", || worlds.built().iter().sum::<usize>() == 1);
    let second = worlds.begin("client2", &expression, &three);
    wait_until("the other waits for it", || worlds.metric("windlass_nix_joined_total") == 1.0);
    fs::write(worlds.path("go"), "").unwrap();
    for client in [first, second] {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
    }
    assert_eq!(worlds.built().iter().sum::<usize>(), 1);
}

#[test]
fn builds_wait_for_the_machine_that_has_their_large_inputs() {
    let test = "builds_wait_for_the_machine_that_has_their_large_inputs";
    let Some(worlds) = Worlds::with_server(test) else { return };
    let input = |name: &str, bytes: u32| {
        format!(
            r#"(derivation {{ name = "{name}"; system = "x86_64-linux"; builder = "/bin/sh";
               args = [ "-c" "/usr/bin/head -c {bytes} /dev/zero > $out" ]; }})"#
        )
    };
    let (large, small) = (input("large", 140_000_000), input("small", 5_000_000));
    for input in [&large, &small] {
        let output = worlds.build("client", input, &builders(&["b2"], 2));
        assert!(output.status.success(), "{}", show(&output));
    }
    let three = builders(&["b1", "b2", "b3"], 2);
    let dependants = |name: &str, input: &str| {
        let more = format!("input = {input};");
        worlds.build("client", &expression(name, 6, &more, "/bin/sleep 0.1;"), &three)
    };
    let output = dependants("far", &large);
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built(), [0, 6, 0], "it is not copied while b2 becomes free soon");
    let output = dependants("near", &small);
    assert!(output.status.success(), "{}", show(&output));
    let built = worlds.built();
    assert!(built[0] > 0 && built[1] > 6 && built[2] > 0, "what is small is copied: {built:?}");
}

#[test]
fn no_machine_is_idle_while_a_faster_one_runs_two() {
    let Some(worlds) = Worlds::with_server("no_machine_is_idle_while_a_faster_one_runs_two") else { return };
    let machines = "ssh://b1 x86_64-linux - 4 4\nssh://b2 x86_64-linux - 4 1\nssh://b3 x86_64-linux - 4 1\n";
    let build = worlds.begin("client", &expression("speed", 4, "", &until(&worlds, "go")), machines);
    wait_until("all are built at a time", || worlds.built().iter().sum::<usize>() == 4);
    let built = worlds.built();
    fs::write(worlds.path("go"), "").unwrap();
    assert!(build.wait_with_output().unwrap().status.success());
    assert_eq!(built, [2, 1, 1], "and the fast one has the second");
}

#[test]
fn a_build_that_is_cancelled_or_whose_nix_is_killed_gives_its_place_back() {
    let test = "a_build_that_is_cancelled_or_whose_nix_is_killed_gives_its_place_back";
    let Some(worlds) = Worlds::with_server(test) else { return };
    let (script, one) = (until(&worlds, "never"), builders(&["b1"], 1));
    let build = worlds.begin("client", &expression("cancel", 1, "", &script), &one);
    wait_until("it is built", || worlds.built()[0] == 1);
    worlds.farm.ok(&["job", "cancel", "1"]);
    let output = build.wait_with_output().unwrap();
    assert!(!output.status.success() && show(&output).contains("cancel"), "{}", show(&output));
    let mut build = worlds.begin("client", &expression("kill", 1, "", &script), &one);
    wait_until("it is built", || worlds.built()[0] == 2);
    build.kill().unwrap();
    build.wait().unwrap();
    let free = || worlds.farm.json(&["workers"])[0]["running"] == 0;
    wait_until("the place is free", free);
    wait_until("nothing serves any more", || worlds.serving("b1").is_empty());
}

#[test]
fn doctor_says_what_is_missing() {
    let Some(worlds) = Worlds::with_server("doctor_says_what_is_missing") else { return };
    let doctor = || {
        let words = [support::windlass(), "doctor", "nix"];
        show(&worlds.run_in("client", &words).output().unwrap())
    };
    let said = doctor();
    assert!(said.contains("has no machine that builds for Nix") && said.contains("not Windlass"), "{said}");
    let conf = worlds.path("client/etc/nix.conf");
    let settings = fs::read_to_string(&conf).unwrap();
    let hook = worlds.path("bin/windlass-nix-hook").display().to_string();
    fs::write(&conf, format!("{settings}builders = ssh://b1\nbuild-hook = {hook}\n")).unwrap();
    let said = doctor();
    assert!(said.contains("takes builds for x86_64-linux, 1 machines named here"), "{said}");
    assert!(said.contains("exit status: 0"), "{said}");
    // The settings are all that is needed.
    let derivations = worlds.derivations("client", &expression("conf", 2, "", ALONE));
    let mut nix = worlds.run_in("client", &["nix-store", "--realise", "--max-jobs", "0"]);
    let output = nix.args(&derivations).output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built(), [2, 0, 0]);
}

#[test]
fn secrets_of_nix_stay_with_nix() {
    let Some(worlds) = Worlds::with_server("secrets_of_nix_stay_with_nix") else { return };
    let conf = worlds.path("client/etc/nix.conf");
    let settings = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{settings}access-tokens = github.com=CANARY-1234\n")).unwrap();
    let output = worlds.build("client", &expression("canary", 2, "", ALONE), &builders(&["b1"], 1));
    assert!(output.status.success(), "{}", show(&output));
    assert!(!show(&output).contains("CANARY-1234"));
    for dir in ["state", "server.log"] {
        let found =
            Command::new("grep").args(["-rqa", "CANARY-1234"]).arg(worlds.path(dir)).status().unwrap();
        assert_eq!(found.code(), Some(1), "{dir}");
    }
}
