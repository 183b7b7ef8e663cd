//! Requests that one server leaves for another in a shared database: where their bodies are, for how long, and what a
//! crash of the database takes.

use crate::support::postgres::{Cluster, cluster};
use crate::support::{block_on, unsigned};
use windlass_store::{Answers, AskId, Store};

fn database_of(address: &str) -> &str {
    address.split("@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap()
}

#[test]
fn what_clients_sent_is_in_no_log_and_is_gone_when_it_is_answered() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    let database = database_of(&address);
    // All else must survive a crash, and numbers of requests must not begin again.
    let unlogged = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
        WHERE relpersistence = 'u' AND relkind IN ('r', 'S')";
    assert_eq!(cluster.sql(database, unlogged), "requests");
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let key = [7_u8; 32];
        let server = store.register_server("one", &[], "0", Some(&key)).await.unwrap();
        let sign = |id: AskId, body: &[u8]| [&id.0.to_be_bytes()[..], body].concat();
        let id = store.ask(server, "http", b"canary".to_vec(), sign).await.unwrap();
        let asked = store.asked(AskId(0), 9).await.unwrap().remove(0);
        assert_eq!(asked.verify_key.as_deref(), Some(&key[..]));
        assert_eq!(asked.signature, Some(sign(id, b"canary")));
        let rows = "SELECT count(*), count(body), count(signature), count(answer) FROM requests";
        assert_eq!(cluster.sql(database, rows), "1|1|1|0");
        assert!(store.answer(id, 200, b"told".to_vec()).await.unwrap());
        assert_eq!(cluster.sql(database, rows), "1|0|0|1");
        store.drop_answered(vec![(id, None)]).await.unwrap();
        assert_eq!(cluster.sql(database, rows), "0|0|0|0");
        // Rows that no server wrote are read all the same.
        let forge = format!("INSERT INTO requests (asked_by, kind) VALUES ({}, 'http')", server.0);
        cluster.sql(database, &forge);
        let forged = store.asked(AskId(0), 9).await.unwrap().remove(0);
        assert_eq!((&forged.body[..], &forged.signature), (&b""[..], &None));
        cluster.sql(database, "UPDATE requests SET answered = clock_timestamp()");
        assert_eq!(store.answers(server, vec![forged.id]).await.unwrap().answered[0].status, 0);
    });
}

#[test]
fn requests_that_a_crash_of_the_database_took_are_lost_and_their_numbers_stay_taken() {
    let cluster = match Cluster::start(&[]) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let server = store.register_server("one", &[], "0", None).await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(store.ask(server, "http", Vec::new(), unsigned).await.unwrap());
        }
        assert!(store.answer(ids[1], 200, Vec::new()).await.unwrap());
        cluster.crash();
        cluster.start_again();
        // The connections of the pool are tried before they are used.
        let answers = store.answers(server, ids.clone()).await.unwrap();
        assert_eq!(answers, Answers { answered: Vec::new(), lost: ids.clone() });
        assert!(!store.answer(ids[0], 200, Vec::new()).await.unwrap(), "a lost request has no row");
        let next = store.ask(server, "http", Vec::new(), unsigned).await.unwrap();
        assert!(next > ids[2], "{next:?}");
        assert!(store.answers(server, vec![next]).await.unwrap().lost.is_empty());
    });
}
