//! Files of jobs, asked as clients and workers ask.

use super::test_server::{
    FilesServer, message, put, read, run, some_bytes, tree, unpacked, until, with_server, with_server_of,
};
use super::*;
use serde_json::{Value, json};
use tonic::Code;
use windlass_api::JOB_FILES_INSTANCE;
use windlass_api::wire::Task;
use windlass_cas::proto::re::{self, FindMissingBlobsRequest};
use windlass_core::JobId;
use windlass_store::Store;

#[test]
fn a_job_gets_its_files_and_gives_its_outputs() {
    with_server(async |server| {
        let large = some_bytes(1, 200_000);
        let inputs = tree(&[("src/a.c", b"int a;"), ("src/large", &large)]);
        let of_large = Digest::of(&large);
        let all = [inputs.root, Digest::of(b"int a;"), of_large, Digest::EMPTY];
        assert_eq!(server.missing("ann", &all).await.len(), 3);
        server.upload_tree("ann", &inputs, &[b"int a;", b"input"]).await;
        assert_eq!(server.missing("ann", &all).await, [of_large.to_string()]);
        let path = format!("/api/v1/files/blobs/{of_large}");
        assert_eq!(server.http("PUT", &path, "ann", &large).await.0, 204);
        assert_eq!(server.http("PUT", &path, "ann", &large).await.0, 204, "again");
        assert!(server.missing("ann", &all).await.is_empty());
        let stdin = Digest::of(b"input").to_string();
        let files = json!({"root": inputs.root.to_string(), "stdin": stdin, "outputs": ["*.o", "out/**"]});
        let job = server.submit("ann", files).await;
        // Its worker asks.
        let given = server.files_of("worker", job, 0).await.unwrap();
        assert_eq!((given.roots, given.stdin), (vec![inputs.root.to_string()], Some(stdin)));
        assert_eq!(given.outputs, ["*.o", "out/**"]);
        let (attempt, _) = server.booked(job, 0).await;
        let mut content = server.content("worker", &format!("{job}.0.{attempt}")).await;
        assert_eq!(read(&mut content, JOB_FILES_INSTANCE, Digest::of(b"int a;")).await.unwrap(), b"int a;");
        let asked = FindMissingBlobsRequest {
            instance_name: JOB_FILES_INSTANCE.to_owned(),
            blob_digests: [of_large, Digest::of(b"new")].map(message).to_vec(),
            ..Default::default()
        };
        let missing = content.find_missing_blobs(asked).await.unwrap().into_inner().missing_blob_digests;
        assert_eq!(missing, [message(Digest::of(b"new"))]);
        // What was made is kept before the task's end is told.
        server.keep(job, 0, &[("a.o", b"object"), ("out/run.sh", b"#!/bin/sh")]).await.unwrap();
        server.end(job, 0, 0).await;
        let listed = server.listed("ann", job).await;
        let of = &listed.steps[0];
        assert_eq!((of.step.as_str(), listed.next), ("main", None));
        assert_eq!((of.input_files, of.input_bytes), (Some(2), Some(200_006)), "after the job's end, too");
        let outputs = &listed.outputs[0];
        assert_eq!((outputs.index, outputs.files, outputs.bytes), (0, 2, 15));
        assert_eq!(outputs.skipped, ["x: a socket"]);
        let (status, archive) =
            server.http("GET", &format!("/api/v1/jobs/{job}/files/tar"), "ann", b"").await;
        assert_eq!(status, 200);
        let entry = |name: &str, mode, text: &str| (name.to_owned(), mode, text.to_owned());
        let expected = [
            entry("main.0", 0o755, ""),
            entry("main.0/a.o", 0o644, "object"),
            entry("main.0/out", 0o755, ""),
            entry("main.0/out/run.sh", 0o755, "#!/bin/sh"),
        ];
        assert_eq!(unpacked(&archive), expected);
        let path = format!("/api/v1/jobs/{job}/files/tar?tasks=0&flat=true");
        let (_, archive) = server.http("GET", &path, "ann's viewer", b"").await;
        assert_eq!(unpacked(&archive)[0], entry("a.o", 0o644, "object"));
        let path = format!("/api/v1/jobs/{job}/files/blob?task=0&path=out/run.sh");
        assert_eq!(server.http("GET", &path, "ann", b"").await, (200, b"#!/bin/sh".to_vec()));
        for query in
            ["task=0&path=out", "task=0&path=../a.o", "task=0&path=/a.o", "task=1&path=a.o", "task=0&path="]
        {
            let path = format!("/api/v1/jobs/{job}/files/blob?{query}");
            assert_eq!(server.http("GET", &path, "ann", b"").await.0, 404, "{query}");
        }
        for (query, status) in
            [("tasks=5", 404), ("tasks=x", 400), ("flat=true", 400), ("tasks=0-1&flat=true", 400)]
        {
            let path = format!("/api/v1/jobs/{job}/files/tar?{query}");
            assert_eq!(server.http("GET", &path, "ann", b"").await.0, status, "{query}");
        }
    });
}

