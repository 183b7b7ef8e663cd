//! Connections that take and give nothing back: silent ones, slow ones, those that hold what they began, and garbage. One
//! flood is of one address, and against one port.

use crate::support::Random;
use crate::support::port::connect_from;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections of each kind.
const SILENT: usize = 2_000;
const SLOW: usize = 200;
const HELD: usize = 12;
const LARGE: usize = 8;
const RANDOM: usize = 100;
/// Requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 256;
/// Bytes of one body that is held over HTTP/2, where the server lets them come.
const HELD_BYTES: usize = 60_000;
/// How long a server may take to read what was sent before it counts as held.
const READS: Duration = Duration::from_millis(200);
/// Between two bytes of a slow connection.
const BETWEEN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What a flood is against.
pub struct Victim {
    pub host: String,
    /// The address that the flood comes from.
    pub from: String,
    /// A path that takes bodies, and bytes of the largest one.
    pub path: &'static str,
    pub body_bytes_max: usize,
}

/// A connection that the server has to end.
struct Open {
    kind: &'static str,
    stream: TcpStream,
    /// The last byte of it that was not dribbled.
    since: Instant,
    dribbles: bool,
}

/// How many connections there were of each kind, and how long the server took to end the last of them.
pub type Ended = BTreeMap<&'static str, (usize, Duration)>;

/// Opens all kinds of connections, and waits until the server has ended them, or until none ends within `patience`.
pub fn run(victim: &Victim, patience: Duration) -> Ended {
    let mut open = Vec::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..SILENT {
        open.push(victim.open("silent", b"", false));
    }
    let slow_head = format!("POST {} HTTP/1.1\r\nHost: ", victim.path);
    let slow_body = victim.head("Content-Length: 4000\r\n");
    for _ in 0..SLOW {
        open.push(victim.open("slow head", slow_head.as_bytes(), true));
        open.push(victim.open("slow body", slow_body.as_bytes(), true));
    }
    for _ in 0..HELD {
        open.push(victim.hold_streams());
    }
    for number in 0..LARGE {
        open.push(victim.large(number % 2 == 0));
    }
    for _ in 0..RANDOM {
        open.push(victim.random(&mut random));
    }
    until_ended(open, patience)
}

/// Reads and dribbles until all are ended.
fn until_ended(mut open: Vec<Open>, patience: Duration) -> Ended {
    let mut ended = Ended::new();
    open.iter().for_each(|open| open.stream.set_nonblocking(true).unwrap());
    let (mut bytes, mut dribbled) = (vec![0; 1 << 16], Instant::now());
    while !open.is_empty() {
        let mut fds: Vec<PollFd<'_>> =
            open.iter().map(|open| PollFd::new(&open.stream, PollFlags::IN)).collect();
        // A signal may cut it short.
        _ = poll(&mut fds, Some(&BETWEEN));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        open.retain_mut(|open| {
            let over = ready.next().unwrap_or(false) && open.is_over(&mut bytes);
            if over {
                let (count, longest) = ended.entry(open.kind).or_default();
                (*count, *longest) = (*count + 1, open.since.elapsed().max(*longest));
            }
            !over
        });
        if dribbled.elapsed() >= Duration::from_secs(1) {
            dribbled = Instant::now();
            for open in open.iter_mut().filter(|open| open.dribbles) {
                _ = open.stream.write(b"x");
            }
        }
        let late = open.iter().find(|open| open.since.elapsed() > patience);
        assert!(late.is_none(), "a connection with a {} is open after {patience:?}", late.unwrap().kind);
    }
    ended
}

