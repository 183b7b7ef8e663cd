//! The messages against recorded bytes of a stock 0.19 scheduler, client and build server.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_gateway_sccache::wire::*;

const EXAMPLES: &str = include_str!("golden/wire_examples.txt");
const SESSION: &[u8] = include_bytes!("golden/stock_0.19_session.bin");

/// The recorded bytes under a heading.
fn recorded(heading: &str) -> Vec<u8> {
    let at = EXAMPLES.lines().position(|line| line.starts_with(&format!("## {heading}")));
    let hex = EXAMPLES.lines().nth(at.unwrap_or_else(|| panic!("no example {heading}")) + 2).unwrap();
    hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn both_ways<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(heading: &str, value: &T) {
    let bytes = recorded(heading);
    assert_eq!(write(value), bytes, "{heading}");
    assert_eq!(&read::<T>(&bytes).unwrap(), value, "{heading}");
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        jwt_key: (0..32).collect(),
        num_cpus: 16,
        server_nonce: ServerNonce(0x1122_3344_5566_7788),
        cert_digest: (0xc0..0xe0).collect(),
        cert_pem: b"-----BEGIN CERTIFICATE-----\n".to_vec(),
    }
}

#[test]
fn recorded_messages_are_what_they_were() {
    both_ways("heartbeat_server request", &heartbeat());
    both_ways("heartbeat_server response", &HeartbeatResult { is_new: true });
    both_ways("ServerId v4", &ServerId("192.168.1.10:10501".parse().unwrap()));
    both_ways("ServerId v6", &ServerId("[2001:db8::1]:10501".parse().unwrap()));
    let msg = "Insufficient capacity across 0 available servers".to_owned();
    both_ways("alloc_job response Fail", &AllocJobResult::Fail { msg });
    let certificate = ServerCertificate { cert_digest: vec![0xab; 4], cert_pem: b"PEM".to_vec() };
    both_ways("server_certificate response", &certificate);
    let states = [JobState::Pending, JobState::Ready, JobState::Started, JobState::Complete];
    for state in states {
        both_ways(&format!("job_state request = {state:?}"), &state);
    }
    both_ways("job_state response Success", &UpdateJobStateResult::Success);
    both_ways("job_state response Fail", &UpdateJobStateResult::Fail { msg: "x".to_owned() });
    both_ways("status response", &SchedulerStatus { num_servers: 2, num_cpus: 48, in_progress: 5 });
    let ready = AssignJobResult { state: JobState::Ready, need_toolchain: false };
    both_ways("assign_job response Ready", &ready);
    let pending = AssignJobResult { state: JobState::Pending, need_toolchain: true };
    both_ways("assign_job response Pending", &pending);
    let archive_id = "d26d9b22bebe507d1bfe65a30ff442e3b055c02d3060ddbb3f6dac8025b41258".to_owned();
    both_ways("alloc_job / assign_job request body", &Toolchain { archive_id });
    let job_alloc = JobAlloc {
        auth: windlass_gateway_sccache::tokens::of_job(&heartbeat().jwt_key, JobId(7)).unwrap(),
        job_id: JobId(7),
        server_id: ServerId("192.168.1.10:10501".parse().unwrap()),
    };
    let cert_digest = heartbeat().cert_digest;
    let success = AllocJobResult::Success { job_alloc, need_toolchain: false, cert_digest };
    both_ways("alloc_job response Success", &success);
}

