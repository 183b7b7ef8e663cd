//! The link of a host to the engine.

use crate::fill::Unfilled;
use crate::format::Fields;
use tokio::sync::mpsc;
use windlass_core::JobId;
use windlass_server::{Delivery, WorkerLink};

/// Messages to the laboratory from its links and its filler.
pub(super) enum Report {
    /// The engine sends commands to a host.
    Delivered { host: String, parcel: Vec<Delivery> },
    /// The engine refused a host.
    Refused { host: String, link: u64, why: String },
    /// A job was filled in, or cannot be.
    Filled { job: JobId, attempt: u32, filled: Result<Fields, Unfilled> },
}

/// A host's link. Commands to the host go to the laboratory.
pub(super) struct HostLink {
    pub id: u64,
    pub host: String,
    pub lab: mpsc::UnboundedSender<Report>,
}

impl WorkerLink for HostLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        // The laboratory is gone only when the server ends.
        _ = self.lab.send(Report::Delivered { host: self.host.clone(), parcel });
    }

    fn refuse(&self, why: &str) {
        _ = self.lab.send(Report::Refused { host: self.host.clone(), link: self.id, why: why.to_owned() });
    }

    fn begin_again(&self) {
        self.refuse("this host was declared gone");
    }
}
