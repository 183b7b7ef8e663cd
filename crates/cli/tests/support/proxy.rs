//! A way to a server that can be cut: two of them are two servers of one farm for those who connect.

use super::Random;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Where a proxy leads.
#[derive(Clone)]
pub enum Behind {
    Unix(PathBuf),
    Tcp(String),
}

/// Listens on a port of its own and passes everything on.
pub struct Proxy {
    pub address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// New connections are closed at once.
    is_down: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    /// Answers to requests whose path contains one of these texts are cut after a random number of bytes, up to `cut_max`.
    cut_paths: Vec<&'static str>,
    cut_max: u64,
    cuts: AtomicU64,
    /// Everything that was sent to the server, as text.
    sent: Mutex<String>,
}

impl Proxy {
    /// One that cuts nothing by itself.
    pub fn new(behind: Behind) -> Proxy {
        Proxy::start(behind, Shared::default(), 1)
    }

    /// One that cuts the answers to some requests at random places.
    pub fn cutting(behind: Behind, cut_paths: &[&'static str], cut_max: u64, seed: u64) -> Proxy {
        Proxy::start(behind, Shared { cut_paths: cut_paths.to_vec(), cut_max, ..Shared::default() }, seed)
    }

    fn start(behind: Behind, shared: Shared, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(shared);
        let all = shared.clone();
        std::thread::spawn(move || {
            let mut random = Random(seed);
            for near in listener.incoming().flatten() {
                if all.is_down.load(Ordering::SeqCst) {
                    continue;
                }
                pass(&near, &behind, &all, random.below(all.cut_max.max(1)) + 1);
            }
        });
        Proxy { address, shared }
    }

    /// Closes all connections, and new ones too until it is up again.
    pub fn down(&self) {
        self.shared.is_down.store(true, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes connections on again.
    pub fn up(&self) {
        self.shared.is_down.store(false, Ordering::SeqCst);
    }

    /// How many answers were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// True if something was sent that contains this.
    pub fn was_sent(&self, text: &str) -> bool {
        self.shared.sent.lock().unwrap().contains(text)
    }
}

/// Passes one connection on in both directions.
fn pass(near: &TcpStream, behind: &Behind, shared: &Arc<Shared>, cut_after: u64) {
    match behind {
        Behind::Unix(path) => {
            let Ok(far) = UnixStream::connect(path) else { return };
            let (other, end) = (far.try_clone().unwrap(), far.try_clone().unwrap());
            let close = move || _ = end.shutdown(Shutdown::Both);
            both_ways(near, far, other, close, shared, cut_after);
        }
        Behind::Tcp(address) => {
            let Ok(far) = TcpStream::connect(address) else { return };
            let (other, end) = (far.try_clone().unwrap(), far.try_clone().unwrap());
            let close = move || _ = end.shutdown(Shutdown::Both);
            both_ways(near, far, other, close, shared, cut_after);
        }
    }
}

fn both_ways(
    near: &TcpStream,
    mut far_in: impl Read + Send + 'static,
    mut far_out: impl Write + Send + 'static,
    close: impl Fn() + Send + 'static,
    shared: &Arc<Shared>,
    cut_after: u64,
) {
    shared.open.lock().unwrap().push(near.try_clone().unwrap());
    // How many bytes of the answer are passed on from now on; all, until a request comes that is cut.
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let (mut near_in, mut near_out) = (near.try_clone().unwrap(), near.try_clone().unwrap());
    let (up, up_left) = (shared.clone(), left.clone());
    std::thread::spawn(move || {
        let mut part = [0; 16 << 10];
        while let Ok(n @ 1..) = near_in.read(&mut part) {
            let text = String::from_utf8_lossy(&part[..n]).into_owned();
            // The body of a request may come by itself.
            if let Some(line) = text.lines().next().filter(|line| line.ends_with(" HTTP/1.1")) {
                let is_cut = up.cut_paths.iter().any(|path| line.contains(path));
                up_left.store(if is_cut { cut_after } else { u64::MAX }, Ordering::SeqCst);
            }
            up.sent.lock().unwrap().push_str(&text);
            if far_out.write_all(&part[..n]).is_err() {
                break;
            }
        }
        close();
    });
    let down = shared.clone();
    std::thread::spawn(move || {
        let mut part = [0; 16 << 10];
        while let Ok(n @ 1..) = far_in.read(&mut part) {
            let may = left.load(Ordering::SeqCst);
            let passed = n.min(usize::try_from(may).unwrap_or(usize::MAX));
            if near_out.write_all(&part[..passed]).is_err() {
                break;
            }
            if passed < n {
                down.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
            if may < u64::MAX {
                left.store(may - passed as u64, Ordering::SeqCst);
            }
        }
        _ = near_out.shutdown(Shutdown::Both);
    });
}
