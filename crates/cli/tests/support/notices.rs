//! A way to a PostgreSQL server on which every notification is lost. It reads the messages that the server sends, each
//! of which is a letter, its length, and as many bytes. Connections must not be encrypted.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The letter of a NotificationResponse.
const NOTIFICATION: u8 = b'A';

/// Listens on a port of its own, and passes on everything but notifications.
pub struct Deaf {
    pub address: String,
    lost: Arc<AtomicU64>,
}

impl Deaf {
    /// A way to the server behind this socket.
    pub fn new(socket: PathBuf) -> Deaf {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = UnixStream::connect(&socket) else { continue };
                // The answer to a query is several small messages. The second would wait 40 ms for an acknowledgement.
                near.set_nodelay(true).unwrap();
                let (mut near_in, mut far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut near_in, &mut far_out);
                    _ = far_out.shutdown(Shutdown::Both);
                });
                let counter = counter.clone();
                std::thread::spawn(move || {
                    _ = without_notifications(&far, &near, &counter);
                    _ = near.shutdown(Shutdown::Both);
                });
            }
        });
        Deaf { address, lost }
    }

    /// How many notifications were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }
}

fn without_notifications(mut far: impl Read, mut near: impl Write, lost: &AtomicU64) -> std::io::Result<()> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 5];
        far.read_exact(&mut head)?;
        let [letter, length @ ..] = head;
        // The length counts itself.
        let rest = u64::from(u32::from_be_bytes(length)).saturating_sub(4);
        message.clear();
        message.extend(head);
        far.by_ref().take(rest).read_to_end(&mut message)?;
        if letter == NOTIFICATION {
            lost.fetch_add(1, Ordering::SeqCst);
        } else {
            near.write_all(&message)?;
        }
    }
}
