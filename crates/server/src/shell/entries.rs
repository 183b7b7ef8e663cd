//! How many entries the tables have of what is under way: those of the engine, of the shell, and of what both share with the
//! rest of the process.

use super::Shell;
use crate::metrics::Entries;

impl Shell {
    pub(super) fn entries(&self) -> Entries {
        let mut all = self.engine.entries();
        all.extend([
            ("requests", self.pending.len()),
            ("links", self.parts.links.len()),
            ("link_owners", self.link_owners.len()),
            ("reads_to_begin", self.fetches.len()),
            ("progress", self.parts.progress.len()),
            ("jobservers", self.parts.jobservers.len()),
            ("listeners", self.parts.events.listeners()),
        ]);
        all.extend(self.parts.external.entries());
        all
    }
}
