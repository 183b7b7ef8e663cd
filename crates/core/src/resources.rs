//! Amounts that a worker has and a task asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The end of the names of amounts of which a worker has one for each place that it gives to the clients of a system, such
/// as `sccache_places`. The system's gateway gives fewer where compiles fail or are slow.
pub const PLACES_SUFFIX: &str = "_places";

/// Amounts. Shapes: `cpu` in hundredths of a core, memory in bytes, gpus in pieces, everything else
/// in whatever unit the farm gave the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Resources {
    /// Hundredths of a core.
    pub cpu: u32,
    /// Bytes of main memory.
    pub memory: u64,
    /// Gpus: a device is never shared.
    pub gpus: u32,
    /// Bytes over all of the devices.
    pub gpu_memory: u64,
    /// Named amounts, such as licences of a node or scratch space. A name that is absent is 0.
    pub custom: BTreeMap<String, u64>,
}

/// An amount that is too small: which, how much is needed, how much is there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Short {
    /// `cpu`, `memory`, `gpus`, `gpu_memory` or a custom name.
    pub resource: Cow<'static, str>,
    /// The amount that is needed.
    pub need: u64,
    /// The part of it that the step did not ask for, because earlier tasks held it.
    pub learned: u64,
    /// The amount that there is.
    pub have: u64,
}

impl Resources {
    /// Hundredths of a core and bytes of memory, and nothing else.
    pub fn new(cpu: u32, memory: u64) -> Self {
        Resources { cpu, memory, ..Default::default() }
    }

    /// The amounts of `self` that `there` is too small for; none if it fits.
    pub fn shorts<'a>(&'a self, there: &'a Resources) -> impl Iterator<Item = Short> + 'a {
        let fixed = [
            ("cpu", u64::from(self.cpu), u64::from(there.cpu)),
            ("memory", self.memory, there.memory),
            ("gpus", u64::from(self.gpus), u64::from(there.gpus)),
            ("gpu_memory", self.gpu_memory, there.gpu_memory),
        ];
        let fixed = fixed.into_iter().map(|(name, need, have)| (Cow::Borrowed(name), need, have));
        let custom = self.custom.iter().map(|(name, need)| {
            (Cow::Owned(name.clone()), *need, there.custom.get(name).copied().unwrap_or(0))
        });
        let all = fixed.chain(custom);
        let short = all.filter(|(_, need, have)| need > have);
        short.map(|(resource, need, have)| Short { resource, need, learned: 0, have })
    }

    /// True if all of `self` fits into `there`.
    pub fn fits(&self, there: &Resources) -> bool {
        self.cpu <= there.cpu
            && self.memory <= there.memory
            && self.gpus <= there.gpus
            && self.gpu_memory <= there.gpu_memory
            && self.custom.iter().all(|(name, need)| *need <= there.custom.get(name).copied().unwrap_or(0))
    }

    /// Adds `other`, amount by amount, stopping at the largest number: a worker may say that it runs more
    /// than there can be.
    pub fn add(&mut self, other: &Resources) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.gpus = self.gpus.saturating_add(other.gpus);
        self.gpu_memory = self.gpu_memory.saturating_add(other.gpu_memory);
        for (name, amount) in &other.custom {
            let have = self.custom.entry(name.clone()).or_default();
            *have = have.saturating_add(*amount);
        }
    }

    /// Takes off `other`, amount by amount, stopping at 0.
    pub fn sub(&mut self, other: &Resources) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.gpus = self.gpus.saturating_sub(other.gpus);
        self.gpu_memory = self.gpu_memory.saturating_sub(other.gpu_memory);
        for (name, amount) in &other.custom {
            if let Some(have) = self.custom.get_mut(name) {
                *have = have.saturating_sub(*amount);
                if *have == 0 {
                    self.custom.remove(name);
                }
            }
        }
    }

    /// What is left of `self` when `used` is taken off.
    pub fn less(&self, used: &Resources) -> Resources {
        let mut left = self.clone();
        left.sub(used);
        left
    }
}

impl Short {
    /// True of places where a gateway gives none for a while.
    pub fn is_closed(&self) -> bool {
        self.have == 0 && self.resource.ends_with(PLACES_SUFFIX)
    }

    /// What is asked for.
    pub fn asked(&self) -> u64 {
        self.need.saturating_sub(self.learned)
    }

    /// An amount of this resource as a person writes it.
    pub fn amount(&self, n: u64) -> String {
        match &*self.resource {
            "cpu" => format!("{} cpu{}", Cpus(n), if n == 100 { "" } else { "s" }),
            "memory" | "gpu_memory" => Bytes(n).to_string(),
            _ => n.to_string(),
        }
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (need, have) = (self.amount(self.need), self.amount(self.have));
        match &*self.resource {
            "cpu" => write!(f, "cpus: needs {}, has {}", Cpus(self.need), Cpus(self.have)),
            name if self.learned == 0 => write!(f, "{name}: needs {need}, has {have}"),
            name if self.asked() == 0 => {
                write!(f, "{name}: needs {need} (learned from earlier tasks), has {have}")
            }
            name => {
                let (asked, learned) = (self.amount(self.asked()), self.amount(self.learned));
                write!(
                    f,
                    "{name}: needs {need} ({asked} asked for, {learned} learned from earlier tasks), has {have}"
                )
            }
        }
    }
}

/// Hundredths of a core, shown as cores.
pub struct Cpus(pub u64);

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}"),
        }
    }
}

/// A number of bytes, shown in the largest binary unit that keeps it at least 1.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let unit = (0..UNITS.len()).rev().find(|u| self.0 >> (10 * u) > 0).unwrap_or(0);
        let scaled = self.0 as f64 / (1u64 << (10 * unit)) as f64;
        if scaled.fract() < 0.05 {
            write!(f, "{scaled:.0} {}", UNITS[unit])
        } else {
            write!(f, "{scaled:.1} {}", UNITS[unit])
        }
    }
}
