//! A PostgreSQL store that several servers share: who may commit, what becomes of commits whose connection is lost, and
//! how servers reach each other.

use crate::support::postgres::{Cluster, cluster};
use crate::support::{self, LONG, block_on, commit, owned, unsigned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult, TaskState};
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{
    ANSWERED, ASKED, Answers, AskId, Notice, Postgres, RELAYED, ServerId, ServerState, Store, StoreError,
    WORK, clock_ahead_ms, notices_arrive,
};

fn task(index: u32) -> TaskId {
    TaskId { job: JobId(1), index }
}

fn new_job(tasks: u32) -> Write {
    let step = StepSpec { name: "s".to_owned(), tasks, ..StepSpec::default() };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    Write::Job { id: JobId(1), spec: Arc::new(spec), created: Time(1) }
}

fn book(index: u32) -> Write {
    let (worker, epoch) = (WorkerId(1), Epoch(1));
    Write::Book { task: task(index), attempt: 1, worker, epoch, at: Time(1), amounts: (100, 0) }
}

fn end(index: u32) -> Write {
    let result = TaskResult::bare(End::Exited(0));
    Write::End { task: task(index), attempt: 1, state: TaskState::Succeeded, failures: 0, losses: 0, result }
}

fn batch(writes: Vec<Write>) -> Arc<Outbox> {
    Arc::new(Outbox { writes, ..Outbox::default() })
}

/// The server awaits all of these on any of its threads.
fn _all_futures_can_move_between_threads(store: &Store) {
    fn is_send(_: impl Send) {}
    let (id, user) = (JobId(1), String::new());
    is_send(Store::connect(""));
    is_send(windlass_store::copy("", ""));
    is_send(store.commit(batch(vec![])));
    is_send(store.load());
    is_send(store.records([id].into()));
    is_send(store.fetch(vec![]));
    is_send(store.parked_counts());
    is_send(store.audit_parked());
    is_send(store.parked(id));
    is_send(store.retain(Time(1), 1));
    is_send(store.job(id));
    is_send(store.jobs(Default::default(), None, 1, 1));
    is_send(store.tasks(id, 0..1));
    is_send(store.history(task(1)));
    is_send(store.last_ended(1, 1));
    is_send(store.bodies(vec![]));
    is_send(store.small_bodies(vec![], 1));
    is_send(store.user_totals(user));
    is_send(store.ended_totals());
    is_send(store.write_foreign(vec![]));
    is_send(store.keep_series(vec![], vec![]));
    is_send(store.claim(ServerId(1), LONG));
    is_send(store.renew());
    is_send(store.release());
    is_send(store.ask(ServerId(1), "", vec![], unsigned));
    is_send(store.answers(ServerId(1), vec![]));
}

async fn booked(store: &Store) -> BTreeSet<u32> {
    let record = store.records([JobId(1)].into()).await.unwrap().pop().unwrap();
    record.tasks.iter().map(|row| row.index).collect()
}

#[test]
fn a_superseded_owner_commits_nothing() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let (one, two) = (Store::connect(&address).await.unwrap(), Store::connect(&address).await.unwrap());
        assert_eq!(one.id(), two.id());
        let first = one.register_server("one", &["http://one".to_owned()], "1.0", None).await.unwrap();
        let second = two.register_server("two", &[], "1.0", None).await.unwrap();
        assert!(matches!(one.commit(batch(vec![book(0)])).await, Err(StoreError::NotOwner)));
        let ownership = one.claim(first, LONG).await.unwrap().unwrap();
        assert_eq!(ownership.epoch, 1);
        let old = one.as_owner(ownership);
        assert!(commit(&old, vec![new_job(9), book(0)]).await.is_empty());
        assert_eq!(two.claim(second, LONG).await.unwrap(), None, "the lease runs");
        old.renew().await.unwrap();
        // As after the end of the lease.
        cluster.sql(database_of(&address), "UPDATE shards SET beat = clock_timestamp() - interval '2 hours'");
        let ownership = two.claim(second, LONG).await.unwrap().unwrap();
        assert_eq!(ownership.epoch, 2);
        let new = two.as_owner(ownership);
        let refused = old.commit(batch(vec![book(1), end(0)])).await;
        assert!(matches!(refused, Err(StoreError::Superseded)), "{refused:?}");
        assert!(matches!(old.renew().await, Err(StoreError::Superseded)));
        assert!(matches!(old.release().await, Err(StoreError::Superseded)));
        assert_eq!(booked(&new).await, [0].into(), "nothing of that batch is there");
        assert_eq!(commit(&new, vec![book(0), book(1)]).await, [0]);
        let row = two.owner().await.unwrap().unwrap();
        assert_eq!((row.server, row.epoch), (Some(second), 2));
        assert!(row.left > LONG / 2 && row.age.is_some());
        let servers = two.servers().await.unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!((names, &servers[0].addresses[..]), (vec!["one", "two"], &["http://one".to_owned()][..]));
        new.release().await.unwrap();
        assert!(matches!(new.commit(batch(vec![book(2)])).await, Err(StoreError::Superseded)));
        two.server_leaves(second).await.unwrap();
        let known = ServerState { is_listed: true, is_draining: false };
        assert_eq!(one.server_beat(first).await.unwrap(), known);
        assert!(!two.server_beat(second).await.unwrap().is_listed);
        let again = one.claim(first, LONG).await.unwrap().unwrap();
        assert_eq!(again.epoch, 3);
        assert_eq!(commit(&one.as_owner(again), vec![book(2)]).await, [0; 0]);
    });
}