#[test]
fn a_later_step_gets_the_outputs_of_an_earlier_one() {
    with_server(async |server| {
        let step = |name: &str, files: Value| {
            let param = json!({"values": ["a", "b"]});
            json!({"name": name, "command": ["true", "{}"], "param": param, "files": files})
        };
        let mut link = step("link", json!({"outputs_of": ["compile"]}));
        link["depends"] = json!([{"on": "compile", "by": "task"}]);
        let job = json!({"steps": [step("compile", json!({"outputs": ["*.o"]})), link]});
        let (status, answer) = server.json("POST", "/api/v1/jobs", "ann", job).await;
        assert_eq!(status, 201, "{answer}");
        let job = answer["job"].as_u64().unwrap();
        for (index, text) in [(0, &b"first"[..]), (1, &b"second"[..])] {
            server.keep(job, index, &[("x.o", text)]).await.unwrap();
            server.end(job, index, 0).await;
            let given = server.files_of("worker", job, 2 + index).await.unwrap();
            assert_eq!(given.roots, [tree(&[("x.o", text)]).root.to_string()]);
        }
    });
}

#[test]
fn what_a_later_attempt_keeps_takes_the_place_of_what_an_earlier_one_kept() {
    with_server(async |server| {
        let job = json!({"steps": [{"command": ["false"], "retries": 1, "files": {"outputs": ["*"]}}]});
        let (_, answer) = server.json("POST", "/api/v1/jobs", "ann", job).await;
        let job = answer["job"].as_u64().unwrap();
        server.keep(job, 0, &[("log", b"first")]).await.unwrap();
        let (first, _) = server.booked(job, 0).await;
        server.end(job, 0, 1).await;
        until("it is tried again", async || server.booked(job, 0).await.0 > first).await;
        let pinned_bytes = server.figures().pinned_bytes;
        server.keep(job, 0, &[("log", b"second")]).await.unwrap();
        let listed = server.listed("ann", job).await;
        assert_eq!((listed.outputs.len(), listed.outputs[0].bytes), (1, 6));
        assert!(listed.outputs[0].attempt > first);
        // The one byte more, and nothing of the first.
        assert_eq!(server.figures().pinned_bytes, pinned_bytes + 1);
        // An attempt that is over keeps nothing more.
        let stale =
            KeptOutputs { task: Some(Task { job, index: 0, attempt: first }), ..KeptOutputs::default() };
        let refused = server.workers("worker").await.keep_outputs(stale).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    });
}

