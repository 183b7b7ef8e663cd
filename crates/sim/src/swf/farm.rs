//! The machines of a replay, from options, from a file that comes with a trace, or as plain slots. Names are unique,
//! and either every machine has memory or none has. `windlass sim run` builds a [`Farm`]; replays only read it.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::tags::Attributes;

/// Machines that differ only in their name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineGroup {
    /// Their name. With several machines each has its number appended, from 1.
    pub name: String,
    /// Number of machines, at least 1.
    pub count: u32,
    /// Hundredths of a core of each.
    pub cpu: u32,
    /// Bytes of memory of each; `None` if memory does not count.
    pub memory: Option<u64>,
    /// Attributes of each, as `tag` or `key=value`.
    pub tags: Vec<String>,
}

/// The machines of a replay. Either all have memory or none has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Farm {
    machines: Vec<MachineGroup>,
    /// It was made of a number of slots: its one machine stands for machines without a description.
    is_pool: bool,
}

/// The reason why machines cannot be a farm.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum BadFarm {
    #[error("has no worker")]
    Empty,
    #[error("two workers are named '{0}'; give each entry another name")]
    Twice(String),
    #[error("worker '{0}' has no memory and others have; say how much each has, or of none")]
    Memory(String),
    #[error("worker '{name}': {what}")]
    Amount { name: String, what: &'static str },
    #[error("line {0}: a machine is six fields, 'number name count cpus speed memory-in-KiB'; mend the line")]
    Line(usize),
}

/// Machines of a farm.
const MACHINES_MAX: u64 = 100_000;
/// Cores of a machine.
const CPUS_MAX: u32 = 40_000_000;

impl Farm {
    /// One machine with `slots` cores, for traces without machines.
    pub fn slots(slots: u32) -> Result<Farm, BadFarm> {
        let cpu = slots.min(CPUS_MAX + 1).saturating_mul(100);
        let farm = Farm::new(vec![MachineGroup {
            name: "slots".to_owned(),
            count: 1,
            cpu,
            memory: None,
            tags: Vec::new(),
        }])?;
        Ok(Farm { is_pool: true, ..farm })
    }

    /// A farm of these machines.
    ///
    /// # Errors
    ///
    /// No machine, two of one name, or an amount out of range.
    pub fn new(machines: Vec<MachineGroup>) -> Result<Farm, BadFarm> {
        let amount = |machine: &MachineGroup, what| Err(BadFarm::Amount { name: machine.name.clone(), what });
        let with_memory = machines.iter().any(|machine| machine.memory.is_some());
        let mut count = 0;
        for machine in &machines {
            count += u64::from(machine.count);
            match machine {
                MachineGroup { count: 0, .. } => return amount(machine, "count must be at least 1"),
                _ if count > MACHINES_MAX => return amount(machine, "more than 100000 workers"),
                MachineGroup { cpu: 0, .. } => return amount(machine, "cpus must be more than 0"),
                MachineGroup { cpu, .. } if cpu / 100 > CPUS_MAX => {
                    return amount(machine, "cpus must be at most 40000000");
                }
                MachineGroup { memory: Some(0), .. } => return amount(machine, "memory must be more than 0"),
                MachineGroup { memory: None, name, .. } if with_memory => {
                    return Err(BadFarm::Memory(name.clone()));
                }
                _ => {}
            }
        }
        let farm = Farm { machines, is_pool: false };
        let mut names = BTreeSet::new();
        let twice = farm.each().map(|(name, _)| name).find(|name| !names.insert(name.clone()));
        match twice {
            Some(name) => Err(BadFarm::Twice(name)),
            None if names.is_empty() => Err(BadFarm::Empty),
            None => Ok(farm),
        }
    }

