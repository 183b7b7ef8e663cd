//! A private PostgreSQL for tests: a cluster in a directory of its own, reached by a socket there and by no port, one for
//! each process of tests, with a database for each test. A shell starts it and waits on a pipe from this process: when
//! the process ends, however it does, the pipe closes, and the shell stops the cluster and deletes the directory.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

/// The owner of the cluster.
pub const USER: &str = "windlass";
/// A user who needs a password, and the password.
pub const LOCKED: (&str, &str) = ("locked", "sesame-7");
const TEMPLATE: &str = "template_of_tests";

/// The shell that keeps the cluster: "stop" and "start" on its input, one line on its output for each.
const KEEPER: &str = r#"
bin=$1 dir=$2
start() { "$bin/pg_ctl" -D "$dir/data" -w -t 120 -l "$dir/log" start >/dev/null 2>&1 </dev/null; echo "started $?"; }
start
while read -r word; do
    case $word in
    start) start ;;
    stop) "$bin/pg_ctl" -D "$dir/data" -w -t 120 -m fast stop >/dev/null 2>&1; echo "stopped $?" ;;
    crash) "$bin/pg_ctl" -D "$dir/data" -w -t 120 -m immediate stop >/dev/null 2>&1; echo "stopped $?" ;;
    esac
done
"$bin/pg_ctl" -D "$dir/data" -w -t 120 -m immediate stop >/dev/null 2>&1
rm -rf "$dir"
"#;

/// A running cluster.
pub struct Cluster {
    dir: PathBuf,
    bin: PathBuf,
    port: u16,
    keeper: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// What the shell runs as.
    child: Mutex<Child>,
    databases: AtomicU32,
    /// Databases are copied from the template one at a time.
    template: Mutex<bool>,
}

/// The cluster of this process. `None`, with a line that says so, where PostgreSQL is missing.
pub fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    match CLUSTER.get_or_init(|| Cluster::start(&["fsync=off", "full_page_writes=off"])) {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            println!("SKIP what needs PostgreSQL: {why}");
            None
        }
    }
}

impl Cluster {
    /// A cluster with these settings, for a test that stops or measures it.
    pub fn start(settings: &[&str]) -> Result<Cluster, String> {
        Self::start_at(settings, 5432)
    }