/// User bob knows ann's digests and numbers, and reads nothing of hers by any of them.
#[test]
fn who_knows_digests_and_numbers_of_others_reads_nothing() {
    with_server(async |server| {
        let canary = b"a canary of ann";
        let inputs = tree(&[("secret", canary)]);
        server.upload_tree("ann", &inputs, &[canary]).await;
        let files = json!({"root": inputs.root.to_string(), "outputs": ["*"]});
        let job = server.submit("ann", files.clone()).await;
        server.keep(job, 0, &[("secret", canary)]).await.unwrap();
        let known = [inputs.root, Digest::of(canary)];
        assert_eq!(server.missing("bob", &known).await.len(), 2, "nothing is told");
        let (status, answer) = server.try_submit("bob", files, "").await;
        assert!(status == 400 && answer.to_string().contains("not uploaded by you"), "{answer}");
        // A directory of his own that names her file.
        let own = tree(&[("stolen", canary), ("own", b"own")]);
        server.upload_tree("bob", &own, &[b"own"]).await;
        for query in ["", "?dry_run=true"] {
            let (status, answer) =
                server.try_submit("bob", json!({"root": own.root.to_string()}), query).await;
            assert!(
                status == 400 && answer.to_string().contains(&Digest::of(canary).to_string()),
                "{answer}"
            );
        }
        let (status, _) =
            server.try_submit("bob", json!({"stdin": Digest::of(canary).to_string()}), "").await;
        assert_eq!(status, 400);
        // Who claims other bytes to be hers does not come to have it.
        let path = format!("/api/v1/files/blobs/{}", Digest::of(canary));
        assert_eq!(server.http("PUT", &path, "bob", b"another bird ok").await.0, 400);
        assert_eq!(server.missing("bob", &known).await.len(), 2);
        for path in ["files", "files/tar", "files/blob?task=0&path=secret"] {
            let (status, body) = server.http("GET", &format!("/api/v1/jobs/{job}/{path}"), "bob", b"").await;
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(
                status == 403 && !text.contains("canary") && !text.contains(&known[1].hex()),
                "{path}: {text}"
            );
        }
        let (status, _) = server.http("GET", &format!("/cache/cas/{}", known[1].hex()), "bob", b"").await;
        assert_eq!(status, 404, "through the cache");
        let (attempt, epoch) = server.booked(job, 0).await;
        let named = format!("{job}.0.{attempt}");
        let denied = Code::PermissionDenied;
        for (who, attempt, instance, code) in [
            ("bob", named.as_str(), JOB_FILES_INSTANCE, denied),
            ("bob", "", JOB_FILES_INSTANCE, Code::InvalidArgument),
            ("bob", "", "main", Code::NotFound),
            ("other worker", named.as_str(), JOB_FILES_INSTANCE, denied),
            ("worker", "", JOB_FILES_INSTANCE, denied),
            ("worker", named.as_str(), "main", Code::InvalidArgument),
            ("worker", "99.0.1", JOB_FILES_INSTANCE, denied),
            ("worker", "nonsense", JOB_FILES_INSTANCE, Code::InvalidArgument),
        ] {
            let mut content = server.content(who, attempt).await;
            let read = read(&mut content, instance, known[1]).await.unwrap_err();
            assert_eq!(read.code(), code, "{who} {attempt} {instance}: {read}");
        }
        for who in ["bob", "other worker"] {
            let refused = server.files_of(who, job, 0).await.unwrap_err();
            assert_eq!(refused.code(), denied, "{who}: {refused}");
            let task = Some(Task { job, index: 0, attempt });
            let kept = KeptOutputs { task, epoch, ..KeptOutputs::default() };
            let refused = server.workers(who).await.keep_outputs(kept).await.unwrap_err();
            assert_eq!(refused.code(), denied, "{who}: {refused}");
        }
        assert_eq!(server.listed("root", job).await.outputs[0].bytes, canary.len() as u64);
    });
}

