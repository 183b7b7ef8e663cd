//! `windlass gateway opencue` on a PostgreSQL with TLS: the database is encrypted and checked as the settings say.

#[path = "../../store/tests/support/tls.rs"]
mod tls;

use crate::database as postgres;
use crate::support::windlass;
use std::process::{Command, Output};
use windlass_cuebot::schema;

#[test]
fn the_database_is_encrypted_and_checked_as_the_settings_say() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, certificate, key) = tls::certificates(dir.path());
    let (stranger, _, _) = tls::certificates(other.path());
    tls::give_to_server(&[dir.path(), &certificate, &key]);
    let (cluster, port) = match tls::cluster(&certificate, &key) {
        Ok(started) => started,
        Err(why) => return println!("SKIP what needs PostgreSQL with TLS: {why}"),
    };
    let address = cluster.empty_database();
    let name = address.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    cluster.sql(name, &schema::COMPACT.concat());
    let path = other.path().join("scheduler.yaml");
    let run = |host: &str, windlass_keys: &str| -> Output {
        let user = postgres::USER;
        let database = format!("{{db_host: {host}, db_port: {port}, db_name: {name}, db_user: {user}}}");
        std::fs::write(&path, format!("database: {database}\nwindlass: {{{windlass_keys}}}\n")).unwrap();
        let mut gateway = Command::new(windlass());
        gateway.args(["gateway", "opencue", "--dry-run", "--config"]).arg(&path).output().unwrap()
    };
    let (root, stranger) = (root.display(), stranger.display());
    for (host, keys) in [
        ("127.0.0.1", String::new()),
        ("127.0.0.1", "db_sslmode: disable".to_owned()),
        ("127.0.0.1", "db_sslmode: require".to_owned()),
        ("127.0.0.1", format!("db_sslmode: verify-ca, db_sslrootcert: '{root}'")),
        ("localhost", format!("db_sslmode: verify-full, db_sslrootcert: '{root}'")),
    ] {
        let output = run(host, &keys);
        assert!(output.status.success(), "{host} {keys}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (host, keys, why) in [
        ("127.0.0.1", format!("db_sslmode: verify-full, db_sslrootcert: '{root}'"), "certificate"),
        ("localhost", format!("db_sslmode: verify-ca, db_sslrootcert: '{stranger}'"), "certificate"),
        ("localhost", "db_sslmode: verify-ca, db_sslrootcert: /nowhere".to_owned(), "sslrootcert"),
    ] {
        let output = run(host, &keys);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{host} {keys}: {said}");
    }
}