    /// Parses the list of machines that comes with some traces: lines `number name count cpus speed memory`,
    /// with memory in KiB. A machine gets the tags `cl_NAME` and `nodecpusN`.
    ///
    /// # Errors
    ///
    /// A line that does not describe a machine, and the errors of [`Farm::new`].
    pub fn parse_machines(text: &str) -> Result<Farm, BadFarm> {
        let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with([';', '#']));
        let machines = lines.map(|(number, line)| machine(line).ok_or(BadFarm::Line(number)));
        Farm::new(machines.collect::<Result<_, _>>()?)
    }

    /// Every machine, with its name.
    pub fn each(&self) -> impl Iterator<Item = (String, &MachineGroup)> {
        self.machines.iter().flat_map(|machine| {
            (1..=machine.count).map(move |number| match machine.count {
                1 => (machine.name.clone(), machine),
                _ => (format!("{}{number}", machine.name), machine),
            })
        })
    }

    /// Number of machines of all groups.
    pub fn len(&self) -> usize {
        self.machines.iter().map(|machine| machine.count as usize).sum()
    }

    /// Always false, because a farm has a machine.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    /// Hundredths of a core of all machines together.
    pub fn cpu(&self) -> u64 {
        self.machines.iter().map(|machine| u64::from(machine.count) * u64::from(machine.cpu)).sum()
    }

    /// Whether its one machine stands for machines without a description, as slots do.
    pub fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// Whether its machines have memory.
    pub fn has_memory(&self) -> bool {
        self.machines.iter().any(|machine| machine.memory.is_some())
    }
}

impl MachineGroup {
    /// Attributes of a worker: its tags, and its name as `host`.
    pub fn attributes(&self, name: &str) -> Attributes {
        let mut attributes: Attributes = BTreeMap::new();
        for tag in &self.tags {
            let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
            let values = attributes.entry(key.to_owned()).or_default();
            values.extend((!value.is_empty()).then(|| value.to_owned()));
        }
        attributes.entry("host".to_owned()).or_default().insert(name.to_owned());
        attributes
    }
}

fn machine(line: &str) -> Option<MachineGroup> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, name, count, cpus, _, memory_kib] = fields[..] else { return None };
    Some(MachineGroup {
        name: name.to_owned(),
        count: count.parse().ok()?,
        cpu: cpus.parse::<u32>().ok()?.checked_mul(100)?,
        memory: Some(memory_kib.parse::<u64>().ok()?.checked_mul(1024)?),
        tags: vec![format!("cl_{name}"), format!("nodecpus{cpus}")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_of(name: &str, count: u32, memory: Option<u64>) -> MachineGroup {
        MachineGroup { name: name.to_owned(), count, cpu: 400, memory, tags: Vec::new() }
    }

    #[test]
    fn a_list_of_machines_is_read() {
        let farm = Farm::parse_machines("; two kinds\n0 big 2 80 1 1024\n1 small 1 12 1 512\n").unwrap();
        let names: Vec<String> = farm.each().map(|(name, _)| name).collect();
        assert_eq!(names, ["big1", "big2", "small"]);
        assert_eq!((farm.len(), farm.cpu(), farm.has_memory()), (3, 17_200, true));
        let (name, small) = farm.each().last().unwrap();
        assert_eq!((small.cpu, small.memory), (1200, Some(512 << 10)));
        let attributes = small.attributes(&name);
        assert!(attributes.contains_key("cl_small") && attributes.contains_key("nodecpus12"));
        assert_eq!(attributes["host"], BTreeSet::from(["small".to_owned()]));
    }

    #[test]
    fn what_is_no_machine_is_refused_by_its_line() {
        for bad in ["0 big 2 80 1", "0 big x 80 1 5", "0 big 2 -80 1 5", "0 big 2 99999999 1 5"] {
            assert_eq!(Farm::parse_machines(&format!("\n{bad}")), Err(BadFarm::Line(2)), "{bad}");
        }
        assert_eq!(Farm::parse_machines(""), Err(BadFarm::Empty));
        assert!(Farm::parse_machines("0 big 0 80 1 5").unwrap_err().to_string().contains("count"));
    }

    #[test]
    fn what_no_farm_can_be_is_refused() {
        let twice = vec![machine_of("a", 2, None), machine_of("a2", 1, None)];
        assert_eq!(Farm::new(twice), Err(BadFarm::Twice("a2".to_owned())));
        let mixed = vec![machine_of("a", 1, Some(1)), machine_of("b", 1, None)];
        assert_eq!(Farm::new(mixed), Err(BadFarm::Memory("b".to_owned())));
        assert!(Farm::slots(0).is_err());
        assert!(Farm::slots(u32::MAX).is_err());
        assert!(Farm::new(vec![machine_of("a", 100_001, None)]).is_err());
    }
}
