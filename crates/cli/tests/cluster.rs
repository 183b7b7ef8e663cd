//! Several servers of one farm on one PostgreSQL database: every server answers, one of them owns the farm, and another
//! takes over when that one is killed, cut off from the database, drained or stopped.

use crate::database;
use crate::support::cluster::{Server, worker};
use crate::support::port::KillOnDrop;
use crate::support::proxy::{Behind, Proxy};
use crate::support::{self, show, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A command of an administrator for whichever of these servers answers.
fn at(of: &Server, token: &str, servers: &[&Server], args: &[&str]) -> Command {
    let mut command = of.farm.command(args);
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    command.env("WINDLASS_SERVER", addresses.join(",")).env("WINDLASS_TOKEN", token);
    command
}

fn lines(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

#[test]
fn every_server_answers_and_another_one_takes_over() {
    let Some(store) = database::database() else { return };
    let mut one = Server::start("one", &store);
    assert_eq!(one.owner().as_deref(), Some("one"));
    let token = one.ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let two = Server::start("two", &store);
    assert_eq!(two.owner().as_deref(), Some("one"));
    // A worker that asks the wrong one first is told where to go.
    let _worker = worker(&one, "w1", &[&two, &one]);
    // All goes through the server that stands by.
    assert_eq!(two.ok(&["run", "--", "echo", "hi"]), "hi\n");
    let long = two.ok(&["run", "--", "sh", "-c", "seq 1 100000; exit 0"]);
    assert_eq!(long.lines().count(), 100_000);
    assert_eq!(two.run(&["run", "--", "sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(two.json(&["jobs"]).as_array().unwrap().len(), 3);
    assert_eq!(two.ok(&["logs", "1.0", "--stdout"]), "hi\n");
    two.ok(&["queue", "set", "q", "--weight", "3"]);
    assert_eq!(one.json(&["queue", "show", "q"])["weight"], json!(3));
    let refused = two.run(&["job", "show", "99"]);
    assert!(show(&refused).contains("there is no job 99"), "{}", show(&refused));
    // A run through the list of both goes on over the end of the owner, and each line is told once.
    let gate = one.farm.work().join("go");
    let wait = format!("echo before; while [ ! -e {} ]; do sleep 0.01; done; echo after", gate.display());
    let mut run = at(&two, &token, &[&two, &one], &["run", "--", "sh", "-c", &wait]);
    let mut run = KillOnDrop(run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut out = lines(&mut run.0);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    let queued = two.ok(&["submit", "--quiet", "--after", "4", "--", "echo", "later"]);
    one.end("KILL");
    two.await_owner("two");
    std::fs::write(&gate, "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "after\n");
    assert!(run.0.wait().unwrap().success());
    two.ok(&["job", "wait", queued.trim()]);
    assert_eq!(two.json(&["job", "show", "4"])["counts"]["succeeded"], json!(1));
    assert_eq!(two.json(&["job", "tasks", "4"])[0]["attempt"], json!(1), "it was not started again");
    assert_eq!(two.json(&["queue", "show", "q"])["weight"], json!(3));
    // The first one is back, and stands by until the other is drained.
    one.start_again();
    assert_eq!(one.owner().as_deref(), Some("two"));
    one.ok(&["scheduler", "drain", "two"]);
    two.await_owner("one");
    assert_eq!(one.ok(&["run", "--", "echo", "hi"]), "hi\n");
    assert!(two.ok(&["scheduler", "list"]).contains("stands by, drained"));
    two.ok(&["scheduler", "resume", "two"]);
    // A server that ends in order gives it up at once.
    one.end("TERM");
    two.await_owner("two");
    assert_eq!(two.ok(&["run", "--", "echo", "hi"]), "hi\n");
    // Debug lines and statements come and go by signals.
    let pid = two.process_id();
    support::kill(pid, "USR2");
    wait_until("statements are logged", || two.log().contains("DEBUG tokio_postgres"));
    support::kill(pid, "USR2");
    wait_until("they are not logged", || two.log().contains("a signal set the log back"));
    let unknown = two.run(&["scheduler", "drain", "three"]);
    assert!(show(&unknown).contains("no server of this farm is named 'three'"), "{}", show(&unknown));
}

/// A way to the database that can be cut, and the address by it.
fn cut_off(store: &str) -> (Proxy, String) {
    let (database, rest) = store.split_once("@/").unwrap().1.split_once('?').unwrap();
    let dir = rest.split('&').find_map(|pair| pair.strip_prefix("host=")).unwrap();
    let proxy = Proxy::new(Behind::Unix(PathBuf::from(dir).join(".s.PGSQL.5432")));
    let address = format!("postgres://{}@{}/{database}", database::USER, proxy.address);
    (proxy, address)
}

#[test]
fn an_owner_that_is_cut_off_from_the_database_lets_its_workers_go() {
    let Some(store) = database::database() else { return };
    let (way, address) = cut_off(&store);
    let one = Server::start("one", &address);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let gate = one.farm.work().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let job = two.ok(&["submit", "--quiet", "--", "sh", "-c", &wait]);
    let job = job.trim();
    wait_until("it runs", || two.json(&["job", "show", job])["counts"]["running"] == json!(1));
    way.down();
    two.await_owner("two");
    wait_until("the worker is with the other", || {
        two.json(&["worker", "list"])[0]["connected"] == json!(true)
    });
    assert!(
        one.log().contains("the connection of worker 'w1' ended: the server does not reach its database"),
        "{}",
        one.log()
    );
    std::fs::write(&gate, "").unwrap();
    two.ok(&["job", "wait", job]);
    assert_eq!(two.json(&["job", "tasks", job])[0]["attempt"], json!(1));
    assert!(!one.log().contains("stands by"), "it does not know yet\n{}", one.log());
    way.up();
    wait_until("it stands by", || one.log().contains("this server stands by, and running tasks go on"));
    one.await_owner("two");
    assert_eq!(one.ok(&["run", "--", "echo", "hi"]), "hi\n");
}

#[test]
fn a_database_that_was_away_leaves_the_farm_to_its_owner_and_tasks_run_on() {
    let database = match database::Cluster::start(&["fsync=off"]) {
        Ok(database) => database,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    let store = database.database();
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let gate = one.farm.work().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done; echo done", gate.display());
    let job = two.ok(&["submit", "--quiet", "--", "sh", "-c", &wait]);
    let job = job.trim();
    wait_until("it runs", || two.json(&["job", "show", job])["counts"]["running"] == json!(1));
    // A request that waits for the owner is a row that the crash takes.
    let mut waits = two.command(&["job", "wait", job]);
    let mut waits = KillOnDrop(waits.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let name = store.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    let waiting = "SELECT count(*) FROM requests WHERE answered IS NULL";
    wait_until("its request waits for the owner", || database.sql(name, waiting) == "1");
    database.crash();
    wait_until("the worker is let go", || {
        one.log().contains("ended: the server does not reach its database")
    });
    // The task ends while nobody can write it down.
    std::fs::write(&gate, "").unwrap();
    database.start_again();
    two.ok(&["job", "wait", job]);
    assert!(waits.0.wait().unwrap().success(), "the request was left there again");
    assert_eq!(two.json(&["job", "tasks", job])[0]["attempt"], json!(1));
    assert_eq!(two.ok(&["logs", &format!("{job}.0"), "--stdout"]), "done\n");
    assert_eq!(two.owner().as_deref(), Some("one"), "{}", two.log());
    assert_eq!(two.ok(&["run", "--", "echo", "hi"]), "hi\n");
    for server in [&one, &two] {
        assert!(!server.log().contains("panicked"), "{}", server.log());
        let told =
            server.log().lines().filter(|line| line.contains("ERROR") || line.contains("WARN")).count();
        assert!(told < 60, "{told} lines of trouble\n{}", server.log());
    }
}

#[test]
fn a_standby_of_the_database_that_is_promoted_is_found_and_nothing_confirmed_is_lost() {
    let started = database::Cluster::start(&["fsync=off"]);
    let pair = started.and_then(|primary| primary.synchronous_standby().map(|standby| (primary, standby)));
    let (primary, standby) = match pair {
        Ok(pair) => pair,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    let (first, second) = (primary.dir().display().to_string(), standby.dir().display().to_string());
    let store = primary.database().replace(&first, &format!("{first},{second}"));
    let one = Server::start("one", &store);
    let two = Server::start("two", &store);
    let _worker = worker(&one, "w1", &[&one, &two]);
    let gate = one.farm.work().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done; echo done", gate.display());
    let running = two.ok(&["submit", "--quiet", "--", "sh", "-c", &wait]);
    wait_until("it runs", || two.json(&["job", "show", running.trim()])["counts"]["running"] == json!(1));
    let after = format!("--after={}", running.trim());
    let confirmed: Vec<String> = (0..20)
        .map(|n| [&one, &two][n % 2].ok(&["submit", "--quiet", &after, "--", "true"]).trim().to_owned())
        .collect();
    primary.crash();
    standby.sql("postgres", "SELECT pg_promote()");
    std::fs::write(&gate, "").unwrap();
    wait_until("a server owns the farm", || two.owner().is_some() && two.run(&["jobs"]).status.success());
    for job in confirmed.iter().map(String::as_str).chain([running.trim()]) {
        two.ok(&["job", "wait", job]);
    }
    assert_eq!(two.json(&["job", "tasks", running.trim()])[0]["attempt"], json!(1));
    assert_eq!(one.ok(&["run", "--", "echo", "hi"]), "hi\n");
}

/// A task that notes that it runs twice at once, or that more tasks run than the workers have cpus.
const AUDITED: &str = r#"exec 9>locks/{}; flock -n 9 || { echo {} runs twice >> wrong; exit 1; }
    for slot in 0 1 2 3 4 5; do
        exec 8>slot$slot; if flock -n 8; then echo {}; sleep 0.2; exit; fi
    done; echo {} has no cpu >> wrong; exit 1"#;

/// Runs a command in the background and gathers the lines that it prints.
fn listen(mut command: Command) -> (KillOnDrop, Arc<Mutex<Vec<String>>>) {
    let mut process = KillOnDrop(command.stdout(Stdio::piped()).spawn().unwrap());
    let (told, output) = (Arc::<Mutex<Vec<String>>>::default(), lines(&mut process.0));
    let gathered = told.clone();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            gathered.lock().unwrap().push(line);
        }
    });
    (process, told)
}

#[test]
fn a_server_that_stands_by_tells_each_start_and_end_once() {
    let Some(store) = database::database() else { return };
    let (one, two) = (Server::start("one", &store), Server::start("two", &store));
    let token = one.ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let _worker = worker(&one, "w1", &[&two, &one]);
    let gate = one.farm.work().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let before = two.ok(&["submit", "--quiet", "--", "sh", "-c", &wait]);
    let after = format!("--after={}", before.trim());
    let job = two.ok(&["submit", "--quiet", &after, "--array", "1-20", "--", "true"]);
    let job = job.trim();
    let (mut listening, events) = listen(at(&two, &token, &[&two], &["events", job, "-o", "jsonl"]));
    wait_until("events are told", || {
        one.ok(&["job", "hold", job]);
        two.ok(&["job", "release", job]);
        !events.lock().unwrap().is_empty()
    });
    std::fs::write(&gate, "").unwrap();
    two.ok(&["job", "wait", job]);
    assert!(listening.0.wait().unwrap().success(), "{}", two.log());
    let is_end = |line: &String| serde_json::from_str::<Value>(line).unwrap()["job"]["state"] == "succeeded";
    wait_until("the end of the job is read", || events.lock().unwrap().iter().any(is_end));
    let told = || {
        // A worker that is cut off for a while has the task again, in another attempt.
        let mut told = BTreeMap::<(u64, u64, String), u32>::new();
        for line in events.lock().unwrap().iter() {
            let event: Value = serde_json::from_str(line).unwrap();
            for task in event["tasks"]["tasks"].as_array().into_iter().flatten() {
                let [index, attempt] = ["index", "attempt"].map(|name| task[name].as_u64().unwrap());
                let key = (index, attempt, task["state"].as_str().unwrap().to_owned());
                *told.entry(key).or_default() += 1;
            }
        }
        told
    };
    let count = |state: &str| told().keys().filter(|(_, _, is)| is == state).count();
    let why = || format!("{:?}\n{}\n{}", told(), one.log(), two.log());
    assert!(count("running") >= 20 && count("succeeded") == 20, "{}", why());
    assert!(told().values().all(|times| *times == 1), "{}", why());
}

#[test]
fn a_task_lends_its_cpus_while_it_waits_by_a_server_that_stands_by() {
    let Some(store) = database::database() else { return };
    let (one, two) = (Server::start("one", &store), Server::start("two", &store));
    let token = one.ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let _worker = worker(&one, "w1", &[&two, &one]);
    // Both cpus of the only worker are taken by tasks that wait for jobs of their own.
    let nested = format!("{} run --quiet --cwd / -- echo nested", support::windlass());
    let args = ["run", "--quiet", "--array", "1-2", "--env", "WINDLASS_TOKEN", "--", "sh", "-c", &nested];
    let output = at(&two, &token, &[&two], &args).output().unwrap();
    assert!(output.status.success(), "{}\n{}\n{}", show(&output), one.log(), two.log());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "nested\nnested\n");
    assert_eq!(two.json(&["workers"])[0]["booked"]["cpus"], json!(0.0));
}

#[test]
fn three_servers_of_which_one_is_killed_again_and_again_lose_and_double_nothing() {
    const TASKS: usize = 600;
    let Some(store) = database::database() else { return };
    let mut servers = ["one", "two", "three"].map(|name| Server::start(name, &store));
    let token = servers[0].ok(&["token", "create", "--role", "admin"]).trim().to_owned();
    let names = ["w0", "w1", "w2"];
    let all = servers.each_ref();
    let _workers = names.map(|name| worker(all[0], name, &all));
    let work = servers[0].farm.work();
    std::fs::create_dir(work.join("locks")).unwrap();
    let array = format!("1-{TASKS}");
    let args = ["run", "--quiet", "--array", &array, "--", "sh", "-c", AUDITED];
    let run = at(all[0], &token, &all, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = || std::fs::read_dir(work.join("locks")).unwrap().count();
    for (kills, victim) in [0, 1, 2, 0, 1].into_iter().enumerate() {
        wait_until("more tasks began", || begun() >= TASKS * (kills + 1) / 7);
        servers[victim].end("KILL");
        servers[victim].start_again();
    }
    assert!(begun() < TASKS, "the work ended before the last server was killed");
    let output = run.wait_with_output().unwrap();
    let logs = || servers.each_ref().map(Server::log).join("\n==\n");
    assert!(output.status.success(), "{}\n{}", show(&output), logs());
    let wrong = std::fs::read_to_string(work.join("wrong")).unwrap_or_default();
    assert_eq!(wrong, "", "{}", logs());
    let mut told: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|n| n.parse().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, (1..=TASKS).collect::<Vec<_>>(), "each task's output is told once");
    let counts = servers[2].json(&["job", "show", "1"])["counts"].clone();
    assert_eq!(counts["succeeded"], json!(TASKS), "{counts}");
}
