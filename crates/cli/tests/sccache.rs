//! Real clients and a real build server of sccache 0.19, with `windlass gateway sccache` as their scheduler. Runs where
//! `sccache` and `sccache-dist` are in PATH or in the directory that `SCCACHE_BIN` names; docs/src/sccache.md says how to
//! install them.

use crate::support::{self, wait_until, windlass};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Compiles of one round, besides the first one, which packs the toolchain.
const COMPILES: usize = 20;
/// How many of them at a time.
const PARALLEL: usize = 8;

/// Processes that end with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

struct Site {
    dir: tempfile::TempDir,
    programs: PathBuf,
    scheduler: u16,
    client: u16,
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::var_os("SCCACHE_BIN").map(PathBuf::from);
    let dirs = own.into_iter().chain(std::env::split_paths(&path));
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Site {
    /// `None` where this machine cannot run the real programs.
    fn open(test: &str) -> Option<Site> {
        if !support::is_root(test) {
            return None;
        }
        for name in ["sccache", "sccache-dist", "bwrap", "cc"] {
            if program(name).is_none() {
                println!("SKIP {test}: {name} is not installed");
                return None;
            }
        }
        let programs = program("sccache-dist")?.parent()?.to_owned();
        let dir = tempfile::tempdir().unwrap();
        let site = Site { dir, programs, scheduler: free_port(), client: free_port() };
        let scheduler = format!(
            "public_addr = \"127.0.0.1:{}\"\nclient_auth = {{ type = \"token\", token = \"client\" }}\n\
             server_auth = {{ type = \"token\", token = \"server\" }}\n",
            site.scheduler
        );
        fs::write(site.path("scheduler.toml"), scheduler).unwrap();
        let client = format!(
            "[cache.disk]\ndir = \"{dir}/client-cache\"\n[dist]\nscheduler_url = \"http://127.0.0.1:{}\"\n\
             cache_dir = \"{dir}/client-dist\"\n[dist.auth]\ntype = \"token\"\ntoken = \"client\"\n",
            site.scheduler,
            dir = site.dir.path().display()
        );
        fs::write(site.path("client.toml"), client).unwrap();
        fs::create_dir(site.path("out")).unwrap();
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start_scheduler(&self) -> Started {
        let config = self.path("scheduler.toml");
        let mut command = Command::new(windlass());
        command.args(["gateway", "sccache", "--config"]).arg(config).arg("--state").arg(self.path("state"));
        let started = Started(command.stderr(Stdio::null()).spawn().unwrap());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.scheduler));
        wait_until("the scheduler listens", || std::net::TcpStream::connect(address).is_ok());
        started
    }

