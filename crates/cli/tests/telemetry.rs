//! Traces: a build with the feature `otlp` sends them to a collector, and others refuse the setting.

use crate::support::{self, Farm};

fn config(farm: &Farm, text: &str) -> String {
    let file = farm.path().join("server.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_collector_is_named_by_a_url() {
    let farm = Farm::new();
    for bad in ["farm:4318", "http://", "https:///v1"] {
        let file = config(&farm, &format!("[telemetry]\notlp = '{bad}'"));
        let said = farm.fails(1, &["server", "start", "--config", &file]);
        assert!(said.contains("telemetry.otlp must be") && said.contains(bad), "{said}");
    }
}

#[cfg(not(feature = "otlp"))]
mod without {
    use super::*;

    #[test]
    fn the_setting_is_refused_with_the_build_that_has_it() {
        let farm = Farm::new();
        let file = config(&farm, "[telemetry]\notlp = 'http://127.0.0.1:4318'");
        let said = farm.fails(1, &["server", "start", "--config", &file]);
        assert!(said.contains("telemetry.otlp is set"), "{said}");
        assert!(said.contains("--features windlass-cli/otlp"), "{said}");
    }

    #[test]
    fn the_variable_of_all_programs_only_makes_a_warning() {
        let farm = Farm::new();
        let mut server = farm.command(&["server", "start", "--no-worker", "--set", "idle_minutes=0.001"]);
        let server = server.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").output().unwrap();
        let said = String::from_utf8_lossy(&server.stderr);
        assert!(server.status.success() && said.contains("OTEL_EXPORTER_OTLP_ENDPOINT is set"), "{said}");
        // A server in the background is not started with it.
        let mut run = farm.command(&["run", "--", "true"]);
        let run = run.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").output().unwrap();
        assert!(run.status.success(), "{}", support::show(&run));
        let log = std::fs::read_to_string(farm.state().join("server.log")).unwrap();
        assert!(!log.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{log}");
    }
}

#[cfg(feature = "otlp")]
mod with {
    use super::*;
    use crate::support::port::Port;
    use prost::Message;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[derive(Clone, PartialEq, Message)]
    struct Export {
        #[prost(message, repeated, tag = "1")]
        resources: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        scopes: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Resource {
        #[prost(message, repeated, tag = "1")]
        attributes: Vec<Attribute>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Span {
        #[prost(bytes = "vec", tag = "4")]
        parent: Vec<u8>,
        #[prost(string, tag = "5")]
        name: String,
        #[prost(int32, tag = "6")]
        kind: i32,
        #[prost(fixed64, tag = "7")]
        start_ns: u64,
        #[prost(fixed64, tag = "8")]
        end_ns: u64,
        #[prost(message, repeated, tag = "9")]
        attributes: Vec<Attribute>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Attribute {
        #[prost(string, tag = "1")]
        key: String,
        #[prost(message, optional, tag = "2")]
        value: Option<AttributeValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct AttributeValue {
        #[prost(string, optional, tag = "1")]
        text: Option<String>,
        #[prost(int64, optional, tag = "3")]
        number: Option<i64>,
    }

    fn text<'a>(attributes: &'a [Attribute], key: &str) -> Option<&'a str> {
        attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.text.as_deref()
    }

    fn number(span: &Span, key: &str) -> Option<i64> {
        span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.number
    }

    /// A collector that takes everything: its address, and what comes.
    fn collect() -> (String, Receiver<(String, Export)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, exports) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                std::thread::spawn(move || answer(&connection, &sender));
            }
        });
        (url, exports)
    }

    /// Answers the requests of a connection; `None` when it is closed.
    fn answer(connection: &TcpStream, sender: &Sender<(String, Export)>) -> Option<()> {
        let mut reader = BufReader::new(connection);
        loop {
            let (mut line, mut bytes) = (String::new(), 0);
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let path = line.split(' ').nth(1)?.to_owned();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).ok()?;
                let Some((name, value)) = header.trim().split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    bytes = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; bytes];
            reader.read_exact(&mut body).ok()?;
            sender.send((path, Export::decode(&*body).unwrap())).ok()?;
            let mut connection = connection;
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
        }
    }

    /// The spans of a farm that ran a task, and had a worker elsewhere, until its server ended.
    fn spans(exports: Receiver<(String, Export)>) -> Vec<Span> {
        let mut spans = Vec::new();
        // What was sent before the server ended is in the channel, or in the collector's threads.
        while let Ok((path, export)) = exports.recv_timeout(std::time::Duration::from_secs(1)) {
            assert_eq!(path, "/v1/traces");
            for of in export.resources {
                let attributes = of.resource.unwrap().attributes;
                assert_eq!(text(&attributes, "service.name"), Some("windlass"), "{attributes:?}");
                spans.extend(of.scopes.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }

    fn check(spans: &[Span]) {
        let named = |name: &str| {
            let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
            assert!(!found.is_empty(), "no '{name}' in {spans:#?}");
            found
        };
        for span in spans {
            assert!(span.end_ns >= span.start_ns && span.start_ns > 0 && span.parent.is_empty(), "{span:?}");
        }
        let submit = named("POST /api/v1/jobs")[0];
        assert_eq!(number(submit, "http.response.status_code"), Some(201), "{submit:?}");
        assert_eq!((text(&submit.attributes, "http.route"), submit.kind), (Some("/api/v1/jobs"), 2));
        named("GET /api/v1/jobs/{id}");
        // Only what booked something is sent.
        let bookings: Vec<i64> =
            named("round").iter().map(|round| number(round, "bookings").unwrap()).collect();
        assert!(
            bookings.iter().all(|booked| *booked > 0) && bookings.iter().sum::<i64>() == 1,
            "{bookings:?}"
        );
        let stream = named("worker stream")[0];
        assert_eq!(text(&stream.attributes, "worker"), Some("box1"), "{stream:?}");
        assert_eq!(text(&stream.attributes, "ended"), Some("the server is ending"), "{stream:?}");
        for commit in named("commit") {
            assert!(
                number(commit, "writes").unwrap() > 0 && number(commit, "refused") == Some(0),
                "{commit:?}"
            );
        }
    }

    #[test]
    fn what_the_server_does_reaches_a_collector_before_the_server_ends() {
        let (url, exports) = collect();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.toml");
        std::fs::write(&file, format!("[telemetry]\notlp = '{url}/'")).unwrap();
        let mut port = Port::open_in(dir, &["--no-worker", "--config", file.to_str().unwrap()]);
        let token = port.token(&["--role", "worker", "--worker", "box1"]);
        let worker = port.worker(&token, "box1");
        // Its exit code says whether the worker is there already.
        port.admin_output(&["submit", "--", "true"]);
        port.admin(&["job", "wait", "1"]);
        port.admin(&["job", "show", "1"]);
        port.admin(&["server", "stop"]);
        port.server.wait().unwrap();
        drop(worker);
        assert!(port.log().contains(&format!("traces are sent to {url}")), "{}", port.log());
        check(&spans(exports));
    }

    #[test]
    fn the_variable_of_all_programs_names_a_collector_too() {
        let (url, exports) = collect();
        let farm = Farm::new();
        let mut server = farm.command(&["server", "start", "--no-worker"]);
        let server = server.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).stderr(std::process::Stdio::null());
        let mut server = server.spawn().unwrap();
        support::wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
        farm.ok(&["server", "stop"]);
        server.wait().unwrap();
        assert!(spans(exports).iter().any(|span| span.name == "GET /api/v1/version"));
    }

    #[test]
    fn a_collector_that_is_gone_is_said_once_and_delays_nothing() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut farm = Farm::new();
        let file = config(&farm, &format!("[telemetry]\notlp = 'http://{gone}'"));
        farm.set_options(&["--cpus", "1", "--config", &file]);
        farm.start();
        for _ in 0..3 {
            farm.ok(&["run", "--", "true"]);
        }
        farm.ok(&["server", "stop"]);
        let log = farm.server_log();
        assert_eq!(log.matches("spans cannot be sent to").count(), 1, "{log}");
    }
}