#[test]
fn of_servers_that_claim_at_once_one_gets_it() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let claims = (1..=8).map(|server| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(ServerId(server), LONG).await.unwrap() })
        });
        let claims: Vec<_> = claims.collect();
        let mut won = 0;
        for claim in claims {
            won += usize::from(claim.await.unwrap().is_some());
        }
        assert_eq!(won, 1);
    });
}

fn database_of(address: &str) -> &str {
    address.split("@/").nth(1).and_then(|rest| rest.split('?').next()).unwrap()
}

async fn raw(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Batches of ten bookings, and an eleventh of a task that is booked already.
async fn book_in_batches(store: &Store, batches: std::ops::Range<u32>) {
    for number in batches {
        let first = number * 10;
        let again = first.saturating_sub(10);
        let writes = (first..first + 10).chain([again]).map(book).collect();
        // However often a connection was lost: the answer is that of the one time when the batch was committed.
        assert_eq!(commit(store, writes).await, [10], "batch {number}");
    }
}

#[test]
fn connections_that_are_cut_during_commits_lose_and_double_nothing() {
    // As many batches as it takes, within a bound that only a machine reaches on which nothing is cut.
    const CUTS: i64 = 40;
    const BATCHES_MAX: u32 = 20_000;
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        commit(&store, vec![new_job(BATCHES_MAX * 10)]).await;
        let (killer, is_over) = (raw(&address).await, Arc::new(AtomicBool::new(false)));
        let cuts = Arc::new(AtomicI64::new(0));
        let (over, cut) = (is_over.clone(), cuts.clone());
        let killer = tokio::spawn(async move {
            let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
            while !over.load(Ordering::Relaxed) {
                killer.batch_execute("SELECT pg_sleep(random() * 0.02)").await.unwrap();
                cut.fetch_add(killer.query_one(kill, &[]).await.unwrap().get(0), Ordering::Relaxed);
            }
        });
        let mut batches = 0;
        while cuts.load(Ordering::Relaxed) < CUTS && batches < BATCHES_MAX {
            book_in_batches(&store, batches..batches + 1).await;
            batches += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        killer.await.unwrap();
        println!("{} connections were cut during {batches} commits", cuts.load(Ordering::Relaxed));
        assert!(cuts.load(Ordering::Relaxed) >= CUTS, "too few connections were cut");
        assert_eq!(booked(&store).await.len() as u32, batches * 10);
        // The first batch made the job. What was cut off may have counted without a commit of its own.
        let counted = store.owner().await.unwrap().unwrap().batch;
        assert!(counted > u64::from(batches), "{counted}");
    });
}

