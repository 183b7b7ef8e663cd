//! `submit -f` of a Compass CI job: a mapping with a suite, in YAML or JSON.

use crate::client::user::user_name;
use crate::commands::args::TaskArgs;
use crate::commands::machine;
use crate::ui::error::CliError;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The fields of a job.
pub type Fields = serde_json::Map<String, Value>;

/// Most bytes of a job's file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The job in the named file, or `None` if that is not a Compass CI job. The command line overrides its fields, and the
/// user's defaults fill in the submitter.
pub fn read(args: &TaskArgs) -> Result<Option<Fields>, CliError> {
    let Some(file) = args.template.file.as_deref().filter(|file| *file != "-") else { return Ok(None) };
    let Some(MappingFile { fields: mut job, text, is_yaml }) = mapping(Path::new(file)) else {
        return Ok(None);
    };
    if !job.contains_key("suite") || job.contains_key("specificationVersion") {
        return Ok(None);
    }
    job.extend(machine::order_of_compass_job(&text, is_yaml)?);
    for param in &args.template.param {
        let Some((name, value)) = param.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let why = format!("invalid parameter '{param}': give NAME=VALUE, such as testbox=vm-2p8g");
            return Err(CliError::usage(why));
        };
        // Read as it would be in the file.
        let value = serde_saphyr::from_str(value).unwrap_or_else(|_| Value::from(value));
        job.insert(name.to_owned(), value);
    }
    if let Some(queue) = &args.queue {
        job.insert("queue".to_owned(), queue.clone().into());
    }
    if args.priority != 0 {
        job.insert("priority".to_owned(), args.priority.into());
    }
    for (key, value) in defaults().unwrap_or_default() {
        job.entry(key).or_insert(value);
    }
    job.entry("my_account").or_insert_with(|| user_name().into());
    Ok(Some(job))
}

/// The submitter's fields, from the file that Compass CI's own clients read.
fn defaults() -> Option<Fields> {
    let home = PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?);
    let mut account = mapping(&home.join(".config/compass-ci/defaults/account.yaml"))?.fields;
    account.retain(|key, _| ["my_account", "my_email", "my_name", "my_token"].contains(&key.as_str()));
    Some(account)
}

struct MappingFile {
    fields: Fields,
    text: String,
    is_yaml: bool,
}

/// The mapping in a file; `None` if the file holds none.
fn mapping(path: &Path) -> Option<MappingFile> {
    let small = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES_MAX);
    let text = small.then(|| std::fs::read_to_string(path).ok()).flatten()?;
    // JSON is tried first: it is not quite a subset of YAML.
    let json = serde_json::from_str(&text).ok();
    let is_yaml = json.is_none();
    match json.or_else(|| serde_saphyr::from_str(&text).ok()) {
        Some(Value::Object(fields)) => Some(MappingFile { fields, text, is_yaml }),
        _ => None,
    }
}