    fn start_build_server(&self) -> (Started, SocketAddr) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let config = format!(
            "cache_dir = \"{dir}/server-cache\"\npublic_addr = \"{address}\"\nscheduler_url = \"http://127.0.0.1:{}\"\n\
             builder = {{ type = \"overlay\", build_dir = \"{dir}/build\", bwrap_path = \"{}\" }}\n\
             scheduler_auth = {{ type = \"token\", token = \"server\" }}\n",
            self.scheduler,
            program("bwrap").unwrap().display(),
            dir = self.dir.path().display()
        );
        fs::write(self.path("server.toml"), config).unwrap();
        let mut command = Command::new(self.programs.join("sccache-dist"));
        command.arg("server").arg("--config").arg(self.path("server.toml"));
        let started = Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_until("the build server is a worker", || {
            self.status().is_some_and(|status| status.starts_with("{\"num_servers\":1"))
        });
        (started, address)
    }

    fn status(&self) -> Option<String> {
        let url = format!("http://127.0.0.1:{}/api/v1/scheduler/status", self.scheduler);
        let asked =
            Command::new("curl").args(["-sf", "-H", "Accept: application/json", &url]).output().ok()?;
        asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
    }

    fn sccache(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("sccache"));
        command.args(args).current_dir(self.dir.path());
        command.env("SCCACHE_CONF", self.path("client.toml")).env("SCCACHE_CACHED_CONF", self.path("cached"));
        command.env("SCCACHE_SERVER_PORT", self.client.to_string());
        command
    }

    fn said(&self, args: &[&str]) -> Output {
        self.sccache(args).output().unwrap()
    }

    /// Compiles remotely, locally after a failure, and failures, as the client counts them.
    fn stats(&self) -> (u64, u64) {
        let said = self.said(&["--show-stats", "--stats-format=json"]);
        let stats: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        let remote = stats["stats"]["dist_compiles"].as_object().unwrap().values();
        let remote = remote.map(|count| count.as_u64().unwrap()).sum();
        (remote, stats["stats"]["dist_errors"].as_u64().unwrap())
    }

    /// Starts compiles of new files, eight at a time; `xargs` ends with the last.
    fn compile_many(&self, round: &str) -> Started {
        let sccache = self.programs.join("sccache");
        let names: Vec<String> = (0..COMPILES).map(|number| format!("{round}{number}")).collect();
        names.iter().for_each(|name| write_source(self.dir.path(), name));
        fs::write(self.path(round), names.join("\n")).unwrap();
        let mut command = Command::new("xargs");
        let parallel = PARALLEL.to_string();
        command.args(["-P", &parallel, "-I{}"]).arg(sccache);
        command.args(["cc", "-O2", "-c", "{}.c", "-o", "out/{}.o"]).current_dir(self.dir.path());
        for (key, value) in self.sccache(&[]).get_envs() {
            command.env(key, value.unwrap_or_default());
        }
        Started(command.stdin(fs::File::open(self.path(round)).unwrap()).spawn().unwrap())
    }

    fn objects(&self, round: &str) -> usize {
        let here = |name: &str| name.starts_with(round) && name.ends_with(".o");
        let names = fs::read_dir(self.path("out")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| here(&name.to_string_lossy())).count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        _ = self.said(&["--stop-server"]);
    }
}

/// A file whose compile takes a part of a second.
fn write_source(dir: &Path, name: &str) {
    use std::fmt::Write as _;
    let mut text = String::from("#include <math.h>\n");
    for number in 0..120 {
        let line = "double s = {n}; for (int j = 0; j < 100; j++) s = s * x + cos(s + {n}); return s;";
        let line = line.replace("{n}", &number.to_string());
        writeln!(text, "double {name}_{number}(double x) {{ {line} }}").unwrap();
    }
    fs::write(dir.join(format!("{name}.c")), text).unwrap();
}

#[test]
fn stock_programs_compile_all_remotely_and_survive_a_kill_of_the_scheduler() {
    let Some(site) = Site::open("stock sccache") else { return };
    let scheduler = site.start_scheduler();
    let (_server, address) = site.start_build_server();
    assert!(site.said(&["--start-server"]).status.success());
    write_source(site.dir.path(), "first");
    let first = site.said(&["cc", "-O2", "-c", "first.c", "-o", "out/first.o"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    // More at a time than there are places: a stock scheduler lets some compile by themselves.
    assert!(site.compile_many("a").0.wait().unwrap().success());
    assert_eq!(site.stats(), (1 + COMPILES as u64, 0));
    let idle = "\"in_progress\":0";
    wait_until("nothing is in progress", || site.status().is_some_and(|status| status.contains(idle)));
    let mut many = site.compile_many("b");
    wait_until("some are done", || site.objects("b") > 2);
    kill_process(Pid::from_child(&scheduler.0), Signal::KILL).unwrap();
    drop(scheduler);
    let _scheduler = site.start_scheduler();
    assert!(many.0.wait().unwrap().success(), "a compile failed");
    assert_eq!(site.objects("b"), COMPILES);
    let (remote, errors) = site.stats();
    // Those that were in flight compile by themselves, and no other.
    assert!(errors <= PARALLEL as u64, "{errors} compiles were local");
    assert_eq!(remote + errors, 1 + 2 * COMPILES as u64);
    assert!(site.status().unwrap().starts_with("{\"num_servers\":1"), "{address} is known again");
}
