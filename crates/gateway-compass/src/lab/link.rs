//! A host as the engine meets it.

use super::Ask;
use tokio::sync::mpsc;
use windlass_server::{Delivery, WorkerLink};

/// The link of a host; what it is sent goes to the laboratory.
pub(super) struct HostLink {
    pub id: u64,
    pub host: String,
    pub lab: mpsc::UnboundedSender<Ask>,
}

impl WorkerLink for HostLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        // A laboratory that is gone is a server that ends.
        _ = self.lab.send(Ask::Delivered { host: self.host.clone(), parcel });
    }

    fn refuse(&self, why: &str) {
        _ = self.lab.send(Ask::Refused { host: self.host.clone(), link: self.id, why: why.to_owned() });
    }

    fn begin_again(&self) {
        self.refuse("somebody said that this host is gone");
    }
}
