//! A client of several servers, against small servers of this test: what is asked again elsewhere, what is not, and who
//! is shown a token.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use windlass_api::client::{Client, ClientError, Credentials, files, task_sets};
use windlass_api::{Address, CreateToken, Role, SubmitRequest};

/// How a server of this test behaves.
#[derive(Clone)]
enum Manner {
    /// It answers every request so.
    Says(u16, String),
    /// It reads the request and closes the connection.
    Cuts,
    /// It sends half of an answer.
    Breaks,
    /// It accepts connections and says nothing.
    Hangs,
    /// It redirects each request to that address.
    Redirects(String),
}

/// A server, and the requests that it got.
struct Fake {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn new(manner: Manner) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming().flatten() {
                match manner {
                    Manner::Hangs => kept.push(stream),
                    _ => serve(stream, &manner, &seen),
                }
            }
        });
        Fake { address, requests }
    }

    fn says(status: u16, body: &str) -> Fake {
        Fake::new(Manner::Says(status, body.to_owned()))
    }

    /// One that is there and says its version.
    fn well() -> Fake {
        Fake::says(200, r#"{"name":"windlass","version":"1","store":"memory","pid":7}"#)
    }

    /// One that has no owner to ask.
    fn ownerless() -> Fake {
        Fake::says(503, r#"{"error":{"code":"unavailable","message":"no server owns the scheduling now"}}"#)
    }

    fn lines(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| request.lines().next().unwrap_or_default().to_owned()).collect()
    }

    fn tokens(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let lines = requests.iter().flat_map(|request| request.lines());
        lines.filter_map(|line| line.strip_prefix("authorization: Bearer ")).map(str::to_owned).collect()
    }
}

