//! `windlass compass import`: the files of a Compass CI laboratory, as hosts and clusters of this server.

use crate::client::context::Context;
use crate::ui::error::{CliError, Doing};
use crate::ui::output::print_list;
use crate::ui::table::{Cell, Column, Grid};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use windlass_api::ErrorCode;
use windlass_api::client::ClientError;
use windlass_gateway_compass::format::{ClusterSpec, Fields, host_of_file};

/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Files of a laboratory.
const FILES_MAX: usize = 100_000;
/// Where the files of clusters are.
const CLUSTERS: &str = "cluster/";
/// Files that a file may include, one through the other.
const INCLUDED_MAX: usize = 16;

/// Commands for laboratories of Compass CI.
#[derive(Subcommand, Debug)]
pub enum CompassCommand {
    /// Register a laboratory's hosts and clusters: the files hosts/NAME, devices/NAME and cluster/NAME of its directory
    /// (administrators)
    Import(ImportArgs),
}

/// The directory of a laboratory.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Directory with hosts/, devices/ and cluster/, such as /c/lab-z9
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Serialize, Debug)]
struct ImportedFile {
    /// Its path in the directory.
    file: String,
    /// True where its host or cluster is registered.
    registered: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Runs the command `windlass compass`.
pub async fn command(context: &Context, command: CompassCommand) -> Result<(), CliError> {
    let CompassCommand::Import(args) = command;
    let lab = Lab::read(&args.dir)?;
    let client = context.client().await?;
    let mut all = Vec::new();
    for (kind, files) in [("hosts", lab.hosts()), ("clusters", lab.clusters())] {
        for (file, fields) in files {
            let why = match fields {
                Err(why) => Some(why),
                Ok(fields) => refusal(client.register_with_compass(kind, name_of(&file), &fields).await)
                    .doing(format_args!("register {kind}"))?,
            };
            all.push(ImportedFile { file, registered: why.is_none(), why });
        }
    }
    all.extend(lab.skipped);
    print_list(context.format, &all, |one| one.file.clone(), files_grid)
}

/// Why a file is not taken; an error where no other would be taken either.
fn refusal(answer: Result<(), ClientError>) -> Result<Option<String>, ClientError> {
    match answer {
        Ok(()) => Ok(None),
        Err(error) if is_of_file(&error) => Ok(Some(error.to_string())),
        // A user who may not register one host may register none, and another file would fail in the same way.
        Err(error) => Err(error),
    }
}

/// True of an error that another file may not have.
fn is_of_file(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(detail) if !matches!(detail.code,
        ErrorCode::Unauthorized | ErrorCode::Forbidden | ErrorCode::NotFound | ErrorCode::Unavailable))
}

fn files_grid(all: &[ImportedFile]) -> Grid {
    let row = |one: &ImportedFile| -> Vec<Cell> {
        let state = if one.registered { "registered" } else { "skipped" };
        vec![one.file.as_str().into(), state.into(), one.why.as_deref().unwrap_or_default().into()]
    };
    Grid {
        columns: vec![
            Column::text("FILE", 0, 16),
            Column::whole("STATE", 0),
            Column::text("REASON", 0, 20).folded(),
        ],
        rows: all.iter().map(row).collect(),
        empty: "there are no files in hosts/, devices/ and cluster/ of this directory",
    }
}

/// The machines of a cluster, as its file says them.
fn cluster_of(text: &str) -> Result<Fields, String> {
    match ClusterSpec::of_text(text).map(serde_json::to_value)? {
        Ok(serde_json::Value::Object(fields)) => Ok(fields),
        other => Err(format!("it cannot be sent: {other:?}")),
    }
}

struct Lab {
    /// Path in the directory to text.
    texts: BTreeMap<String, String>,
    skipped: Vec<ImportedFile>,
}

