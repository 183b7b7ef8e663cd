//! The thread of the network: it accepts connections over TCP, and workers are heard on it. No request of
//! people's is answered here, so nothing that a request costs makes a worker seem silent.

use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The runtime of that thread. It ends when this is dropped.
pub(crate) struct Network {
    pub runtime: Handle,
    _end: oneshot::Sender<()>,
}

impl Network {
    pub fn start() -> io::Result<Network> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // An error says that the other half was dropped.
            _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("network".to_owned()).spawn(run)?;
        Ok(Network { runtime: handle, _end: end })
    }
}