/// One request for each connection.
fn serve(mut stream: TcpStream, manner: &Manner, seen: &Mutex<Vec<String>>) {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    loop {
        // The beginning of TLS, of which it knows nothing.
        if request.first() == Some(&0x16) {
            _ = stream.write_all(b"HTTP/1.1 400 X\r\n\r\n");
            return;
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let is_chunked = head.lines().any(|line| line == "transfer-encoding: chunked");
            if body.len() >= length.unwrap_or(0) && (!is_chunked || body.ends_with("0\r\n\r\n")) {
                break;
            }
        }
        match stream.read(&mut part) {
            Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
            _ => return,
        }
    }
    seen.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
    let answer = match manner {
        Manner::Says(status, body) => {
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        }
        Manner::Breaks => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"name\":".to_owned(),
        Manner::Redirects(to) => {
            format!("HTTP/1.1 307 X\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        }
        Manner::Cuts | Manner::Hangs => String::new(),
    };
    _ = stream.write_all(answer.as_bytes());
}

/// An address without a listener.
fn refused() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn client(addresses: &[&str]) -> Client {
    let shown = |token: String| Credentials { token: Some(token), ..Credentials::default() };
    let named = addresses.iter().enumerate();
    let named = named.map(|(n, address)| (Address::parse(address), shown(format!("wl_{n}")))).collect();
    Client::among(named, |_| {}).unwrap()
}

fn run<T>(asked: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(asked)
}

fn token() -> CreateToken {
    CreateToken::of(Role::Viewer)
}

#[test]
fn without_a_listener_the_next_is_asked_and_stays_the_first() {
    let (well, other) = (Fake::well(), Fake::well());
    let client = client(&[&refused(), &well.address, &other.address]);
    run(async {
        client.version().await.unwrap();
        client.clone().version().await.unwrap();
    });
    assert_eq!(client.address(), &Address::parse(&well.address));
    assert_eq!((well.lines().len(), other.lines().len()), (2, 0));
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_where_that_does_no_harm() {
    for manner in [Manner::Cuts, Manner::Breaks] {
        let (lost, well) = (Fake::new(manner), Fake::says(200, "{}"));
        let ask = |verb: &'static str| {
            let client = client(&[&lost.address, &well.address]);
            run(async move { client.act(5, verb).await })
        };
        for verb in ["cancel", "hold", "release"] {
            // The answer of this test's server is not a job, which shows that it was asked.
            assert!(matches!(ask(verb), Err(ClientError::NoneAnswers(_))), "{verb}");
        }
        assert_eq!(well.lines().len(), 3);
        let asks = client(&[&lost.address, &well.address]);
        let unsure = run(async move { task_sets::retry(&asks, 5, None, false).await.unwrap_err() });
        assert!(matches!(&unsure, ClientError::Unsure { .. }), "{unsure}");
        assert!(unsure.to_string().contains(&lost.address), "{unsure}");
        assert!(!unsure.is_temporary(), "it is not made again");
        assert_eq!((lost.lines().len(), well.lines().len()), (4, 3));
    }
}

#[test]
fn a_submission_is_made_again_if_its_key_makes_it_one() {
    let (lost, well) = (Fake::new(Manner::Cuts), Fake::says(201, r#"{"job":9,"existing":false}"#));
    let submit = |key: Option<&str>| {
        let client = client(&[&lost.address, &well.address]);
        let request = SubmitRequest { key: key.map(str::to_owned), ..SubmitRequest::default() };
        run(async move { client.submit(&request).await })
    };
    assert_eq!(submit(Some("k")).unwrap().job, 9);
    assert!(matches!(submit(None), Err(ClientError::Unsure { .. })));
    assert_eq!(well.lines(), ["POST /api/v1/jobs HTTP/1.1"]);
}

#[test]
fn a_file_is_sent_from_its_beginning_to_each_server_that_is_tried() {
    let (ownerless, well) = (Fake::ownerless(), Fake::says(204, ""));
    let client = client(&[&ownerless.address, &well.address]);
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let open = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let from: Box<dyn std::io::Read + Send> = Box::new(&b"hello"[..]);
        Ok(from)
    };
    run(async { files::upload_blob(&client, "abc/5", open).await.unwrap() });
    for server in [&ownerless, &well] {
        assert_eq!(server.lines(), ["PUT /api/v1/files/blobs/abc/5 HTTP/1.1"]);
        assert!(server.requests.lock().unwrap()[0].contains("\r\nhello\r\n"));
    }
    assert_eq!(opened.load(Ordering::SeqCst), 2);
    let gone = || Err(std::io::Error::other("it is gone"));
    let error = run(async { files::upload_blob(&client, "abc/5", gone).await.unwrap_err() });
    assert!(error.to_string().contains("it is gone"), "{error}");
}

#[test]
fn small_files_are_sent_together() {
    let well = Fake::says(204, "");
    let client = client(&[&well.address]);
    let blobs = [("abc/5", &b"hello"[..]), ("def/0", &b""[..])];
    let blobs = blobs.map(|(blob, bytes)| (blob.to_owned(), bytes.to_vec()));
    run(async { files::upload_blobs(&client, &blobs).await.unwrap() });
    assert!(well.requests.lock().unwrap()[0].ends_with("\r\n\r\nabc 5\nhellodef 0\n"));
    run(async { files::upload_blobs(&client, &[]).await.unwrap() });
    assert_eq!(well.lines(), ["POST /api/v1/files/blobs HTTP/1.1"]);
}

#[test]
fn a_server_without_an_owner_leaves_the_answer_to_the_next() {
    let (ownerless, well) = (Fake::ownerless(), Fake::well());
    let client = client(&[&ownerless.address, &well.address]);
    run(async { client.version().await.unwrap() });
    let none = self::client(&[&ownerless.address, &refused()]);
    let error = run(async move { none.version().await.unwrap_err() });
    assert!(error.is_temporary() && error.was_sent(), "{error}");
    let text = error.to_string();
    assert!(text.contains("no server owns the scheduling now") && text.contains("refused"), "{text}");
    // It says that it did nothing, and what must not be made twice is left to the person.
    let one = self::client(&[&ownerless.address, &well.address]);
    let error = run(async move { one.create_token(&token()).await.unwrap_err() });
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    assert_eq!(well.lines().len(), 1);
}

#[test]
fn a_refusal_is_an_answer() {
    let denied = Fake::says(403, r#"{"error":{"code":"forbidden","message":"not yours"}}"#);
    let well = Fake::well();
    let client = client(&[&denied.address, &well.address]);
    let error = run(async { client.version().await.unwrap_err() });
    assert_eq!(error.to_string(), "not yours");
    assert!(well.lines().is_empty());
}

#[test]
fn each_server_is_shown_its_own_token_and_a_redirect_is_not_followed() {
    let elsewhere = Fake::well();
    let redirects = Fake::new(Manner::Redirects(format!("http://{}/api/v1/version", elsewhere.address)));
    let well = Fake::well();
    let client = client(&[&redirects.address, &well.address]);
    run(async { client.version().await.unwrap() });
    assert_eq!((redirects.tokens(), well.tokens()), (vec!["wl_0".to_owned()], vec!["wl_1".to_owned()]));
    assert!(elsewhere.lines().is_empty());
}

#[test]
fn a_server_that_says_nothing_is_left_for_the_next() {
    let (hangs, well) = (Fake::new(Manner::Hangs), Fake::well());
    let client = client(&[&hangs.address, &well.address]);
    run(async { client.version().await.unwrap() });
    assert_eq!(client.address(), &Address::parse(&well.address));
}

#[test]
fn what_is_wrong_at_one_address_is_told_once() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (plain, well) = (Fake::well(), Fake::well());
    let named = [format!("https://{}", plain.address), well.address.clone()];
    let named = named.iter().map(|address| (Address::parse(address), Credentials::default())).collect();
    let client = Client::among(named, |what| TOLD.lock().unwrap().push(what.to_owned())).unwrap();
    run(async {
        client.version().await.unwrap();
        // As if the second server had stopped.
        let address = client.address().clone();
        client.pass(&ClientError::Garbled { address, source: "it hung up".into() });
        client.version().await.unwrap();
    });
    let told = TOLD.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&plain.address), "{told:?}");
    // If no other is left it is an error that waiting does not mend.
    let twice = [&over_tls(&plain.address, "127.0.0.1"), &over_tls(&plain.address, "localhost")];
    let none = self::client(&twice.map(String::as_str));
    let error = run(async move { none.version().await.unwrap_err() });
    assert!(!error.is_temporary(), "{error}");
    let alone = Client::new(Address::parse(&format!("https://{}", plain.address))).unwrap();
    assert!(run(async { alone.version().await }).is_err());
}

/// An address for TLS where there is none, by that name of this machine.
fn over_tls(address: &str, host: &str) -> String {
    format!("https://{host}:{}", address.rsplit_once(':').unwrap().1)
}

#[test]
fn one_address_fails_as_itself() {
    let address = refused();
    let client = client(&[&address]);
    let error = run(async { client.version().await.unwrap_err() });
    assert!(matches!(error, ClientError::Unreachable { .. }) && !error.was_sent(), "{error}");
    let cut = Fake::new(Manner::Cuts);
    let alone = self::client(&[&cut.address]);
    let error = run(async { task_sets::retry(&alone, 5, None, false).await.unwrap_err() });
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.was_sent(), "{error}");
}

#[test]
fn an_output_from_its_end_on_tells_where_it_begins() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        _ = stream.read(&mut [0; 4096]);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nwindlass-log-offset: 41\r\ncontent-length: 3\r\n\r\nabc");
    });
    let query = windlass_api::client::LogQuery { stream: "stdout", offset: Some(-3), ..Default::default() };
    let begins =
        run(async { client(&[&address]).log("1.0", &query).await.map(|(begins, _)| begins).unwrap() });
    assert_eq!(begins, Some(41));
}
