//! A host as the engine meets it.

use crate::fill::Unfilled;
use crate::format::Fields;
use tokio::sync::mpsc;
use windlass_core::JobId;
use windlass_server::{Delivery, WorkerLink};

/// What the laboratory's own helpers tell it.
pub(super) enum Report {
    /// The engine wants something of a host.
    Delivered { host: String, parcel: Vec<Delivery> },
    /// The engine does not take a host.
    Refused { host: String, link: u64, why: String },
    /// What a job's machine gets is known, or why it cannot start.
    Filled { job: JobId, attempt: u32, filled: Result<Fields, Unfilled> },
}

/// The link of a host; what it is sent goes to the laboratory.
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
        // A laboratory that is gone is a server that ends.
        _ = self.lab.send(Report::Delivered { host: self.host.clone(), parcel });
    }

    fn refuse(&self, why: &str) {
        _ = self.lab.send(Report::Refused { host: self.host.clone(), link: self.id, why: why.to_owned() });
    }

    fn begin_again(&self) {
        self.refuse("somebody said that this host is gone");
    }
}
