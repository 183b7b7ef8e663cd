//! The workers of a replay, from a file.

use crate::ui::error::CliError;
use serde::Deserialize;
use std::path::Path;
use windlass_api::quantity::{BadQuantity, parse_cpus, parse_size};
use windlass_sim::swf::{Farm, MachineGroup};

/// A file of workers, in TOML.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct File {
    worker: Vec<WorkerEntry>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct WorkerEntry {
    name: String,
    #[serde(default = "one")]
    count: u32,
    cpus: f64,
    memory: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

fn one() -> u32 {
    1
}

/// Reads the workers that a file lists.
pub fn read(path: &Path) -> Result<Farm, CliError> {
    let failed = |why: String| CliError::Failed {
        message: format!("cannot read {}: {}", path.display(), why.trim_end()),
        hint: Some(
            "a worker is '[[worker]]' with name, cpus and optionally count, memory and tags".to_owned(),
        ),
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    parse(&text).map_err(failed)
}

fn parse(text: &str) -> Result<Farm, String> {
    if !text.contains("[[worker]]") {
        return Farm::parse_machines(text).map_err(|error| error.to_string());
    }
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let machines = file.worker.into_iter().map(|entry| {
        let of = |why: BadQuantity| format!("worker '{}': {why}", entry.name);
        let cpus = parse_cpus(&entry.cpus.to_string()).map_err(of)?;
        let memory = entry.memory.as_deref().map(parse_size).transpose().map_err(of)?;
        let (name, count, cpu) = (entry.name, entry.count, (cpus * 100.0).round() as u32);
        Ok(MachineGroup { name, count, cpu, memory, tags: entry.tags })
    });
    Farm::new(machines.collect::<Result<_, String>>()?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_read_from_toml_or_from_lines() {
        let toml =
            "[[worker]]\nname = 'a'\ncount = 2\ncpus = 1.5\nmemory = '2GiB'\ntags = ['gpu', 'arch=x86_64']\n";
        let farm = parse(toml).unwrap();
        assert_eq!((farm.len(), farm.cpu()), (2, 300));
        let (name, machine) = farm.each().last().unwrap();
        assert_eq!((name.as_str(), machine.memory, machine.tags.len()), ("a2", Some(2 << 30), 2));
        assert_eq!(parse("0 a 3 4 1 1024").unwrap().len(), 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("[[worker]]\nname = 'a'\n", "cpus"),
            ("[[worker]]\nname = 'a'\ncpus = 1\nspeed = 2\n", "speed"),
            ("[[worker]]\nname = 'a'\ncpus = -1\n", "worker 'a'"),
            ("[[worker]]\nname = 'a'\ncpus = 1\nmemory = 'lots'\n", "worker 'a': invalid size 'lots'"),
            ("[[worker]]\nname = 'a'\ncpus = 0\n", "cpus must be more than 0"),
            ("0 a 3 4 1 1024\nb 3\n", "line 2"),
            ("", "has no worker"),
        ];
        for (text, says) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