impl Lab {
    fn read(dir: &Path) -> Result<Lab, CliError> {
        let mut lab = Lab { texts: BTreeMap::new(), skipped: Vec::new() };
        let mut found = false;
        for part in ["hosts", "devices", "cluster"] {
            let Ok(entries) = std::fs::read_dir(dir.join(part)) else { continue };
            found = true;
            let paths: BTreeSet<PathBuf> =
                entries.flatten().map(|entry| entry.path()).take(FILES_MAX).collect();
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                lab.add(format!("{part}/{name}"), &path);
            }
        }
        if found {
            return Ok(lab);
        }
        let why = format!("{} has none of the directories hosts, devices and cluster", dir.display());
        Err(CliError::usage(why))
    }

    fn add(&mut self, file: String, path: &Path) {
        let why = match std::fs::metadata(path) {
            _ if file.contains("/.") => "it is hidden".to_owned(),
            Err(error) => error.to_string(),
            Ok(about) if !about.is_file() => "it is not a file".to_owned(),
            Ok(about) if about.len() > FILE_BYTES_MAX => format!("it has more than {FILE_BYTES_MAX} bytes"),
            Ok(_) => match std::fs::read_to_string(path) {
                Ok(text) => {
                    self.texts.insert(file, text);
                    return;
                }
                Err(error) => error.to_string(),
            },
        };
        self.skipped.push(ImportedFile { file, registered: false, why: Some(why) });
    }

    /// Each file with what it says of its host, or why it is skipped. Where a host has two files, the one in `hosts`
    /// goes over the other.
    fn hosts(&self) -> Vec<(String, Result<Fields, String>)> {
        let of_hosts: BTreeSet<&str> =
            self.texts.keys().filter(|file| file.starts_with("hosts/")).map(|file| name_of(file)).collect();
        let mut all = Vec::new();
        for file in self.texts.keys().filter(|file| !file.starts_with(CLUSTERS)) {
            let name = name_of(file);
            let fields = match (file.starts_with("devices/"), of_hosts.contains(name)) {
                (true, true) => continue,
                (true, false) => self.fields(file, name, &mut BTreeSet::new()),
                (false, _) => {
                    self.fields(file, name, &mut BTreeSet::new()).map(|own| self.over_device(name, own))
                }
            };
            all.push((file.clone(), fields));
        }
        all
    }

    /// Each file of a cluster with its machines, or why it is skipped. The machines are sent as a list, which keeps their
    /// order.
    fn clusters(&self) -> Vec<(String, Result<Fields, String>)> {
        let files = self.texts.iter().filter(|(file, _)| file.starts_with(CLUSTERS));
        files.map(|(file, text)| (file.clone(), cluster_of(text))).collect()
    }

    fn over_device(&self, name: &str, own: Fields) -> Fields {
        let files = [format!("devices/{name}"), format!("devices/{name}.json")];
        let device = files.iter().find_map(|file| self.fields(file, name, &mut BTreeSet::new()).ok());
        let mut fields = device.unwrap_or_default();
        fields.extend(own);
        fields
    }

    /// The fields of a file, over those of the files that it includes.
    fn fields(&self, file: &str, name: &str, seen: &mut BTreeSet<String>) -> Result<Fields, String> {
        let text = self.texts.get(file).ok_or_else(|| format!("{file} is not there"))?;
        if !seen.insert(file.to_owned()) || seen.len() > INCLUDED_MAX {
            return Err(format!("{file} includes itself, or too many files include each other"));
        }
        let (own, included) = host_of_file(name, text)?;
        let mut fields = Fields::new();
        for other in included {
            fields.extend(self.fields(&other, name, seen).map_err(|why| format!("{other}: {why}"))?);
        }
        fields.extend(own);
        Ok(fields)
    }
}

fn name_of(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    [".yaml", ".yml", ".json"].into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_laid_over_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("hosts/base", "nr_cpu: 64\nmemory: 256G\n");
        put("hosts/box1", "<<: hosts/base\nmemory: 128G\n");
        put("hosts/loop", "<<: hosts/loop\n");
        put("hosts/bad", "a: [\n");
        put("devices/box1.json", r#"{"serial_number": "x", "memory": "1G", "id": 5}"#);
        put("devices/switch.yaml", "arch: aarch64\n");
        put("cluster/cs-s1-c2", "nodes:\n  b: {roles: [server]}\n  a: {roles: client}\n");
        put("cluster/none", "nodes: {}\n");
        put("cluster/.hidden", "nodes: {}\n");
        let lab = Lab::read(dir.path()).unwrap();
        let hosts: BTreeMap<String, Result<Fields, String>> = lab.hosts().into_iter().collect();
        let box1 = hosts["hosts/box1"].as_ref().unwrap();
        let told = ["nr_cpu", "memory", "serial_number", "hostname"].map(|key| box1[key].to_string());
        assert_eq!(told, ["64", "\"128G\"", "\"x\"", "\"box1\""]);
        assert!(box1.get("id").is_none() && !hosts.contains_key("devices/box1.json"));
        assert_eq!(hosts["devices/switch.yaml"].as_ref().unwrap()["hostname"], "switch");
        assert!(hosts["hosts/loop"].as_ref().unwrap_err().contains("includes itself"));
        assert!(hosts["hosts/bad"].as_ref().unwrap_err().contains("not YAML"));
        assert_eq!(lab.skipped.len(), 1);
        let clusters: BTreeMap<String, Result<Fields, String>> = lab.clusters().into_iter().collect();
        let nodes = clusters["cluster/cs-s1-c2"].as_ref().unwrap()["nodes"].to_string();
        assert!(nodes.starts_with(r#"[{"host":"b","macs":[],"roles":["server"]},{"host":"a","#), "{nodes}");
        assert!(clusters["cluster/none"].as_ref().unwrap_err().contains("it has no nodes"));
        assert_eq!((clusters.len(), hosts.keys().filter(|file| file.starts_with(CLUSTERS)).count()), (2, 0));
        assert!(Lab::read(&dir.path().join("hosts")).is_err());
    }
}