/// The bodies of a recorded session: request line, request, response.
fn session() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let find = |from: usize, what: &[u8]| {
        SESSION[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let body = |from: usize| find(from, b"\r\n\r\n").unwrap() + 4;
    let (mut exchanges, mut at) = (Vec::new(), 0);
    while let Some(request) = find(at, b" request\n") {
        let request = request + b" request\n".len();
        let line = String::from_utf8_lossy(&SESSION[request..request + 120]);
        let line = line.lines().next().unwrap().to_owned();
        let response = find(request, b" response\n").unwrap();
        let end = find(response, b"\n=== conn ").unwrap_or(SESSION.len() - 1);
        let heading = SESSION[..response].windows(5).rposition(|window| window == b"\n=== ").unwrap();
        let answer = body(response);
        exchanges.push((line, SESSION[body(request)..heading].to_vec(), SESSION[answer..end].to_vec()));
        at = end;
    }
    exchanges
}

#[test]
fn a_recorded_session_reads_and_writes_to_the_same_bytes() {
    let session = session();
    assert!(session.len() >= 50, "{} exchanges", session.len());
    let mut jobs = 0;
    for (line, request, response) in session {
        let path = line.split(' ').nth(1).unwrap().rsplit("/scheduler/").next().unwrap().to_owned();
        match path.split('/').next().unwrap() {
            "heartbeat_server" => {
                let (heartbeat, tail) = Heartbeat::read(&request).unwrap();
                assert_eq!((write(&heartbeat), tail), (request, None));
                assert_eq!(read::<HeartbeatResult>(&response).unwrap(), HeartbeatResult { is_new: true });
            }
            "status" => assert_eq!(read::<SchedulerStatus>(&response).unwrap().num_servers, 1),
            "alloc_job" => {
                assert_eq!(write(&read::<Toolchain>(&request).unwrap()), request);
                let answer: AllocJobResult = read(&response).unwrap();
                assert_eq!(write(&answer), response);
                jobs += usize::from(matches!(answer, AllocJobResult::Success { .. }));
            }
            "server_certificate" => {
                assert_eq!(write(&read::<ServerCertificate>(&response).unwrap()), response);
            }
            "job_state" => {
                assert_eq!(write(&read::<JobState>(&request).unwrap()), request);
                assert_eq!(response, write(&UpdateJobStateResult::Success));
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(jobs, 15);
}

/// The bytes of a heartbeat with its load as the sixth field. Stock schedulers ignore bytes after the fields that they
/// know.
pub fn with_load(heartbeat: &Heartbeat, load: &ServerLoadMetrics) -> Vec<u8> {
    [write(heartbeat), write(&Some(*load))].concat()
}

/// `Some` of cpu 12.5, memory 95 and io 0.5 percent, 3 jobs, a load average of 1.5, and 2,048 MiB.
const LOAD: [u8; 33] = [
    1, 0, 0, 0x48, 0x41, 0, 0, 0xbe, 0x42, 0, 0, 0, 0x3f, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0x3f, 0, 8, 0,
    0, 0, 0, 0, 0,
];

#[test]
fn bytes_behind_a_message_are_ignored_and_a_load_is_read() {
    let load = ServerLoadMetrics {
        cpu_pressure_avg10: 12.5,
        memory_pressure_avg10: 95.0,
        io_pressure_avg10: 0.5,
        active_jobs: 3,
        load_average_1min: 1.5,
        available_memory_mb: 2_048,
    };
    let bytes = with_load(&heartbeat(), &load);
    assert_eq!(bytes, [write(&heartbeat()), LOAD.to_vec()].concat());
    assert_eq!(Heartbeat::read(&bytes).unwrap(), (heartbeat(), Some(load)));
    assert_eq!(read::<Heartbeat>(&bytes).unwrap(), heartbeat(), "as a stock scheduler reads it");
    for other in [vec![0], vec![7; 33], vec![7; 40], LOAD[..32].to_vec(), [&LOAD[..], &[0; 8]].concat()] {
        let bytes = [write(&heartbeat()), other].concat();
        assert_eq!(Heartbeat::read(&bytes).unwrap(), (heartbeat(), None));
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let whole = write(&heartbeat());
    for end in 0..whole.len() {
        assert!(Heartbeat::read(&whole[..end]).is_err(), "{end} bytes");
    }
    assert!(matches!(read::<Heartbeat>(&vec![0; BODY_BYTES_MAX + 1]), Err(BadBody::TooLong(_))));
    // A length that no memory has.
    let bomb = [(1_u64 << 60).to_le_bytes().to_vec(), vec![0; 100]].concat();
    assert!(read::<Heartbeat>(&bomb).is_err());
    for id in ["", "xyz", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65)] {
        assert!(read::<Toolchain>(&write(&id)).is_err(), "{id}");
    }
    assert_eq!(read::<Toolchain>(&write(&"A".repeat(64))).unwrap().archive_id, "a".repeat(64));
    assert!(read::<JobState>(&4_u32.to_le_bytes()).is_err());
}

#[test]
fn json_is_the_same_messages() {
    let json = |value: &dyn erased::Json| value.json();
    assert_eq!(
        json(&SchedulerStatus { num_servers: 1, num_cpus: 2, in_progress: 0 }),
        r#"{"num_servers":1,"num_cpus":2,"in_progress":0}"#
    );
    assert_eq!(json(&AllocJobResult::Fail { msg: "x".to_owned() }), r#"{"Fail":{"msg":"x"}}"#);
}

mod erased {
    pub trait Json {
        fn json(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> String {
            serde_json::to_string(self).unwrap()
        }
    }
}

/// A million random bodies: none may panic, and none may take memory that it does not have.
#[test]
fn a_million_random_bodies_do_no_harm() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let whole = write(&heartbeat());
    for round in 0..1_000_000_u32 {
        let mut body = [0_u8; 160];
        let length = (next() % 160) as usize;
        if round % 2 == 0 {
            body[..132].copy_from_slice(&whole);
            for _ in 0..=next() % 4 {
                body[(next() % 132) as usize] = next() as u8;
            }
        } else {
            body.fill_with(|| next() as u8);
        }
        let body = &body[..length];
        let read_some = [
            Heartbeat::read(body).is_ok(),
            read::<Toolchain>(body).is_ok(),
            read::<JobState>(body).is_ok(),
            read::<AssignJobResult>(body).is_ok(),
        ];
        assert!(length > 0 || read_some == [false; 4]);
    }
}

proptest! {
    #[test]
    fn every_answer_comes_back(
        auth in ".{0,200}", job in any::<u64>(), port in any::<u16>(), need in any::<bool>(),
        digest in prop::collection::vec(any::<u8>(), 0..64), octets in any::<[u8; 4]>(),
    ) {
        let server_id = ServerId((octets, port).into());
        let job_alloc = JobAlloc { auth, job_id: JobId(job), server_id };
        let answer = AllocJobResult::Success { job_alloc, need_toolchain: need, cert_digest: digest };
        prop_assert_eq!(read::<AllocJobResult>(&write(&answer)).unwrap(), answer);
    }
}