#[test]
fn hostile_bodies_are_refused_and_harm_nothing() {
    with_server(async |server| {
        let hex = Digest::of(b"hello").hex();
        for path in [
            format!("/api/v1/files/blobs/{hex}/4"),
            format!("/api/v1/files/blobs/{hex}/6"),
            format!("/api/v1/files/blobs/{hex}/x"),
            format!("/api/v1/files/blobs/{hex}/9999999999"),
            format!("/api/v1/files/blobs/{}/5", hex.to_uppercase()),
            format!("/api/v1/files/blobs/..%2f..%2f{}/5", &hex[..58]),
        ] {
            let (status, body) = server.http("PUT", &path, "ann", b"hello").await;
            assert_eq!(status, 400, "{path}: {}", String::from_utf8_lossy(&body));
        }
        for body in [&b"nonsense"[..], &[0xff; 300], format!("{hex} 5\nhullo").as_bytes(), b"\n"] {
            assert_eq!(server.http("POST", "/api/v1/files/blobs", "ann", body).await.0, 400);
        }
        let large = vec![b'a'; windlass_api::BLOB_BATCH_BYTES_MAX + 1];
        assert_eq!(server.http("POST", "/api/v1/files/blobs", "ann", &large).await.0, 413);
        for blobs in [json!(["x"]), json!([format!("{hex}/-1")]), json!([format!("{hex}/5"), ""])] {
            let (status, _) =
                server.json("POST", "/api/v1/files/missing", "ann", json!({"blobs": blobs})).await;
            assert_eq!(status, 400);
        }
        let many = vec![format!("{hex}/5"); windlass_api::BLOBS_ASKED_MAX + 1];
        let (status, answer) =
            server.json("POST", "/api/v1/files/missing", "ann", json!({"blobs": many})).await;
        assert!(status == 400 && answer.to_string().contains("at most 10000"), "{answer}");
        // A name that leads out, one name twice, names out of order, and bytes that are not a message.
        use prost::Message as _;
        let file = |name: &str| re::FileNode {
            name: name.to_owned(),
            digest: Some(message(Digest::of(b"hello"))),
            ..Default::default()
        };
        let directories = [
            re::Directory { files: vec![file("../x")], ..Default::default() }.encode_to_vec(),
            re::Directory { files: vec![file("a"), file("a")], ..Default::default() }.encode_to_vec(),
            re::Directory { files: vec![file("b"), file("a")], ..Default::default() }.encode_to_vec(),
            b"\xff\xff\xff".to_vec(),
        ];
        for directory in directories {
            assert_eq!(server.upload("ann", &[&directory, b"hello"]).await, 204);
            let root = Digest::of(&directory).to_string();
            let (status, answer) = server.try_submit("ann", json!({"root": root}), "").await;
            assert!(status == 400 && answer.to_string().contains("inputs of step 'main'"), "{answer}");
        }
        for (files, why) in [
            (json!({"root": "nonsense"}), "HASH/BYTES"),
            (json!({"outputs": ["/etc/*"]}), "cannot be a pattern"),
            (json!({"outputs": vec!["*"; 101]}), "too many"),
            (json!({"outputs_of": ["main"]}), "does not depend"),
            (json!({"root": Digest::of(b"nothing").to_string()}), "not uploaded by you"),
            (json!({"unknown": 1}), "unknown field"),
        ] {
            let (status, answer) = server.try_submit("ann", files, "").await;
            assert!(status == 400 && answer.to_string().contains(why), "{why}: {answer}");
        }
        let step = json!({"command": ["true"], "cwd": "/tmp", "files": {}});
        let (status, answer) = server.json("POST", "/api/v1/jobs", "ann", json!({"steps": [step]})).await;
        assert!(status == 400 && answer.to_string().contains("not one inside"), "{answer}");
        assert_eq!(server.figures().pins, 0);
    });
}

#[test]
fn inputs_are_pinned_until_the_job_ends_and_outputs_until_it_is_forgotten() {
    with_server(async |server| {
        let input = some_bytes(1, 400_000);
        let inputs = tree(&[("large", &input)]);
        server.upload_tree("ann", &inputs, &[&input]).await;
        let files = json!({"root": inputs.root.to_string(), "outputs": ["*"]});
        assert_eq!(server.try_submit("ann", files.clone(), "?dry_run=true").await.0, 200);
        assert_eq!(server.figures().pins, 0, "a dry run needs nothing");
        let (first, second) =
            (server.submit("ann", files.clone()).await, server.submit("ann", files.clone()).await);
        assert_eq!(server.figures().pins, 2, "two jobs share the pins of a root and a file");
        // Room is made for other files, and not by what is needed.
        for seed in 3..6 {
            assert_eq!(server.upload("ann", &[&some_bytes(seed, 500_000)]).await, 204);
        }
        let refused = server.upload("ann", &[&some_bytes(9, 700_000)]).await;
        assert_eq!(refused, 503, "nothing is evicted that a job needs");
        server.keep(first, 0, &[("out", b"kept")]).await.unwrap();
        let outputs = server.figures().pinned_bytes;
        for job in [first, second] {
            assert!(server.missing("ann", &[inputs.root]).await.is_empty());
            server.end(job, 0, 0).await;
        }
        let pinned = tree(&[("out", b"kept")]).root.size + 4;
        until("the inputs are let go", async || server.figures().pinned_bytes == pinned).await;
        assert!(outputs > pinned);
        // Now it makes room, and a job that needs it cannot be tried again.
        assert_eq!(server.upload("ann", &[&some_bytes(9, 700_000)]).await, 204);
        assert!(!server.missing("ann", &[inputs.root, Digest::of(&input)]).await.is_empty());
        assert_eq!(server.try_submit("ann", files, "").await.0, 400);
        assert_eq!(server.listed("ann", first).await.outputs[0].bytes, 4, "outputs stay");
        server.handle.parts().job_ends.deleted(&[JobId(first)]);
        until("the outputs are forgotten", async || server.figures().pinned_bytes == 0).await;
        assert!(server.listed("ann", first).await.outputs.is_empty());
    });
}

