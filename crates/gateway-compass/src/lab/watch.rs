//! Messages of clients: they watch jobs, read logs, and type into consoles.

use super::Lab;
use serde_json::json;
use windlass_core::JobId;

impl Lab {
    /// Handles a client's message about an existing job.
    pub(super) fn client_said(&mut self, session: u64, kind: &str, job: JobId, text: String) {
        match kind {
            "watch-job-event" => return self.clients.watch(session, job, false),
            "unwatch-job-event" => return self.clients.unwatch(session, job, false),
            "watch-job-log" => self.clients.watch(session, job, true),
            "unwatch-job-log" => self.clients.unwatch(session, job, true),
            "request-console" => _ = self.clients.consoles.insert(job, session),
            "close-console" => {
                if self.clients.consoles.get(&job) == Some(&session) {
                    self.clients.consoles.remove(&job);
                }
            }
            // Only the client that opened the console types into it.
            "console-input" | "resize-console" => {
                if self.clients.consoles.get(&job) != Some(&session) {
                    return;
                }
            }
            unknown => {
                let error = json!({"type": "error", "message": format!("Unknown message type: {unknown}")});
                if let Some(session) = self.clients.sessions.get(&session) {
                    _ = session.send(error.to_string());
                }
                return;
            }
        }
        // A provider that was not told of the job yet would not know it.
        let told = self.runs.get(job).filter(|run| !run.awaits_filling());
        let host = told.and_then(|run| self.hosts.get(run.host()));
        match host.and_then(|host| host.session.clone()) {
            Some(provider) => _ = provider.send(text),
            None if kind.starts_with("console") || kind.starts_with("resize") => {}
            None => self.clients.wait_for_provider(session, job, text),
        }
    }
}
