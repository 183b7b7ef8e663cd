//! The archive that a job's machine unpacks: the script that runs the job, its fields, and its secrets.

mod archive;
mod script;
mod yaml;

use crate::format::{CLUSTER_ROLES, Fields, SECTION_ORDER};
use archive::{Archive, Entry};

pub(crate) use yaml::to_yaml;

/// Fields that are left out of `job.yaml`.
const LEFT_OUT: [&str; 8] =
    ["sealed_secrets", "secrets", "job2sh", "my_email", "my_name", "my_token", SECTION_ORDER, CLUSTER_ROLES];

/// The archive of a job with these fields, compressed. Made for each request, because it holds secrets.
pub(crate) fn job_archive(fields: &Fields, secrets: &Fields) -> Vec<u8> {
    let mut shown = fields.clone();
    shown.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
    let mut archive = Archive::default();
    archive.add("lkp", Entry::Directory);
    archive.add("lkp/scheduled", Entry::Directory);
    archive.add(
        "lkp/scheduled/job.sh",
        Entry::File { mode: 0o775, bytes: script::job_script(fields).as_bytes() },
    );
    archive.add("lkp/scheduled/job.yaml", Entry::File { mode: 0o644, bytes: to_yaml(&shown).as_bytes() });
    archive.add(
        "lkp/scheduled/secrets.yaml",
        Entry::File { mode: 0o600, bytes: secrets_yaml(secrets).as_bytes() },
    );
    archive.compressed()
}

/// The secrets as lines without quotes, because the machine's scripts undo no quoting.
fn secrets_yaml(secrets: &Fields) -> String {
    let line = |(name, value)| {
        let text = crate::format::scalar(value).unwrap_or_default();
        format!("{name}: {text}\n")
    };
    std::iter::once("---\n".to_owned()).chain(secrets.iter().map(line)).collect()
}
