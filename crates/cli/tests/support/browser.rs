//! Requests as a browser sends them, word by word.

use super::PATIENCE;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header; empty without one.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The session that the answer brings, as `NAME=VALUE`.
    pub fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
    }
}

/// A browser with one page of one server open.
pub struct Browser {
    pub host: String,
    /// The session, as `NAME=VALUE`.
    pub cookie: String,
}

impl Browser {
    pub fn new(host: &str) -> Browser {
        Browser { host: host.to_owned(), cookie: String::new() }
    }

    /// Signs in, as the board's script does.
    pub fn sign_in(&mut self, what: &str, secret: &str) -> Answer {
        let body = serde_json::json!({ what: secret }).to_string();
        let answer = self.change("POST", "/api/v1/board/session", &body);
        self.cookie = answer.cookie();
        answer
    }

    /// A request of the board's script that looks.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[("Sec-Fetch-Site", "same-origin")], "")
    }

    /// A request of the board's script that changes something.
    pub fn change(&self, method: &str, path: &str, body: &str) -> Answer {
        let origin = format!("http://{}", self.host);
        let mut headers =
            vec![("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-origin"), ("X-Windlass-Board", "1")];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        self.ask(method, path, &headers, body)
    }

    /// Any request, with the session if there is one.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host =
            headers.iter().find(|(name, _)| *name == "Host").map_or(self.host.as_str(), |(_, host)| host);
        let (mut stream, mut reader) = self.connect();
        let length = if body.is_empty() && method == "GET" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}");
        for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.cookie.is_empty() {
            head.push_str(&format!("Cookie: other=1; {}\r\n", self.cookie));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let (status, headers) = read_head(&mut reader);
        let mut body = Vec::new();
        reader.read_to_end(&mut body).unwrap();
        Answer { status, headers, body }
    }

    /// The event stream, after its head.
    pub fn events(&self) -> (u16, BufReader<TcpStream>) {
        let (mut stream, mut reader) = self.connect();
        let head = format!(
            "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: text/event-stream\r\nSec-Fetch-Site: same-origin\r\n\
             Cookie: {}\r\n\r\n",
            self.host, self.cookie
        );
        stream.write_all(head.as_bytes()).unwrap();
        let (status, _) = read_head(&mut reader);
        (status, reader)
    }

    fn connect(&self) -> (TcpStream, BufReader<TcpStream>) {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        (stream, reader)
    }
}

fn read_head(reader: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let status = lines.first().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let pairs = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
    (status, pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect())
}