/// A commit whose future was dropped may have happened or not. The next read and the next commit agree about it.
#[test]
fn a_commit_whose_caller_is_gone_is_settled_before_the_next_read() {
    // Every fiftieth commit is dropped at once, the others later and later.
    const CUTS: u32 = 30;
    const ROUNDS_MAX: u32 = 50 * CUTS;
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        commit(&store, vec![new_job(ROUNDS_MAX * 20)]).await;
        let (mut done, mut cut) = (0, 0);
        for round in 0..ROUNDS_MAX {
            if cut == CUTS {
                break;
            }
            let tasks: BTreeSet<u32> = (round * 20..round * 20 + 20).collect();
            let writes: Vec<Write> = tasks.iter().copied().map(book).collect();
            let patience = Duration::from_micros(u64::from(round % 50) * 40);
            if tokio::time::timeout(patience, store.commit(batch(writes.clone()))).await.is_ok() {
                continue;
            }
            cut += 1;
            let before = booked(&store).await;
            let refused = commit(&store, writes).await;
            let expected = if before.is_superset(&tasks) { (0..20).collect() } else { Vec::new() };
            done += usize::from(!expected.is_empty());
            assert_eq!(refused, expected, "round {round}");
        }
        println!("{cut} commits were dropped, {done} of them had happened");
        assert_eq!(cut, CUTS);
    });
}

#[test]
fn commits_and_reads_go_on_while_the_database_restarts() {
    const BATCHES: u32 = 300;
    let cluster = match Cluster::start(&["fsync=off"]) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        commit(&store, vec![new_job(BATCHES * 10 + 10)]).await;
        let (progress, mut seen) = tokio::sync::watch::channel(0);
        let writer = store.clone();
        let commits = tokio::spawn(async move {
            for number in 0..BATCHES {
                book_in_batches(&writer, number..number + 1).await;
                progress.send_replace(number);
            }
        });
        for (restart, at) in [(false, 50), (true, 120), (false, 200)] {
            seen.wait_for(|number| *number >= at).await.unwrap();
            tokio::task::block_in_place(|| {
                if restart {
                    cluster.crash()
                } else {
                    cluster.stop()
                }
                cluster.start_again();
            });
        }
        commits.await.unwrap();
        assert_eq!(booked(&store).await.len() as u32, BATCHES * 10);
        assert!(store.job(JobId(1)).await.unwrap().is_some());
        // A database that stays away is an error that says so, and then everything goes on.
        tokio::task::block_in_place(|| cluster.stop());
        let last: Vec<Write> = (BATCHES * 10..BATCHES * 10 + 10).map(book).collect();
        let failed = store.commit(batch(last.clone())).await.expect_err("there is no database");
        assert!(matches!(failed, StoreError::Unreachable { .. }), "{failed:?}");
        assert!(matches!(store.job(JobId(1)).await, Err(StoreError::Unreachable { .. })));
        tokio::task::block_in_place(|| cluster.start_again());
        assert!(commit(&store, last).await.is_empty());
        assert_eq!(booked(&store).await.len() as u32, BATCHES * 10 + 10);
    });
}

#[test]
fn what_postgres_takes_back_because_of_others_is_tried_again() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    // Every third statement that books fails as it does when transactions collide.
    cluster.sql(
        database_of(&address),
        "CREATE SEQUENCE bookings;
         CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('bookings') % 3 = 0 THEN RAISE EXCEPTION 'collided' USING ERRCODE = '40001'; END IF;
             IF currval('bookings') % 7 = 0 THEN RAISE EXCEPTION 'collided' USING ERRCODE = '40P01'; END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER collide BEFORE INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION collide()",
    );
    block_on(async {
        let store = owned(&address).await;
        commit(&store, vec![new_job(1_000)]).await;
        book_in_batches(&store, 0..50).await;
        assert_eq!(booked(&store).await.len(), 500);
    });
    let forever = "CREATE OR REPLACE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'always' USING ERRCODE = '40001'; END $$";
    cluster.sql(database_of(&address), forever);
    block_on(async {
        cluster.sql(database_of(&address), "UPDATE shards SET owner = NULL");
        let store = owned(&address).await;
        let failed = store.commit(batch(vec![book(900)])).await.expect_err("it never ends otherwise");
        assert!(matches!(failed, StoreError::Database { doing: "committed", .. }), "{failed:?}");
    });
}

#[test]
fn bookings_take_few_statements() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        commit(&store, vec![new_job(5_000)]).await;
        let Store::Postgres(postgres) = &store else { panic!("it is PostgreSQL") };
        let of = async |writes: Vec<Write>| {
            let (tasks, before) = (writes.len(), postgres.statements());
            assert!(commit(&store, writes).await.is_empty());
            (postgres.statements() - before) as f64 / tasks as f64
        };
        let bookings = of((0..1_000).map(book).collect()).await;
        let ends = of((0..1_000).map(end).chain((1_000..2_000).map(book)).collect()).await;
        let small = of((2_000..2_050).map(book).collect()).await;
        println!("statements for each task: {bookings} booked, {ends} ended and booked, {small} of 50");
        assert!(bookings <= 0.2 && ends <= 0.2 && small <= 0.2, "{bookings} {ends} {small}");
    });
}

