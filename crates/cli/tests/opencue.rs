//! `windlass gateway opencue` as a process: on OpenCue's tables alone, with a Windlass worker as a host, and with stock
//! clients and a stock RQD. The last runs where `rqd` and a Python with `outline` are installed, in PATH or in the
//! directory that `OPENCUE_BIN` names; docs/src/opencue.md says how to install them.

use crate::site::{Site, free_port, gateway, start_until};
use crate::support::port::{KillOnDrop, Port};
use crate::support::{self, windlass};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use windlass_cuebot::generated::job as wire;
use windlass_gateway_opencue::schema;

/// A show without frames: a job, its layer, hosts that nobody reaches, and services.
const FARM: &str = "
INSERT INTO facility (pk_facility, str_name, b_default) VALUES ('FAC', 'local', true);
INSERT INTO dept (pk_dept, str_name, b_default) VALUES ('DEPT', 'unknown', true);
INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility, b_default)
    VALUES ('ALLOC', 'local.general', 'general', 'FAC', true);
INSERT INTO show (pk_show, str_name, b_scheduler_managed) VALUES ('SHOW', 'testing', true);
INSERT INTO subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)
    VALUES ('SUB', 'ALLOC', 'SHOW', 1000000, 1000000);
INSERT INTO folder (pk_folder, pk_show, str_name, pk_dept, b_default)
    VALUES ('FOLDER', 'SHOW', 'testing', 'DEPT', true);
INSERT INTO point (pk_point, pk_dept, pk_show) VALUES ('POINT', 'DEPT', 'SHOW');
INSERT INTO service (pk_service, str_name, b_threadable, int_cores_min, int_mem_min, str_tags)
    VALUES ('SERVICE', 'default', false, 100, 262144, 'general')";
/// Counts that clients are shown.
const SHOW_STATS: &str = "INSERT INTO show_stats (pk_show) VALUES ('SHOW')";
const FRAMES: &str = "
INSERT INTO host (pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    SELECT 'host' || n, 'ALLOC', 'host' || n, 'OPEN', 6400, 6400, 134217728, 134217728 FROM generate_series(1, 100) n;
INSERT INTO host_stat (pk_host_stat, pk_host, int_mem_total, int_mem_free) SELECT pk_host, pk_host, int_mem, int_mem
    FROM host;
INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type) SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
INSERT INTO job (pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state) VALUES ('J', 'FOLDER', 'SHOW', 'FAC', 'DEPT', 'film', 'film', 's', 'u', 'PENDING');
UPDATE job_resource SET int_max_cores = 1000000;
INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min, b_threadable)
    VALUES ('L', 'J', 'beauty', 'true', '1-5000', 'Render', 'general', 262144, false);
INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'f' || n, 'L', 'J', to_char(n, 'FM0000') || '-beauty', 'WAITING', n, n FROM generate_series(1, 5000) n;
UPDATE layer_stat SET int_waiting_count = 5000, int_total_count = 5000;
UPDATE job_stat SET int_waiting_count = 5000";
const AUDIT: &str = "SELECT (SELECT count(*) FROM frame f WHERE (str_state = 'RUNNING')
        <> EXISTS (SELECT FROM proc p WHERE p.pk_frame = f.pk_frame))
    + (SELECT count(*) FROM host h WHERE int_cores - int_cores_idle <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host))
    + (SELECT count(*) FROM job_resource WHERE int_cores <> (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc))
    + (SELECT count(*) FROM layer_stat WHERE int_running_count <> (SELECT count(*) FROM proc))";

impl Site {
    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    fn run(&self, config: &Path, flags: &[&str]) -> Output {
        gateway(config).args(flags).output().unwrap()
    }

    /// Starts it, and waits until it says that it schedules.
    fn start(&self, config: &Path) -> KillOnDrop {
        start_until(config, "windlass schedules the farm")
    }

