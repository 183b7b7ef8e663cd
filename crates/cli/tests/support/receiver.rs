//! An address of webhooks that hangs at first, or answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Listens on a port of its own.
pub struct Receiver {
    /// Its host and port.
    pub host: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    answers: AtomicBool,
    requests: AtomicUsize,
    taken: Mutex<Vec<Taken>>,
}

/// A request that was answered.
#[derive(Clone)]
pub struct Taken {
    /// Its header lines, in lower case.
    pub head: Vec<String>,
    pub body: String,
}

impl Taken {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Receiver {
    /// It takes connections and requests, and answers none.
    pub fn hanging() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = shared.clone();
                std::thread::spawn(move || _ = serve(&stream, &seen));
            }
        });
        Receiver { host, seen }
    }

    /// It answers all requests from the beginning.
    pub fn answering() -> Receiver {
        let receiver = Receiver::hanging();
        receiver.answer();
        receiver
    }

    /// From now on it answers. Requests that it has are not answered.
    pub fn answer(&self) {
        self.seen.answers.store(true, Ordering::SeqCst);
    }

    /// How many requests came.
    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// The requests that were answered.
    pub fn taken(&self) -> Vec<Taken> {
        self.seen.taken.lock().unwrap().clone()
    }

    /// How many were answered.
    pub fn count(&self) -> usize {
        self.seen.taken.lock().unwrap().len()
    }
}

fn serve(mut stream: &TcpStream, seen: &Seen) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_lowercase()),
            }
        }
        let mut taken = Taken { head, body: String::new() };
        let length = taken.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        taken.body = String::from_utf8(body).unwrap();
        seen.requests.fetch_add(1, Ordering::SeqCst);
        if !seen.answers.load(Ordering::SeqCst) {
            // Until the client has waited long enough.
            reader.read_exact(&mut [0])?;
            return Ok(());
        }
        seen.taken.lock().unwrap().push(taken);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
    }
}
