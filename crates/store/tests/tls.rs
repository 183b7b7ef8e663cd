//! What each mode of the address accepts, against a real server with a certificate of its own.

mod support;

use support::block_on;
use support::postgres::USER;
use support::tls::{certificates, cluster, give_to_server};
use windlass_store::{Store, StoreError};

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
