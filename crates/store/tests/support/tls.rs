//! A PostgreSQL with TLS, and certificates for it.

#![allow(dead_code)]

use super::postgres::{Cluster, unprivileged};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// Ports that are tried: another program may take one between the choice and the start.
const PORTS_MAX: usize = 5;

/// An authority, and a certificate of `localhost` that it has signed.
pub fn certificates(dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
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
pub fn cluster(certificate: &Path, key: &Path) -> Result<(Cluster, u16), String> {
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

/// Gives files to the user that PostgreSQL runs as.
pub fn give_to_server(paths: &[&Path]) {
    if let Ok(Some((uid, gid))) = unprivileged() {
        for path in paths {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }
}