#[test]
fn servers_that_start_together_make_the_schema_once() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.empty_database();
    block_on(async {
        let starts = (0..8).map(|_| {
            let address = address.clone();
            tokio::spawn(async move { Postgres::connect(&address).await.map(|_| ()) })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.unwrap().unwrap();
        }
    });
    let versions = "SELECT string_agg(version::text, ' ' ORDER BY version) FROM refinery_schema_history";
    assert_eq!(cluster.sql(database_of(&address), versions), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16");
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
        VALUES (9999, 'later', '2030-01-01T00:00:00Z', '1')";
    cluster.sql(database_of(&address), newer);
    let refused = block_on(Store::connect(&address)).err().expect("the schema is newer");
    assert!(matches!(refused, StoreError::Newer { found: 9999, .. }), "{refused}");
}

#[test]
fn errors_of_a_connection_say_what_to_do_and_no_password() {
    let Some(cluster) = cluster() else { return };
    let (dir, database) = (cluster.dir().display().to_string(), cluster.database());
    let database = database_of(&database).to_owned();
    let (user, password) = support::postgres::LOCKED;
    let refuse = |address: String| {
        let error =
            block_on(Store::connect(&address)).err().unwrap_or_else(|| panic!("{address} was opened"));
        let mut text = format!("{error} {error:?}");
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            text.push_str(&format!(" {next} {next:?}"));
            cause = next.source();
        }
        assert!(!text.contains("wrong-secret") && !text.contains(password), "{text}");
        (error, text)
    };
    let at = |user: &str, database: &str| format!("postgres://{user}@/{database}?host={dir}");
    let (error, text) = refuse(at(&format!("{user}:wrong-secret"), &database));
    assert!(matches!(error, StoreError::Login { .. }) && text.contains("PGPASSWORD"), "{text}");
    let (error, text) = refuse(at(&format!("{user}:{password}"), &database));
    assert!(matches!(error, StoreError::Privilege { .. }) && text.contains("owner"), "{text}");
    let (error, text) = refuse(at(support::postgres::USER, "nowhere"));
    assert!(matches!(error, StoreError::NoDatabase { .. }) && text.contains("createdb"), "{text}");
    let (error, text) = refuse(format!("postgres://ann:wrong-secret@/farm?host={dir}/none"));
    assert!(matches!(error, StoreError::Unreachable { .. }) && text.contains("/none/farm"), "{text}");
    cluster.sql("postgres", "CREATE ROLE full_up LOGIN CONNECTION LIMIT 0");
    let (error, text) = refuse(at("full_up:wrong-secret", &database));
    assert!(matches!(error, StoreError::TooMany { .. }) && text.contains("max_connections"), "{text}");
}

/// The next notice that is not about the connection.
async fn heard(listener: &mut windlass_store::Listener) -> (String, String) {
    loop {
        if let Notice::Said { channel, payload } = listener.next().await {
            return (channel, payload);
        }
    }
}