    fn until(&self, sql: &str, holds: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let answer = self.sql(sql);
            if holds(&answer) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{sql}: {answer}");
        }
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `doctor opencue` finds.
fn doctor(config: &Path) -> BTreeMap<String, (String, String)> {
    support::findings(&doctor_with(config, &[]))
}

fn doctor_with(config: &Path, flags: &[&str]) -> Output {
    let mut doctor = Command::new(windlass());
    doctor.args(["-o", "json", "doctor", "opencue", "--config"]).arg(config).args(flags);
    doctor.output().unwrap()
}

#[test]
fn tags_are_given_with_commas_and_unknown_names_are_told() {
    let Some(site) = Site::new(&[FARM, FRAMES]) else { return };
    let config = site.config("scheduler: {ignore_tags: [broken]}");
    let preview =
        site.run(&config, &["--dry-run", "--alloc_tags=testing:general,nowhere:general,testing:far"]);
    let told = err(&preview);
    assert!(preview.status.success() && told.contains("film/beauty on host"), "{told}");
    for name in ["the show nowhere", "an allocation with the tag far", "a host with the tag broken"] {
        assert!(told.contains(&format!("the settings name {name}, which the database does not")), "{told}");
    }
    assert!(!told.contains("the settings name the show testing"), "{told}");
    let preview = site.run(&config, &["--dry-run", "--manual_tags=urgent,desktop"]);
    let told = err(&preview);
    assert!(told.contains("a host with the tag desktop") && !told.contains("film/beauty"), "{told}");
    let found = doctor(&config);
    assert!(found["names"].1.contains("a host with the tag broken"), "{found:?}");
    let found = support::findings(&doctor_with(&config, &["--alloc-tags=nowhere:far", "-t", "desktop"]));
    for name in ["the show nowhere", "an allocation with the tag far", "a host with the tag desktop"] {
        assert!(found["names"].1.contains(name), "{found:?}");
    }
    let refused = doctor_with(&config, &["--dry-run"]);
    assert!(err(&refused).contains("unexpected argument '--dry-run'"), "{}", err(&refused));
    // What is logged is set as the stock scheduler takes it.
    let quiet = gateway(&config).arg("--dry-run").env("RUST_LOG", "scheduler=error").output().unwrap();
    assert!(!err(&quiet).contains("the settings name"), "{}", err(&quiet));
    let config = site.config("scheduler: {ignore_tags: [broken]}\nlogging: {level: error}");
    assert!(!err(&site.run(&config, &["--dry-run"])).contains("the settings name"));
}

#[test]
fn a_farm_is_booked_through_kills_of_the_gateway_and_metrics_tell() {
    let Some(site) = Site::new(&[FARM, FRAMES]) else { return };
    let port = free_port();
    let config = site.config(&format!("rqd: {{dry_run_mode: true}}\nqueue: {{metrics_port: {port}}}"));
    let preview = site.run(&config, &["--dry-run"]);
    assert!(preview.status.success(), "{}", err(&preview));
    assert!(err(&preview).contains("film/beauty on host"), "{}", err(&preview));
    assert_eq!(site.sql("SELECT count(*) FROM proc"), "0", "a dry run books nothing");
    let why = site.run(&config, &["--why", "film/0007-beauty"]);
    let told = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(
        told.contains("film/beauty: 5000 waiting") && told.contains("frame 0007-beauty is waiting"),
        "{told}"
    );
    assert!(told.contains("of its frames fit now"), "{told}");
    let unknown = site.run(&config, &["--why", "nothing"]);
    assert!(err(&unknown).contains("there is no job, layer or frame 'nothing'"), "{}", err(&unknown));
    let found = doctor(&config);
    for (what, part) in [
        ("schema", "V47"),
        ("hosts", "100 of 100 hosts"),
        ("triggers", "OpenCue's own count"),
        ("wake-up", "--install-wake"),
        ("shows", "testing"),
        ("units", "hundredths"),
    ] {
        assert!(found[what].1.contains(part), "{what}: {found:?}");
    }
    assert!(!found.keys().any(|what| what.starts_with("Windlass")), "no server is named: {found:?}");
    for least in [1, 1_000, 2_000] {
        let running = site.start(&config);
        site.until("SELECT count(*) FROM proc", |count| count.parse::<u32>().unwrap() >= least);
        // Killed wherever it is.
        drop(running);
        assert_eq!(site.sql(AUDIT), "0");
    }
    let mut last = site.start(&config);
    let preview = site.run(&config, &["--dry-run"]);
    assert!(preview.status.success(), "beside a gateway with the same file: {}", err(&preview));
    site.until("SELECT count(*) FROM proc", |count| count == "5000");
    assert_eq!(site.sql(AUDIT), "0");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    let pid = rustix::process::Pid::from_raw(last.0.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(last.0.wait().unwrap().success(), "it leaves in order");
}

#[test]
fn what_cannot_be_followed_is_said_with_the_reason() {
    let Some(site) = Site::new(&[]) else { return };
    let fails = |config: &Path, flags: &[&str]| {
        let output = site.run(config, flags);
        assert!(!output.status.success());
        err(&output)
    };
    let said = fails(Path::new("/nonexistent/scheduler.yaml"), &[]);
    assert!(said.contains("/nonexistent/scheduler.yaml cannot be read"), "{said}");
    let said = fails(&site.config("queue: {selfish_services: 7}"), &[]);
    assert!(said.contains("queue.selfish_services = 7: this must be a list of texts"), "{said}");
    let said = fails(&site.config("windlass: {db_pass_file: /nonexistent/password}"), &[]);
    assert!(said.contains("the password file /nonexistent/password cannot be read"), "{said}");
    let said = fails(&site.config(""), &["--alloc-tags", "general"]);
    assert!(said.contains("'general' must be SHOW:TAG"), "{said}");
    site.sql("ALTER TABLE layer DROP COLUMN ts_start_after");
    let said = fails(&site.config("queue: {worker_threads: 4}"), &[]);
    assert!(said.contains("these keys change nothing here: queue.worker_threads"), "{said}");
    assert!(said.contains("has no column layer.ts_start_after") && said.contains("V47"), "{said}");
    let other = site.dir.path().join("other.yaml");
    std::fs::write(&other, "database: {db_host: /nonexistent, db_pass: secret}").unwrap();
    let said = fails(&other, &[]);
    assert!(said.contains("/nonexistent:5432/cuebot cannot be used") && !said.contains("secret"), "{said}");
    // The Windlass server is checked beside a database that is not there.
    let workers =
        "windlass: {cuebot: {listen: '127.0.0.1:1'}, workers: {server: /nonexistent/windlass.sock}}";
    std::fs::write(&other, format!("database: {{db_host: /nonexistent}}\n{workers}\n")).unwrap();
    let found = doctor(&other);
    assert_eq!(found["database"].0, "missing", "{found:?}");
    let (state, said) = &found["Windlass server"];
    assert_eq!(state, "missing", "{found:?}");
    assert!(said.contains("/nonexistent/windlass.sock gives no answer"), "{said}");
    assert!(said.contains("'windlass server status' on its machine"), "{said}");
}

/// Where OpenCue's programs are. `None`, with a line that says so, where one is missing.
fn programs(test: &str) -> Option<PathBuf> {
    if !support::is_root(test) {
        return None;
    }
    let own = std::env::var_os("OPENCUE_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = own.into_iter().chain(std::env::split_paths(&path));
    let found = dirs.find(|dir| ["rqd", "cueadmin", "python"].iter().all(|name| dir.join(name).is_file()));
    if found.is_none() {
        println!("SKIP {test}: rqd, cueadmin and their python are not installed");
    }
    found
}

/// Submits two layers: one whose frames succeed, and one whose frame never does.
const SUBMIT: &str = r##"
import os
os.getuid = lambda: 65534
import outline, outline.cuerun
from outline.modules.shell import Shell
job = outline.Outline("stock", shot="sh01", show="testing", user="nobody")
job.add_layer(Shell("good", command=["/bin/echo", "frame", "#IFRAME#"], range="1-3", threads=1, memory="256m"))
job.add_layer(Shell("bad", command=["/bin/false"], range="1-1", threads=1, memory="256m"))
outline.cuerun.launch(job, use_pycuerun=False, os="Linux", pause=False, wait=False)
"##;
/// All of it in a network of its own, for RQD listens on a fixed port of all addresses.
const FARM_OF_ITS_OWN: &str = r#"
ip link set lo up
"$1" gateway opencue --config "$2/scheduler.yaml" >"$2/gateway.log" 2>&1 &
until grep -q 'windlass schedules' "$2/gateway.log"; do :; done
"$3/rqd" --nimbyoff -c "$2/rqd.conf" >"$2/rqd.log" 2>&1 &
until [ -e "$2/submit" ]; do sleep 0.05; done
cd "$2" && "$3/python" submit.py >"$2/submit.log" 2>&1
echo $? >"$2/submitted"
until [ -e "$2/list" ]; do sleep 0.05; done
for what in -lj -ls -lh -la -lv '-host 127.0.0.1 -lock' '-lh -lock-state LOCKED' \
    '-host 127.0.0.1 -unlock' '-scheduler-managed testing on' -ls
do
    echo "cueadmin $what"
    "$3/cueadmin" -server 127.0.0.1 -force $what
done >"$2/listed.part" 2>&1; mv "$2/listed.part" "$2/listed"
wait
"#;

#[test]
fn stock_clients_and_a_stock_host_need_nobody_else() {
    const TEST: &str = "stock OpenCue";
    let Some(programs) = programs(TEST) else { return };
    let Some(site) = Site::new(&[FARM, SHOW_STATS, schema::WAKE]) else { return };
    let dir = site.dir.path();
    let logs = dir.join("logs");
    std::fs::create_dir(&logs).unwrap();
    let cuebot = format!("{{listen: '127.0.0.1:8443', log_root: '{}', retries_max: 2}}", logs.display());
    site.config(&format!("windlass: {{cuebot: {cuebot}}}"));
    let rqd = "[Override]\nOVERRIDE_CUEBOT = 127.0.0.1\nRQD_BECOME_JOB_USER = False\nOVERRIDE_HOSTNAME = 127.0.0.1\n\
               DEFAULT_FACILITY = local\n";
    std::fs::write(dir.join("rqd.conf"), rqd).unwrap();
    std::fs::write(dir.join("submit.py"), SUBMIT).unwrap();
    let mut farm = Command::new("unshare");
    // Its processes end with it.
    farm.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", FARM_OF_ITS_OWN, "sh"]);
    farm.arg(windlass()).arg(dir).arg(&programs);
    farm.env("CUEBOT_HOSTS", "127.0.0.1").env("HOME", dir).env("USER", "nobody").env("LOGNAME", "nobody");
    let farm = KillOnDrop(farm.stdin(Stdio::null()).spawn().unwrap());
    let told = || {
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        ["gateway.log", "rqd.log", "submit.log"].map(read).join("\n==\n")
    };
    site.until("SELECT count(*) FROM host", |hosts| hosts == "1");
    std::fs::write(dir.join("submit"), "").unwrap();
    let ended = "SELECT string_agg(str_name || ' ' || str_state || ' ' || int_retries, ', ' ORDER BY str_name) FROM frame
        WHERE str_state IN ('SUCCEEDED', 'DEAD')";
    let expected = "0001-bad DEAD 2, 0001-good SUCCEEDED 0, 0002-good SUCCEEDED 0, 0003-good SUCCEEDED 0";
    site.until(ended, |frames| {
        assert!(
            !std::fs::read_to_string(dir.join("submitted")).is_ok_and(|code| code != "0\n"),
            "{}",
            told()
        );
        frames == expected
    });
    assert_eq!(site.sql("SELECT count(*) FROM proc"), "0");
    assert_eq!(
        site.sql("SELECT count(*) FROM host WHERE int_cores <> int_cores_idle OR int_mem <> int_mem_idle"),
        "0"
    );
    let log_dir = site.sql("SELECT str_log_dir FROM job");
    let log = format!("{log_dir}/testing-sh01-nobody_stock.0002-good.rqlog");
    let log = std::fs::read_to_string(&log).unwrap_or_else(|why| panic!("{log}: {why}\n{}", told()));
    assert!(log.contains("frame 2"), "{log}");
    std::fs::write(dir.join("list"), "").unwrap();
    support::wait_until("cueadmin has listed the job", || dir.join("listed").exists());
    let listed = std::fs::read_to_string(dir.join("listed")).unwrap();
    for part in
        ["-lj\ntesting-sh01-nobody_stock\n", "testing", "local.general", "default", "127.0.0.1", "LOCKED"]
    {
        assert!(listed.contains(part), "{part:?} is missing: {listed}");
    }
    assert!(!listed.contains("rror"), "{listed}");
    // The layer is mended, and its frame tried again.
    site.sql(
        "UPDATE frame SET str_state = 'WAITING' WHERE str_state = 'DEAD'; UPDATE layer SET str_cmd = 'true'",
    );
    site.until("SELECT str_state FROM job", |state| state == "FINISHED");
    drop(farm);
}

/// A call of a client of OpenCue.
fn call<Q, A>(port: u16, path: &'static str, ask: Q) -> A
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        let mut grpc = Grpc::new(address.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(tonic::Request::new(ask), path, ProstCodec::<Q, A>::default()).await;
        answer.unwrap_or_else(|status| panic!("{status:?}")).into_inner()
    })
}

/// A job of `nobody` whose frames run again once. Layers are name, range and command.
fn spec(job: &str, layers: &[(&str, &str, &str)]) -> String {
    let layers = layers.iter().map(|(name, range, command)| {
        let command = command.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!(
            "<layer name='{name}' type='Render'><cmd>{command}</cmd><range>{range}</range><chunk>1</chunk>\
             <cores>1.0</cores><threadable>False</threadable><memory>256m</memory>\
             <services><service>default</service></services></layer>"
        )
    });
    format!(
        "<spec><facility>local</facility><show>testing</show><shot>sh01</shot><user>nobody</user><uid>65534</uid>\
         <job name='{job}'><paused>False</paused><priority>1</priority><maxretries>1</maxretries>\
         <autoeat>False</autoeat><os>Linux</os><layers>{}</layers></job></spec>",
        layers.collect::<String>()
    )
}

/// A farm whose only host is a worker of two cores, without RQD.
struct WorkerFarm {
    site: Site,
    server: Port,
    agent: Option<support::port::KillOnDrop>,
    config: PathBuf,
    port: u16,
}

impl WorkerFarm {
    fn start() -> Option<WorkerFarm> {
        let site = Site::new(&[FARM, SHOW_STATS, schema::WAKE])?;
        let server = Port::open(&["--no-worker"]);
        let token = server.token(&["--role", "worker", "--worker", "box1"]);
        // Frames run as the users of the same names, and what this test submits itself as nobody.
        let worker = server.mapping_worker(&token, "box1", "2", "root=nobody,*=*");
        let dir = site.dir.path().to_owned();
        let open = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(&dir, 0o755);
        for name in ["logs", "ran"] {
            std::fs::create_dir(dir.join(name)).unwrap();
            open(&dir.join(name), 0o777);
        }
        let submitter = ["--role", "submitter", "--for-users", "nob*", "--queue", "opencue"];
        std::fs::write(dir.join("token"), server.token(&submitter)).unwrap();
        open(&dir.join("token"), 0o600);
        let (port, at, dir) = (free_port(), server.address.clone(), dir.display());
        let cuebot = format!("{{listen: '127.0.0.1:{port}', log_root: '{dir}/logs', retries_max: 2}}");
        let workers = format!(
            "{{server: '{at}', token_file: '{dir}/token', tag: 'os=linux', allocation: local.general}}"
        );
        let config = site.config(&format!("windlass:\n  cuebot: {cuebot}\n  workers: {workers}"));
        Some(WorkerFarm { site, server, agent: Some(worker), config, port })
    }

    fn submit(&self, job: &str, layers: &[(&str, &str, &str)]) {
        let ask = wire::JobLaunchSpecRequest { spec: spec(job, layers) };
        let answer: wire::JobLaunchSpecResponse = call(self.port, "/job.JobInterface/LaunchSpec", ask);
        assert_eq!(answer.names, [format!("testing-sh01-nobody_{job}")]);
    }

    fn kill(&self, job: &str) {
        let id = self.site.sql(&format!("SELECT pk_job FROM job WHERE str_name LIKE '%\\_{job}'"));
        let job = Some(wire::Job { id, ..Default::default() });
        let ask = wire::JobKillRequest { job, reason: "test".to_owned(), ..Default::default() };
        let _: wire::JobKillResponse = call(self.port, "/job.JobInterface/Kill", ask);
    }

    /// A file in the directory of a job's logs.
    fn log(&self, job: &str, file: &str) -> String {
        let dir = self.site.sql(&format!("SELECT str_log_dir FROM job WHERE str_name LIKE '%\\_{job}'"));
        let path = format!("{dir}/testing-sh01-nobody_{job}.{file}");
        std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
    }

    fn nothing_is_held(&self) {
        self.site.until("SELECT count(*) FROM proc", |count| count == "0");
        assert_eq!(self.site.sql(AUDIT), "0");
    }
}

impl Drop for WorkerFarm {
    fn drop(&mut self) {
        // The agent would start another keeper.
        drop(self.agent.take());
        if self.server.dir.join("box1/keeper.json").exists() {
            support::kill(self.server.keeper_pid("box1") as i32, "KILL");
        }
    }
}

#[test]
fn frames_run_on_a_windlass_worker_without_rqd() {
    if !support::is_root("frames on a Windlass worker") {
        return;
    }
    let Some(farm) = WorkerFarm::start() else { return };
    let site = &farm.site;
    let gateway = site.start(&farm.config);
    let is_there =
        "SELECT count(*) FROM host WHERE str_name = 'box1' AND int_cores = 200 AND str_lock_state = 'OPEN'";
    site.until(is_there, |count| count == "1");
    farm.submit(
        "ends",
        &[
            ("good", "1-3", "echo frame #IFRAME# of $CUE_SHOW by $(id -un) on $jobhost"),
            ("bad", "1", "echo about to fail; exit 3"),
        ],
    );
    let ended =
        "SELECT string_agg(str_name || ' ' || str_state || ' ' || int_retries || ' ' || int_exit_status, ', '
        ORDER BY str_name) FROM frame WHERE str_state IN ('SUCCEEDED', 'DEAD')";
    let expected =
        "0001-bad DEAD 1 3, 0001-good SUCCEEDED 0 0, 0002-good SUCCEEDED 0 0, 0003-good SUCCEEDED 0 0";
    site.until(ended, |frames| frames == expected);
    farm.nothing_is_held();
    let log = farm.log("ends", "0002-good.rqlog");
    for part in ["RenderQ JobSpec", "frame 2 of testing by nobody on box1\n", "RenderQ Job Complete"] {
        assert!(log.contains(part), "{part:?} is missing: {log}");
    }
    for file in ["0001-bad.rqlog", "0001-bad.rqlog.1"] {
        let log = farm.log("ends", file);
        assert!(log.contains("about to fail\n") && log.contains("exitStatus          3\n"), "{file}: {log}");
    }
    // A kill reaches it, and the host is free again.
    farm.submit("long", &[("stays", "1", "exec sleep 1000.6875")]);
    support::wait_until("the frame runs", || !support::processes_with("sleep 1000.6875").is_empty());
    farm.kill("long");
    support::wait_until("the frame was killed", || support::processes_with("sleep 1000.6875").is_empty());
    farm.nothing_is_held();
    let well = doctor(&farm.config);
    for (what, part) in [
        ("Windlass server", "answers"),
        ("Windlass token", "has the role submitter"),
        ("Windlass workers", "1 of 1 workers with the tag 'os=linux' take frames"),
    ] {
        assert!(well[what].0 == "ok" && well[what].1.contains(part), "{what}: {well:?}");
    }
    // A drained worker gets no frames.
    farm.server.admin(&["worker", "drain", "box1"]);
    site.until("SELECT str_lock_state FROM host", |state| state == "NIMBY_LOCKED");
    let drained = doctor(&farm.config);
    assert_eq!(drained["Windlass workers"].0, "note", "{drained:?}");
    farm.server.admin(&["worker", "resume", "box1"]);
    site.until("SELECT str_lock_state FROM host", |state| state == "OPEN");
    // The gateway has read its token already.
    let token = site.dir.path().join("token");
    for (shown, part) in [
        (farm.server.token(&["--role", "user", "--user", "ann"]), "it has the role user"),
        ("wl_0_0".to_owned(), "malformed token"),
    ] {
        std::fs::write(&token, shown).unwrap();
        let found = doctor(&farm.config);
        let (state, said) = &found["Windlass token"];
        assert!(state == "missing" && said.contains(part) && said.contains("--role submitter"), "{said}");
    }
    drop(gateway);
}

#[test]
fn windlass_and_opencue_share_a_worker_and_each_frame_ends_once_through_kills_of_the_gateway() {
    if !support::is_root("a killed gateway with a Windlass worker") {
        return;
    }
    let Some(farm) = WorkerFarm::start() else { return };
    let (site, dir) = (&farm.site, farm.site.dir.path());
    let gateway = site.start(&farm.config);
    let cores = "SELECT string_agg(int_cores || ' ' || int_cores_idle, ', ') FROM host";
    site.until(cores, |cores| cores == "200 200");
    let own = ["submit", "--cwd", "/", "--cpus", "1", "-o", "name", "--", "sleep", "1000"];
    let own = farm.server.admin(&own);
    site.until(cores, |cores| cores == "100 100");
    farm.server.admin(&["job", "cancel", own.trim()]);
    site.until(cores, |cores| cores == "200 200");
    let dir = dir.display();
    let command =
        format!("echo ran >>{dir}/ran/$CUE_FRAME; while [ ! -e {dir}/go ]; do sleep 0.1; done; exit 0");
    farm.submit("once", &[("wait", "1-6", &command)]);
    let ran = site.dir.path().join("ran");
    support::wait_until("two frames run", || support::names(&ran).len() == 2);
    // It is killed, and what runs ends while no gateway hears of it.
    drop(gateway);
    std::fs::write(site.dir.path().join("go"), "").unwrap();
    let live = ["jobs", "--state", "pending,running,held", "-o", "name"];
    support::wait_until("their jobs ended", || farm.server.admin(&live).trim().is_empty());
    assert_eq!(site.sql("SELECT count(*) FROM frame WHERE str_state = 'RUNNING'"), "2");
    let gateway = site.start(&farm.config);
    site.until("SELECT str_state FROM job", |state| state == "FINISHED");
    farm.nothing_is_held();
    assert_eq!(support::names(&ran).len(), 6);
    for name in support::names(&ran) {
        assert_eq!(std::fs::read_to_string(ran.join(&name)).unwrap(), "ran\n", "{name} ran once");
    }
    assert_eq!(site.sql("SELECT sum(int_retries) FROM frame"), "0");
    drop(gateway);
}
