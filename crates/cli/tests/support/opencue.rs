//! OpenCue's tables in a database of its own, and `windlass gateway opencue` on them. A program of tests that
//! includes this file has the modules `database` and `support`.

use crate::database;
use crate::support::port::KillOnDrop;
use crate::support::windlass;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_cuebot::schema;

/// OpenCue's tables, and a directory for files.
pub struct Site {
    pub cluster: &'static database::Cluster,
    pub name: String,
    pub dir: tempfile::TempDir,
}

impl Site {
    /// The compact schema, and then these statements. `None` where there is no PostgreSQL.
    pub fn new(statements: &[&str]) -> Option<Site> {
        let cluster = database::cluster()?;
        let address = cluster.empty_database();
        let name = address.split_once("@/").unwrap().1.split_once('?').unwrap().0.to_owned();
        cluster.sql(&name, &schema::COMPACT.concat());
        statements.iter().for_each(|sql| _ = cluster.sql(&name, sql));
        Some(Site { cluster, name, dir: tempfile::tempdir().unwrap() })
    }

    /// Writes a config file with these lines besides those of the database.
    pub fn config(&self, lines: &str) -> PathBuf {
        let path = self.dir.path().join("scheduler.yaml");
        let (socket, user, name) = (self.cluster.dir().display(), database::USER, &self.name);
        let database = format!("database: {{db_host: '{socket}', db_name: {name}, db_user: {user}}}");
        std::fs::write(&path, format!("{database}\n{lines}\n")).unwrap();
        path
    }
}

/// The gateway with a config file.
pub fn gateway(config: &Path) -> Command {
    let mut command = Command::new(windlass());
    command.args(["gateway", "opencue", "--config"]).arg(config);
    command
}

/// Starts the gateway, and waits until it says this.
pub fn start_until(config: &Path, says: &str) -> KillOnDrop {
    let mut child = gateway(config).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(says) {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    // A program ends when it writes to a pipe that nobody reads.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    KillOnDrop(child)
}

pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