impl Open {
    /// True once the server has closed it. What it says is read and forgotten.
    fn is_over(&mut self, bytes: &mut [u8]) -> bool {
        match self.stream.read(bytes) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

impl Victim {
    fn connect(&self) -> TcpStream {
        let stream = connect_from(&self.from, &self.host);
        // A server that reads no more must not hold up the flood.
        stream.set_write_timeout(Some(READS)).unwrap();
        stream.set_read_timeout(Some(READS)).unwrap();
        stream
    }

    fn open(&self, kind: &'static str, bytes: &[u8], dribbles: bool) -> Open {
        let mut stream = self.connect();
        _ = stream.write_all(bytes);
        Open { kind, stream, since: Instant::now(), dribbles }
    }

    fn head(&self, more: &str) -> String {
        let Victim { host, path, .. } = self;
        format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{more}\r\n")
    }

    /// The largest body but for its last byte, with its length in the head or in chunks.
    fn large(&self, has_length: bool) -> Open {
        let more = match has_length {
            true => format!("Content-Length: {}\r\n", self.body_bytes_max),
            false => "Transfer-Encoding: chunked\r\n".to_owned(),
        };
        let mut open = self.open("large body", self.head(&more).as_bytes(), false);
        let mut left = self.body_bytes_max - 1;
        while left > 0 {
            let part = "x".repeat(left.min(1 << 16));
            left -= part.len();
            let sent = match has_length {
                true => open.stream.write_all(part.as_bytes()),
                false => open.stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()),
            };
            if sent.is_err() {
                break;
            }
        }
        Open { since: Instant::now(), ..open }
    }

    fn random(&self, random: &mut Random) -> Open {
        let mut bytes = if random.below(2) == 0 { PREFACE.to_vec() } else { Vec::new() };
        bytes.extend((0..4_096).map(|_| random.below(256) as u8));
        self.open("random frames", &bytes, false)
    }

    /// Many requests on one HTTP/2 connection, whose bodies come as far as the server's windows allow, and never end.
    fn hold_streams(&self) -> Open {
        let mut peer = Http2 { stream: self.connect(), window: 65_535, read: Vec::new(), over: false };
        peer.send(PREFACE);
        peer.send(&frame(SETTINGS, 0, 0, &[]));
        let head = self.fields();
        for number in 0..STREAMS {
            peer.send(&frame(HEADERS, END_HEADERS, number * 2 + 1, &head));
        }
        let part = [b'x'; 12_000];
        for _ in 0..HELD_BYTES / part.len() {
            for number in 0..STREAMS {
                while peer.window < part.len() && peer.hear() {}
                if peer.window < part.len() || peer.over {
                    return Open {
                        kind: "held stream",
                        stream: peer.stream,
                        since: Instant::now(),
                        dribbles: false,
                    };
                }
                peer.window -= part.len();
                peer.send(&frame(DATA, 0, number * 2 + 1, &part));
            }
        }
        Open { kind: "held stream", stream: peer.stream, since: Instant::now(), dribbles: false }
    }

    /// The fields of a request's head, without compression.
    fn fields(&self) -> Vec<u8> {
        // POST and http stand in the table that all have; the path and the authority have their names there.
        let mut block = vec![0x83, 0x86];
        for (name, value) in [(4, self.path), (1, self.host.as_str())] {
            block.extend([name, u8::try_from(value.len()).unwrap()]);
            block.extend(value.as_bytes());
        }
        block
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A peer that keeps to the server's window of the connection, and to nothing else.
struct Http2 {
    stream: TcpStream,
    window: usize,
    /// What was read and is not a whole frame yet.
    read: Vec<u8>,
    over: bool,
}

impl Http2 {
    fn send(&mut self, bytes: &[u8]) {
        self.over |= self.stream.write_all(bytes).is_err();
    }

    /// Reads what the server says. False if it says nothing within a while.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 1 << 14];
        let count = match self.stream.read(&mut bytes) {
            Ok(count) if count > 0 => count,
            Ok(_) => {
                self.over = true;
                return false;
            }
            Err(_) => return false,
        };
        self.read.extend_from_slice(&bytes[..count]);
        while let Some(head) = self.read.get(..9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, stream) = (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            let Some(payload) = self.read.get(9..9 + length) else { break };
            if kind == WINDOW_UPDATE && stream == 0 {
                self.window += u32::from_be_bytes(payload.try_into().unwrap()) as usize;
            }
            self.over |= kind == GOAWAY;
            self.read.drain(..9 + length);
        }
        !self.over
    }
}
