//! TLS to PostgreSQL: what each mode of the address accepts, against a real server with a certificate of its own.

mod support;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use support::block_on;
use support::postgres::{Cluster, USER, unprivileged};
use windlass_store::{Store, StoreError};

/// Ports that are tried: another program may take one between the choice and the start.
const PORTS_MAX: usize = 5;

/// An authority, and a certificate of `localhost` that it has signed.
fn certificates(dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let server = server.signed_by(&server_key, &issuer).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        let mut private = std::fs::OpenOptions::new();
        let mut file = private.create_new(true).write(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        path
    };
    (
        write("root.pem", root.pem()),
        write("server.pem", server.pem()),
        write("server.key", server_key.serialize_pem()),
    )
}

/// A cluster on a port of this machine, with TLS; its port.
fn cluster(certificate: &Path, key: &Path) -> Result<(Cluster, u16), String> {
    let mut last = String::new();
    for _ in 0..PORTS_MAX {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let settings = [
            "fsync=off".to_owned(),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        match Cluster::start_at(&settings.each_ref().map(String::as_str), port) {
            Ok(cluster) => return Ok((cluster, port)),
            Err(why) => last = why,
        }
    }
    Err(last)
}

#[test]
fn each_mode_checks_what_it_promises() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, certificate, key) = certificates(dir.path());
    let (stranger, _, _) = certificates(other.path());
    if let Ok(Some((uid, gid))) = unprivileged() {
        for path in [dir.path(), &certificate, &key] {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }
    let (cluster, port) = match cluster(&certificate, &key) {
        Ok(started) => started,
        Err(why) => return println!("SKIP what needs PostgreSQL with TLS: {why}"),
    };
    let database = cluster.database();
    let database = database.split("@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap().to_owned();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE ssl AND application_name = 'windlass'";
    let open = |host: &str, options: String| {
        let address = format!("postgres://{USER}@{host}:{port}/{database}?{options}");
        block_on(async {
            let store = Store::connect(&address).await?;
            store.number("any").await?;
            Ok::<bool, StoreError>(cluster.sql("postgres", encrypted) != "0")
        })
    };
    let (root, stranger) = (root.display(), stranger.display());
    assert!(!open("localhost", "sslmode=disable".to_owned()).unwrap());
    assert!(open("localhost", String::new()).unwrap(), "TLS is preferred");
    assert!(open("127.0.0.1", "sslmode=require".to_owned()).unwrap());
    assert!(open("localhost", format!("sslmode=verify-full&sslrootcert={root}")).unwrap());
    assert!(open("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}")).unwrap());
    assert!(open("127.0.0.1", format!("sslmode=require&sslrootcert={root}")).unwrap());
    let refuse = |host: &str, options: String| {
        let refused = open(host, options.clone()).expect_err(&options);
        assert!(matches!(refused, StoreError::Unreachable { .. }), "{options}: {refused:?}");
        format!("{refused:?}")
    };
    let other_name = refuse("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}"));
    assert!(other_name.contains("NotValidForName"), "{other_name}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let unknown = refuse("localhost", format!("sslmode={mode}&sslrootcert={stranger}"));
        assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    }
}