#[test]
fn a_failed_job_is_tried_again_with_its_files_or_refused() {
    with_server(async |server| {
        let input = some_bytes(1, 400_000);
        let inputs = tree(&[("large", &input)]);
        server.upload_tree("ann", &inputs, &[&input]).await;
        let job = server.submit("ann", json!({"root": inputs.root.to_string()})).await;
        server.end(job, 0, 1).await;
        until("the inputs are let go", async || server.figures().pins == 0).await;
        let retry = format!("/api/v1/jobs/{job}/retry");
        let (status, answer) = server.json("POST", &retry, "ann", Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(server.figures().pins, 2);
        assert!(server.files_of("worker", job, 0).await.is_ok());
        let (status, _) = server.json("POST", &retry, "ann", Value::Null).await;
        assert!(status == 409 && server.figures().pins == 2, "one that runs keeps its files");
        server.end(job, 0, 1).await;
        until("the inputs are let go again", async || server.figures().pins == 0).await;
        assert_eq!(server.upload("ann", &[&some_bytes(9, 900_000)]).await, 204);
        let (status, answer) = server.json("POST", &retry, "ann", Value::Null).await;
        assert!(status == 409 && answer.to_string().contains("submit the job again"), "{answer}");
        assert_eq!(server.figures().pins, 0);
    });
}

#[test]
fn a_restart_forgets_no_file_of_a_job_and_drops_those_of_jobs_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::open("memory").unwrap();
        let server = FilesServer::start(dir.path(), &store, |_| {}).await;
        let input = some_bytes(1, 100_000);
        let inputs = tree(&[("large", &input)]);
        server.upload_tree("ann", &inputs, &[&input]).await;
        let files = json!({"root": inputs.root.to_string(), "outputs": ["*"]});
        let (job, other) = (server.submit("ann", files.clone()).await, server.submit("ann", files).await);
        server.keep(job, 0, &[("out", b"kept")]).await.unwrap();
        let before = server.figures();
        server.stop().await;
        let server = FilesServer::start(dir.path(), &store, |_| {}).await;
        until("what was left is read", async || server.figures().pins > 0).await;
        let after = server.figures();
        assert_eq!((after.pins, after.pinned_bytes), (before.pins, before.pinned_bytes));
        assert_eq!(server.files_of("worker", job, 0).await.unwrap().roots, [inputs.root.to_string()]);
        assert_eq!(server.listed("ann", job).await.outputs[0].bytes, 4);
        for job in [job, other] {
            server.end(job, 0, 0).await;
        }
        let pinned = tree(&[("out", b"kept")]).root.size + 4;
        until("the inputs are let go", async || server.figures().pinned_bytes == pinned).await;
        server.stop().await;
        // Another database: none of these jobs is there.
        let server = FilesServer::start(dir.path(), &Store::open("memory").unwrap(), |_| {}).await;
        let is_clean = async || {
            let figures = server.files.state().store.figures();
            figures.is_some_and(|figures| (figures.pins, figures.note_bytes) == (0, 0))
        };
        until("files of jobs that are gone are dropped", is_clean).await;
        server.stop().await;
    });
}

#[test]
fn uploads_and_outputs_count_for_their_user_s_day() {
    with_server_of(
        |options| options.upload_bytes_per_day = 10_000,
        async |server| {
            assert_eq!(server.upload("ann", &[&some_bytes(1, 6_000)]).await, 204);
            let job = server.submit("ann", json!({"outputs": ["*"]})).await;
            let (attempt, _) = server.booked(job, 0).await;
            let mut content = server.content("worker", &format!("{job}.0.{attempt}")).await;
            let codes = put(&mut content, &[&some_bytes(2, 3_000), &some_bytes(3, 3_000)]).await;
            assert_eq!(codes, [Code::Ok, Code::ResourceExhausted].map(|code| code as i32));
            let digest = Digest::of(&some_bytes(4, 2_000));
            let path = format!("/api/v1/files/blobs/{digest}");
            let (status, body) = server.http("PUT", &path, "ann", &some_bytes(4, 2_000)).await;
            assert!(status == 503 && String::from_utf8_lossy(&body).contains("today"), "{status}");
            assert_eq!(server.http("PUT", &path, "bob", &some_bytes(4, 2_000)).await.0, 204);
            // An administrator's job is excepted, as its user is.
            assert_eq!(server.upload("root", &[&some_bytes(5, 20_000)]).await, 204);
            let job = server.submit("root", json!({"outputs": ["*"]})).await;
            server.keep(job, 0, &[("large", &some_bytes(6, 20_000))]).await.unwrap();
        },
    );
}

