//! What each mode of the address accepts, against a real server with a certificate of its own, and what it sends to one that
//! has no TLS.

use crate::support::block_on;
use crate::support::postgres::{LOCKED, USER};
use crate::support::tls::{certificates, cluster, give_to_server};
use std::io::{Read, Write};
use std::net::TcpListener;
use windlass_store::{Store, StoreError};

/// What a client sends first to ask for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The answer of a server without TLS, and after it the request for a password in the clear.
const NO_TLS_AND_PASSWORD: &[u8] = b"NR\0\0\0\x08\0\0\0\x03";

/// Connects by these options to a server that has no TLS and asks for the password in the clear. Returns the error, and all
/// that the server heard.
fn without_tls(options: &str) -> (StoreError, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut heard = vec![0; SSL_REQUEST.len()];
        client.read_exact(&mut heard).unwrap();
        client.write_all(NO_TLS_AND_PASSWORD).unwrap();
        let mut part = [0; 1024];
        while !heard.ends_with(b"canary\0") {
            match client.read(&mut part) {
                // A client may also end the connection by a reset.
                Ok(0) | Err(_) => break,
                Ok(bytes) => heard.extend_from_slice(&part[..bytes]),
            }
        }
        heard
    });
    let address = format!("postgres://ann:canary@127.0.0.1:{port}/farm?target_session_attrs=any&{options}");
    let refused = block_on(Store::connect(&address)).err().expect("there is no database");
    (refused, server.join().unwrap())
}

#[test]
fn a_server_without_tls_gets_neither_user_nor_password() {
    let dir = tempfile::tempdir().unwrap();
    let (root, _, _) = certificates(dir.path());
    for mode in ["require", "verify-ca", "verify-full"] {
        let (refused, heard) = without_tls(&format!("sslmode={mode}&sslrootcert={}", root.display()));
        assert_eq!(heard, SSL_REQUEST, "{mode}: {:?}", String::from_utf8_lossy(&heard));
        let text = refused.to_string();
        assert!(matches!(refused, StoreError::NoTls { .. }) && text.contains("ssl = on"), "{text}");
    }
    // The server of this test does hear a password where the mode lets it.
    let (refused, heard) = without_tls("sslmode=prefer");
    assert!(heard.ends_with(b"canary\0"), "{refused}");
}

#[test]
fn each_mode_checks_what_it_promises() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, certificate, key) = certificates(dir.path());
    let (stranger, _, _) = certificates(other.path());
    give_to_server(&[dir.path(), &certificate, &key]);
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
        assert!(matches!(refused, StoreError::Tls { .. }), "{options}: {refused:?}");
        format!("{refused:?}")
    };
    let other_name = refuse("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}"));
    assert!(other_name.contains("NotValidForName"), "{other_name}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let unknown = refuse("localhost", format!("sslmode={mode}&sslrootcert={stranger}"));
        assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    }
    // A login that is bound to the certificate needs TLS; a user without a right to the tables is let in first.
    let (user, password) = LOCKED;
    let bound = |options: String| {
        let address = format!(
            "postgres://{user}:{password}@127.0.0.1:{port}/{database}?channel_binding=require&{options}"
        );
        block_on(Store::connect(&address)).err().expect("it may not read the tables")
    };
    let let_in = bound(format!("sslmode=verify-ca&sslrootcert={root}"));
    assert!(matches!(let_in, StoreError::Privilege { .. }), "{let_in:?}");
    let unbound = bound("sslmode=disable".to_owned());
    assert!(format!("{unbound:?}").contains("channel binding"), "{unbound:?}");
}
