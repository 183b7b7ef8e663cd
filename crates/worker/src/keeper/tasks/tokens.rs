//! Tokens of tasks with a jobserver: what `jobserver` asks about running tasks, and their weights in control groups.

use super::attempt::Running;
use super::{MemoryReader, Tasks};
use crate::keeper::env::KeeperEnv;
use crate::keeper::jobserver::{MemoryRoom, TaskView};
use crate::keeper::link::Link;
use crate::process;
use crate::protocol::TaskRef;
use std::collections::BTreeMap;
use std::time::Instant;

impl Tasks {
    /// Moves tokens between the tasks that have a jobserver, if that is due.
    pub(super) fn move_tokens(&mut self, now: Instant, link: &mut Link) {
        let mut jobservers = std::mem::take(&mut self.keeper_env.jobservers);
        let Tasks { running, keeper_env, memory_reader, capacity, .. } = self;
        let mut view = RunningTasks { running, keeper_env, memory_reader };
        let reports = jobservers.tick(now, capacity.cpu / 100, &mut view);
        self.keeper_env.jobservers = jobservers;
        if let Some(reports) = reports {
            reports.iter().for_each(|report| link.send(report));
            self.weigh_groups();
        }
    }

    /// Divides cpu time as tokens are divided, where control groups can: a task that shares counts as what it is entitled
    /// to, and every other as what is booked for it.
    fn weigh_groups(&mut self) {
        let KeeperEnv { cgroups, jobservers, .. } = &mut self.keeper_env;
        let entitled = jobservers.entitled();
        let Some(cgroups) = cgroups.as_mut().filter(|_| !entitled.is_empty()) else { return };
        // Where nothing is left to share, a task counts as what is booked for it.
        let sharing = self.running.iter().filter(|(task, _)| entitled.contains_key(task));
        let booked: u32 = sharing.map(|(_, running)| running.request.cpu).sum();
        if !cgroups.weigh(self.capacity.cpu, jobservers.shared_cpu().max(booked)) {
            return;
        }
        for (task, running) in &mut self.running {
            if let Some(slot) = &mut running.started.slot {
                slot.weigh(entitled.get(task).copied().unwrap_or(0).max(running.request.cpu));
            }
        }
    }
}

/// The running tasks, as `jobserver` asks about them.
struct RunningTasks<'a> {
    running: &'a BTreeMap<TaskRef, Running>,
    keeper_env: &'a KeeperEnv,
    memory_reader: &'a mut MemoryReader,
}

impl TaskView for RunningTasks<'_> {
    fn held_bytes(&mut self, task: TaskRef) -> Option<u64> {
        self.running.get(&task)?.held_bytes
    }

    fn workers(&mut self, task: TaskRef) -> Option<u32> {
        let running = self.running.get(&task)?;
        let leader = running.exit.is_none().then_some(running.started.pid);
        let pids = self.keeper_env.pids(leader, task, running.started.slot.as_ref());
        Some(process::workers(&pids))
    }

    fn memory(&mut self) -> MemoryRoom {
        self.memory_reader.read()
    }
}