    /// The same, where the settings name this port, which is also in the name of the socket.
    pub fn start_at(settings: &[&str], port: u16) -> Result<Cluster, String> {
        let bin = binaries().ok_or("initdb was not found; install the package postgresql")?;
        let user = unprivileged()?;
        let dir = tempfile::Builder::new().prefix("pg").tempdir().map_err(|e| e.to_string())?.keep();
        let failed = |what: &str, why: String| format!("{what}: {why}");
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&dir, Some(uid), Some(gid))
                .map_err(|e| failed("chown", e.to_string()))?;
        }
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "-D"]);
        let made = as_user(&mut initdb, user, &dir).arg(dir.join("data")).output();
        let made = made.map_err(|e| failed("initdb", e.to_string()))?;
        if !made.status.success() {
            return Err(failed("initdb", String::from_utf8_lossy(&made.stderr).replace('\n', " ")));
        }
        configure(&dir, settings).map_err(|e| failed("configuration", e.to_string()))?;
        let cluster = Self::keep(bin, dir, port, user)?;
        let (locked, password) = LOCKED;
        cluster.sql("postgres", &format!("CREATE ROLE {locked} LOGIN PASSWORD '{password}'"));
        Ok(cluster)
    }

    /// A standby of this cluster. A commit here is confirmed once the standby has it, too.
    pub fn synchronous_standby(&self) -> Result<Cluster, String> {
        let user = unprivileged()?;
        let dir = tempfile::Builder::new().prefix("pg").tempdir().map_err(|e| e.to_string())?.keep();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&dir, Some(uid), Some(gid)).map_err(|e| format!("chown: {e}"))?;
        }
        let mut copy = self.program("pg_basebackup");
        copy.args(["--no-sync", "-R", "-X", "stream", "-c", "fast", "-D"]).arg(dir.join("data"));
        let copied = as_user(&mut copy, user, &dir).output().map_err(|e| format!("pg_basebackup: {e}"))?;
        if !copied.status.success() {
            return Err(String::from_utf8_lossy(&copied.stderr).replace('\n', " "));
        }
        let own_socket = format!("unix_socket_directories = '{}'\n", dir.display());
        let settings = std::fs::OpenOptions::new().append(true).open(dir.join("data/postgresql.conf"));
        settings.and_then(|mut file| file.write_all(own_socket.as_bytes())).map_err(|e| e.to_string())?;
        let standby = Self::keep(self.bin.clone(), dir, self.port, user)?;
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let is_there = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.sql("postgres", is_there) != "1" {
            std::thread::yield_now();
        }
        Ok(standby)
    }

    /// Starts the cluster whose files are in `dir`.
    fn keep(bin: PathBuf, dir: PathBuf, port: u16, user: Option<(u32, u32)>) -> Result<Cluster, String> {
        let failed = |what: &str, why: String| format!("{what}: {why}");
        let mut shell = Command::new("sh");
        shell.args(["-c", KEEPER, "sh"]).arg(&bin).arg(&dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = as_user(&mut shell, user, &dir)
            .process_group(0)
            .spawn()
            .map_err(|e| failed("the shell", e.to_string()))?;
        let keeper = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let cluster = Cluster {
            bin,
            port,
            keeper: Mutex::new(keeper),
            child: Mutex::new(child),
            databases: AtomicU32::new(0),
            template: Mutex::new(false),
            dir,
        };
        let answer = cluster.answer();
        if answer != "started 0" {
            let log = std::fs::read_to_string(cluster.dir.join("log")).unwrap_or_default();
            return Err(failed("it does not start", log.replace('\n', " ")));
        }
        Ok(cluster)
    }

    /// The name of a new database, a copy of the template. `install` makes the schema of the template, once.
    pub fn database_from(&self, install: impl FnOnce(&Cluster, &str)) -> String {
        let mut has_template = self.template.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*has_template {
            self.sql("postgres", &format!("CREATE DATABASE {TEMPLATE}"));
            install(self, TEMPLATE);
            *has_template = true;
        }
        let name = self.empty_name();
        // The connections that migrated end by themselves, a moment later.
        let copy = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}");
        while !self.try_sql("postgres", &copy).status.success() {
            std::thread::yield_now();
        }
        name
    }

    /// The address of a new database without any table.
    pub fn empty_database(&self) -> String {
        let name = self.empty_name();
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    fn empty_name(&self) -> String {
        format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed))
    }

    /// The address of a database, with this cluster's user.
    pub fn address(&self, database: &str) -> String {
        format!("postgres://{USER}@/{database}?host={}&port={}", self.dir.display(), self.port)
    }

    /// The directory with the socket.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs statements, and returns what they print.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.try_sql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn try_sql(&self, database: &str, sql: &str) -> std::process::Output {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database, "-c", sql]);
        psql.arg("-h")
            .arg(&self.dir)
            .arg("-p")
            .arg(self.port.to_string())
            .env_remove("PGPASSWORD")
            .output()
            .expect("psql is beside initdb")
    }

    /// A program of PostgreSQL, such as pg_dump, with the cluster's user and socket.
    pub fn program(&self, name: &str) -> Command {
        let mut program = Command::new(self.bin.join(name));
        program.args(["-U", USER, "-p", &self.port.to_string(), "-h"]).arg(&self.dir);
        program
    }

    /// Stops it, as an administrator does; clients are cut off.
    pub fn stop(&self) {
        self.tell("stop", "stopped 0");
    }

    /// Stops it as a crash does.
    pub fn crash(&self) {
        self.tell("crash", "stopped 0");
    }

    /// Starts it again.
    pub fn start_again(&self) {
        self.tell("start", "started 0");
    }

    fn tell(&self, word: &str, expected: &str) {
        writeln!(self.keeper.lock().unwrap().0, "{word}").unwrap();
        assert_eq!(self.answer(), expected);
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        _ = self.keeper.lock().unwrap().1.read_line(&mut line);
        line.trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The one of the process is never dropped; the shell sees the end of the process instead.
        let (input, _) = &mut *self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (reader, _) = std::io::pipe().expect("pipes are there");
        drop(std::mem::replace(input, ChildStdin::from(std::os::fd::OwnedFd::from(reader))));
        _ = self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).wait();
    }
}

/// Tests with several servers run beside each other, and each server has up to 15 connections.
fn configure(dir: &Path, settings: &[&str]) -> std::io::Result<()> {
    let mut text = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 1000\nshared_buffers = '64MB'\n\
         dynamic_shared_memory_type = mmap\nlog_statement = none\n",
        dir.display()
    );
    for setting in settings {
        let (name, value) = setting.split_once('=').expect("a setting is name=value");
        text.push_str(&format!("{name} = '{value}'\n"));
    }
    let append = |name: &str| std::fs::OpenOptions::new().append(true).open(dir.join("data").join(name));
    append("postgresql.conf")?.write_all(text.as_bytes())?;
    let access = std::fs::read_to_string(dir.join("data/pg_hba.conf"))?;
    let (locked, _) = LOCKED;
    std::fs::write(
        dir.join("data/pg_hba.conf"),
        format!("local all {locked} scram-sha-256\nhost all {locked} 127.0.0.1/32 scram-sha-256\n{access}"),
    )
}

fn as_user<'a>(command: &'a mut Command, user: Option<(u32, u32)>, dir: &Path) -> &'a mut Command {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command.current_dir(dir).env("HOME", dir).env_remove("PGDATA").env_remove("PGPASSWORD")
}

/// PostgreSQL refuses to run as root. `None` for the own user.
pub fn unprivileged() -> Result<Option<(u32, u32)>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|e| e.to_string())?;
    let nobody = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields[0] == "nobody").then(|| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
    });
    nobody.flatten().map(Some).ok_or("there is no user 'nobody' to run it as".to_owned())
}

/// The directory of initdb, pg_ctl and psql. Debian has them beside the path.
fn binaries() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let others = ["/usr/local/pgsql/bin", "/usr/local/bin"].map(PathBuf::from);
    let all = debian.into_iter().rev().chain(std::env::split_paths(&path)).chain(others);
    let has_all = |dir: &PathBuf| ["initdb", "pg_ctl", "psql"].iter().all(|name| dir.join(name).exists());
    all.into_iter().find(has_all)
}