#[test]
fn servers_ask_each_other_by_the_store() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let (one, two) = (Store::connect(&address).await.unwrap(), Store::connect(&address).await.unwrap());
        let asker = one.register_server("one", &[], "0", None).await.unwrap();
        let mut asks = two.listen(&[ASKED, WORK]);
        let mut answers = one.listen(&[ANSWERED]);
        assert_eq!((asks.next().await, answers.next().await), (Notice::Listens, Notice::Listens));
        let id = one.ask(asker, "hold", b"{\"job\":1}".to_vec(), unsigned).await.unwrap();
        assert_eq!(heard(&mut asks).await, (ASKED.to_owned(), id.0.to_string()));
        let asked = two.asked(AskId(0), 10).await.unwrap();
        assert_eq!((asked[0].id, asked[0].by, asked[0].kind.as_str()), (id, asker, "hold"));
        assert_eq!((asked[0].server.as_str(), &asked[0].verify_key), ("one", &None));
        assert_eq!(asked[0].body, b"{\"job\":1}");
        assert!(two.asked(id, 10).await.unwrap().is_empty());
        assert_eq!(one.answers(asker, vec![id]).await.unwrap(), Answers::default(), "it waits");
        assert!(two.answer(id, 204, b"done".to_vec()).await.unwrap());
        assert!(!two.answer(id, 500, Vec::new()).await.unwrap(), "it was answered");
        assert_eq!(heard(&mut answers).await, (ANSWERED.to_owned(), id.0.to_string()));
        let answer = one.answers(asker, vec![id]).await.unwrap().answered.remove(0);
        assert_eq!((answer.status, &answer.body[..]), (204, &b"done"[..]));
        assert!(two.asked(AskId(0), 10).await.unwrap().is_empty());
        // A listener whose connection is cut listens again, and says that it may have missed something.
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        assert!(cluster.sql(database_of(&address), cut).contains('t'));
        assert_eq!(asks.next().await, Notice::Listens);
        one.notify(WORK, "q").await.unwrap();
        assert_eq!(heard(&mut asks).await, (WORK.to_owned(), "q".to_owned()));
        // Old requests go with a beat.
        cluster.sql(database_of(&address), "UPDATE requests SET created = created - interval '1 day'");
        one.server_beat(asker).await.unwrap();
        assert_eq!(one.answers(asker, vec![id]).await.unwrap().lost, [id]);
    });
}

#[test]
fn requests_of_servers_that_are_gone_and_those_taken_back_are_not_served() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let (one, two) = (
            store.register_server("one", &[], "0", None).await.unwrap(),
            store.register_server("two", &[], "0", None).await.unwrap(),
        );
        let mut ids = Vec::new();
        for by in [one, two, two, two] {
            ids.push(store.ask(by, "x", Vec::new(), unsigned).await.unwrap());
        }
        store.answer(ids[2], 200, Vec::new()).await.unwrap();
        store.withdraw(vec![ids[1], ids[2]]).await.unwrap();
        let answers = store.answers(two, ids[1..].to_vec()).await.unwrap();
        assert_eq!(
            (answers.answered[0].id, &answers.lost[..]),
            (ids[2], &ids[1..2]),
            "what is answered stays"
        );
        let of_another = store.answers(one, vec![ids[2]]).await.unwrap();
        assert!(of_another.answered.is_empty(), "a server reads its own answers alone");
        assert_eq!(store.still_asked(ids.clone()).await.unwrap(), [ids[0], ids[3]]);
        let read = ids.iter().map(|id| (*id, None)).collect();
        store.drop_answered(read).await.unwrap();
        assert!(store.answers(two, ids.clone()).await.unwrap().answered.is_empty(), "its answer was read");
        assert_eq!(store.still_asked(ids.clone()).await.unwrap(), [ids[0], ids[3]]);
        let served = async || store.asked(AskId(0), 9).await.unwrap().into_iter().map(|asked| asked.id);
        assert_eq!(served().await.collect::<Vec<_>>(), [ids[0], ids[3]]);
        let silent = format!("UPDATE servers SET beat = beat - interval '1 minute' WHERE id = {}", one.0);
        cluster.sql(database_of(&address), &silent);
        assert_eq!(served().await.collect::<Vec<_>>(), [ids[3]]);
        store.server_leaves(two).await.unwrap();
        assert_eq!(store.still_asked(ids.clone()).await.unwrap(), [ids[0]], "its requests go with it");
    });
}

#[test]
fn events_reach_other_servers_in_order_and_are_kept_for_a_minute() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let (one, two) = (Store::connect(&address).await.unwrap(), Store::connect(&address).await.unwrap());
        let server = one.register_server("one", &[], "0", None).await.unwrap();
        let mut heard_of = two.listen(&[RELAYED]);
        assert_eq!(heard_of.next().await, Notice::Listens);
        assert_eq!(two.last_relayed_event().await.unwrap(), 0);
        for events in ["a", "b", "c"] {
            one.relay_events(events.to_owned()).await.unwrap();
        }
        assert_eq!(heard(&mut heard_of).await, (RELAYED.to_owned(), "1".to_owned()));
        let rows = two.relayed_events(1, 9).await.unwrap();
        assert_eq!(rows, [(2, "b".to_owned()), (3, "c".to_owned())]);
        assert_eq!(two.last_relayed_event().await.unwrap(), 3);
        cluster.sql(
            database_of(&address),
            "UPDATE relayed_events SET created = created - interval '2 minutes' WHERE id < 3",
        );
        one.server_beat(server).await.unwrap();
        assert_eq!(two.relayed_events(0, 9).await.unwrap(), [(3, "c".to_owned())]);
    });
}

