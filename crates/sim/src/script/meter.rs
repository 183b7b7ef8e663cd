//! Measurements of a script's machines since the last tally: starts, ends, busy cpus, cold starts. `script` reports
//! each change, and prints the tally on command. The figures come from the machines, never from the engine.

use crate::clock::S;
use crate::world::World;
use windlass_core::job::End;

/// Counts, and sums over time in hundredths of a core times nanoseconds.
#[derive(Default)]
pub struct Meter {
    since_ns: u64,
    last_ns: u64,
    /// Hundredths of a core that processes hold now, and that living machines have.
    busy: u64,
    capacity: u64,
    busy_ns: u128,
    capacity_ns: u128,
    starts: u64,
    succeeded: u64,
    failed: u64,
    out_of_memory: u64,
    /// Starts of tasks that read caches, and how many of them had to fetch something.
    reads: u64,
    cold: u64,
}

impl Meter {
    /// Adds up the time until now, before something changes.
    pub fn turn(&mut self, world: &World) {
        let passed_ns = u128::from(world.now_ns - self.last_ns);
        self.last_ns = world.now_ns;
        self.busy_ns += passed_ns * u128::from(self.busy);
        self.capacity_ns += passed_ns * u128::from(self.capacity);
        (self.busy, self.capacity) = (0, 0);
        for machine in &world.machines {
            let Some(keeper) = &machine.keeper else { continue };
            self.capacity += u64::from(machine.capacity.cpu);
            let held = keeper.running().filter(|(.., lent)| !lent);
            self.busy += held.map(|(_, request, _)| u64::from(request.cpu)).sum::<u64>();
        }
    }

    /// Counts a start. `cold` is `None` for a task that reads no caches.
    pub fn starts(&mut self, cold: Option<bool>) {
        self.starts += 1;
        self.reads += u64::from(cold.is_some());
        self.cold += u64::from(cold == Some(true));
    }

    pub fn ends(&mut self, end: &End) {
        match end {
            End::Exited(0) => self.succeeded += 1,
            End::OutOfMemory => self.out_of_memory += 1,
            _ => self.failed += 1,
        }
    }

    /// A measurement by its name in scripts; `None` for an unknown name.
    pub fn value(&self, name: &str) -> Option<f64> {
        Some(match name {
            "starts" => self.starts as f64,
            "succeeded" => self.succeeded as f64,
            "failed" => self.failed as f64,
            "oom" => self.out_of_memory as f64,
            "cold" => self.cold as f64,
            "busy" => 100.0 * self.busy_ns as f64 / (self.capacity_ns.max(1)) as f64,
            _ => return None,
        })
    }

    /// All measurements as one line. Starts them again from 0.
    pub fn read(&mut self) -> String {
        let seconds = (self.last_ns - self.since_ns + S / 2) / S;
        let busy = self.value("busy").unwrap_or(0.0);
        let mut line = format!("in {seconds} s: {} starts, {} succeeded", self.starts, self.succeeded);
        for (count, what) in [(self.failed, "failed"), (self.out_of_memory, "out of memory")] {
            if count > 0 {
                line += &format!(", {count} {what}");
            }
        }
        if self.reads > 0 {
            line += &format!(", {} of {} cold", self.cold, self.reads);
        }
        line += &format!("; cpus {busy:.1} % busy");
        let (last_ns, busy, capacity) = (self.last_ns, self.busy, self.capacity);
        *self = Meter { since_ns: last_ns, last_ns, busy, capacity, ..Meter::default() };
        line
    }
}