#[test]
fn users_who_share_upload_a_file_once_for_all() {
    with_server_of(
        |options| options.users_share = true,
        async |server| {
            let inputs = tree(&[("a", b"shared")]);
            server.upload_tree("ann", &inputs, &[b"shared"]).await;
            assert!(server.missing("bob", &[inputs.root, Digest::of(b"shared")]).await.is_empty());
            server.submit("bob", json!({"root": inputs.root.to_string()})).await;
        },
    );
}

#[test]
fn files_of_jobs_need_no_open_cache() {
    with_server_of(
        |options| options.is_open = false,
        async |server| {
            let inputs = tree(&[("a", b"text")]);
            server.upload_tree("ann", &inputs, &[b"text"]).await;
            let job = server.submit("ann", json!({"root": inputs.root.to_string(), "outputs": ["*"]})).await;
            server.keep(job, 0, &[("out", b"kept")]).await.unwrap();
            let path = format!("/cache/cas/{}", Digest::of(b"text").hex());
            assert_eq!(server.http("GET", &path, "ann", b"").await.0, 404);
            let refused =
                read(&mut server.content("ann", "").await, "main", Digest::of(b"text")).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unimplemented);
        },
    );
}

#[test]
fn large_inputs_are_cache_keys_of_their_step() {
    with_server(async |server| {
        let inputs = tree(&[("a", b"text")]);
        server.upload_tree("ann", &inputs, &[b"text"]).await;
        let job = server.submit("ann", json!({"root": inputs.root.to_string()})).await;
        let (_, shown) = server.json("GET", &format!("/api/v1/jobs/{job}"), "ann", Value::Null).await;
        let key = format!("input:{}", inputs.root.hex());
        assert_eq!(shown["steps"][0]["caches"][&key], 4, "{shown}");
        let (_, shown) = server.json("GET", &format!("/api/v1/jobs/{job}"), "bob", Value::Null).await;
        assert!(!shown.to_string().contains(&inputs.root.hex()), "{shown}");
    });
}

/// The agent in the server's process does without a connection.
#[test]
fn the_agent_in_this_process_does_the_same() {
    with_server(async |server| {
        let inputs = tree(&[("a", b"text")]);
        server.upload_tree("ann", &inputs, &[b"text"]).await;
        let job = server.submit("ann", json!({"root": inputs.root.to_string(), "outputs": ["*"]})).await;
        let (attempt, epoch) = server.booked(job, 0).await;
        let (files, root) = (server.files.clone(), inputs.root);
        let kept = tokio::task::spawn_blocking(move || {
            let task = TaskId { job: JobId(job), index: 0 };
            assert_eq!(files.files_of(task, attempt).unwrap().roots, [root.to_string()]);
            let text = files.read(Digest::of(b"text")).unwrap().unwrap().into_bytes().unwrap();
            assert_eq!(text, b"text");
            assert!(files.read(Digest::of(b"nothing")).unwrap().is_none());
            let outputs = tree(&[("out", b"kept")]);
            let all: Vec<Digest> = outputs.messages.iter().map(|(digest, _)| *digest).collect();
            assert_eq!(files.missing(&all).unwrap(), all);
            let root = Some(outputs.root.to_string());
            let kept = KeptOutputs {
                task: Some(Task { job, index: 0, attempt }),
                epoch,
                root,
                ..KeptOutputs::default()
            };
            let refused = files.keep_outputs(kept.clone()).unwrap_err();
            assert_eq!(refused.fault, FilesFault::Outputs, "{refused}");
            for (digest, message) in &outputs.messages {
                files.put(task, attempt, *digest, message).unwrap();
            }
            files.put(task, attempt, Digest::of(b"kept"), b"kept").unwrap();
            let wrong = files.put(task, attempt, Digest::of(b"other"), b"wrong").unwrap_err();
            assert_eq!(wrong.fault, FilesFault::Job, "{wrong}");
            let stale = files.files_of(task, attempt + 1).unwrap_err();
            assert_eq!(stale.fault, FilesFault::Attempt, "{stale}");
            files.keep_outputs(kept)
        });
        kept.await.unwrap().unwrap();
        assert_eq!(server.listed("ann", job).await.outputs[0].bytes, 4);
        // What a job of hers has made she need not upload.
        assert!(server.missing("ann", &[Digest::of(b"kept")]).await.is_empty());
        assert_eq!(server.missing("bob", &[Digest::of(b"kept")]).await.len(), 1);
    });
}