#[test]
fn a_server_is_told_to_drain_by_its_name() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let one = store.register_server("one", &[], "0", None).await.unwrap();
        store.register_server("two", &[], "0", None).await.unwrap();
        assert_eq!(store.drain_servers("three", true).await.unwrap(), 0);
        assert_eq!(store.drain_servers("one", true).await.unwrap(), 1);
        assert!(store.server_beat(one).await.unwrap().is_draining);
        let drained: Vec<bool> = store.servers().await.unwrap().iter().map(|row| row.is_draining).collect();
        assert_eq!(drained, [true, false]);
        store.drain_servers("one", false).await.unwrap();
        assert!(!store.server_beat(one).await.unwrap().is_draining);
        // A renewal shows in the owner's row.
        let ownership = store.claim(one, LONG).await.unwrap().unwrap();
        let renewed = async || store.owner().await.unwrap().unwrap().renewed_us;
        let before = renewed().await;
        assert_eq!(renewed().await, before);
        store.as_owner(ownership).renew().await.unwrap();
        assert!(renewed().await > before);
    });
}

#[test]
fn whether_notices_arrive_and_clocks_agree_can_be_tried() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        assert!(notices_arrive(&store, LONG).await.unwrap());
        assert!(!notices_arrive(&store, Duration::ZERO).await.unwrap());
        assert!(
            clock_ahead_ms(&store).await.unwrap().unwrap().abs() < 5_000,
            "the cluster is on this machine"
        );
        assert_eq!(clock_ahead_ms(&Store::open("memory").unwrap()).await.unwrap(), None);
    });
}

#[test]
fn a_name_has_one_worker_that_is_not_forgotten() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = owned(&address).await;
        let write = |id, state| {
            vec![Write::Worker(WorkerRecord {
                id: WorkerId(id),
                name: "w".to_owned(),
                epoch: Epoch(1),
                identity: 1,
                incarnation: 1,
                state,
                draining: false,
                note: None,
                lease_until: None,
                capacity: Resources::default(),
                attributes: BTreeMap::new(),
            })]
        };
        assert!(commit(&store, write(3, WorkerState::Up)).await.is_empty());
        assert!(store.commit(batch(write(5, WorkerState::Up))).await.is_err(), "another worker has the name");
        assert!(commit(&store, write(3, WorkerState::Forgotten)).await.is_empty());
        assert!(commit(&store, write(5, WorkerState::Up)).await.is_empty());
        let workers = store.load().await.unwrap().ground.workers;
        let found: Vec<_> = workers.iter().map(|worker| (worker.id.0, worker.state)).collect();
        assert_eq!(found, [(3, WorkerState::Forgotten), (5, WorkerState::Up)]);
    });
}

#[test]
fn reads_that_hang_delay_neither_the_owner_nor_the_list_of_servers() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database();
    block_on(async {
        let store = Store::connect(&address).await.unwrap();
        let list = store.with_own_connections();
        let server = list.register_server("one", &[], "0", None).await.unwrap();
        let owner = store.as_owner(list.claim(server, LONG).await.unwrap().unwrap());
        let (locker, watcher) = (raw(&address).await, raw(&address).await);
        locker.batch_execute("BEGIN; LOCK TABLE bodies IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let mut hanging = Vec::new();
        for _ in 0..20 {
            let owner = owner.clone();
            hanging.push(tokio::spawn(async move { owner.body(JobId(1), 0).await.map(|_| ()) }));
        }
        // All connections of the server's pool wait for the table.
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND datname = current_database()";
        while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < 8 {
            tokio::task::yield_now().await;
        }
        let others = async {
            owner.renew().await.unwrap();
            assert!(commit(&owner, vec![Write::WorkerGone(WorkerId(1))]).await.is_empty());
            assert!(list.server_beat(server).await.unwrap().is_listed);
            assert_eq!(list.owner().await.unwrap().unwrap().server, Some(server));
        };
        tokio::time::timeout(Duration::from_secs(20), others)
            .await
            .expect("they have connections of their own");
        locker.batch_execute("ROLLBACK").await.unwrap();
        for read in hanging {
            read.await.unwrap().unwrap();
        }
    });
}
