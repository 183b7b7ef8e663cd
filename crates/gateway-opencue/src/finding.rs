//! What a check of a farm finds, for `windlass doctor`.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The check found nothing wrong.
    Ok,
    /// The farm works, and could work better.
    Note,
    /// Frames will not run, or figures will be wrong.
    Wrong,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub what: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What the check found, as a sentence.
    pub detail: String,
    /// What an operator can do. Empty where nothing is to be done.
    pub advice: &'static str,
}

/// A finding without anything to do.
pub(crate) fn ok(what: &'static str, detail: String) -> Finding {
    Finding { what, severity: Severity::Ok, detail, advice: "" }
}

/// A finding about a farm that works, and could work better.
pub(crate) fn note(what: &'static str, detail: String, advice: &'static str) -> Finding {
    Finding { what, severity: Severity::Note, detail, advice }
}

pub(crate) fn wrong(what: &'static str, detail: String, advice: &'static str) -> Finding {
    Finding { what, severity: Severity::Wrong, detail, advice }
}
