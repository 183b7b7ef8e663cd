//! Gangs: tasks that start together or not at all.
//!
//! A step with `nodes` 4 has a gang of each four tasks in a row. A step that starts `with` another adds its tasks to
//! the gangs of that one, the leader. Only the leader stands in a queue: its turn is the turn of the whole gang.
//!
//! Tasks of a gang that succeeded are done. The others start together, and again together when one of them is to be run
//! again; room, licences and quota are asked for these alone, and they learn of each other alone. A gang of which a
//! task failed for good is lost: what of it did not start never does.

use super::Job;
use super::spec::JobSpec;
use crate::ranges::RangeSet;
use std::ops::Range;

/// A gang of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Gang {
    /// The place of the step that leads.
    pub leader: usize,
    /// Its number among the leader's gangs.
    pub number: u32,
}

/// A task of a gang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GangTask {
    /// The place of its step.
    pub step: usize,
    /// Its number in the job.
    pub index: u32,
}

impl JobSpec {
    /// True if some tasks start together.
    pub fn has_gangs(&self) -> bool {
        self.steps.iter().any(|step| step.nodes.is_some() || step.with.is_some())
    }

    /// The steps that start with this one.
    pub fn followers(&self, leader: usize) -> impl Iterator<Item = usize> + '_ {
        let follows = move |step: &usize| self.steps[*step].with.map(usize::from) == Some(leader);
        (leader + 1..self.steps.len()).filter(follows)
    }
}

impl Job {
    /// True if tasks of the step start with others.
    pub fn is_in_gang(&self, step: usize) -> bool {
        let spec = &self.spec.steps[step];
        self.has_gangs
            && (spec.nodes.is_some() || spec.with.is_some() || self.spec.followers(step).next().is_some())
    }

    /// The step whose turn is that of the step's tasks: itself, or the one with which it starts.
    pub fn leader_of(&self, step: usize) -> usize {
        self.spec.steps[step].with.map_or(step, usize::from)
    }

    /// The steps of which tasks start when it is the step's turn: itself, and those that start with it.
    pub fn gang_steps(&self, leader: usize) -> impl Iterator<Item = usize> + '_ {
        let followers = self.has_gangs.then(|| self.spec.followers(leader));
        std::iter::once(leader).chain(followers.into_iter().flatten())
    }

    /// The gang of a task; `None` of one that starts by itself.
    pub fn gang_of(&self, index: u32) -> Option<Gang> {
        if !self.has_gangs {
            return None;
        }
        let step = usize::from(self.step_of(index));
        self.is_in_gang(step).then(|| Gang {
            leader: self.leader_of(step),
            number: (index - self.steps[step].base) / self.nodes(step),
        })
    }

    fn nodes(&self, step: usize) -> u32 {
        self.spec.steps[step].nodes.unwrap_or(1)
    }

    /// A step's part of a gang.
    fn part(&self, gang: &Gang, step: usize) -> Range<u32> {
        let nodes = self.nodes(step);
        let first = self.steps[step].base + gang.number * nodes;
        first..first + nodes
    }

    /// All tasks of a gang, as a range for each of its steps.
    pub fn gang_parts(&self, gang: Gang) -> impl Iterator<Item = Range<u32>> + '_ {
        self.gang_steps(gang.leader).map(move |step| self.part(&gang, step))
    }

    /// All tasks of a gang: those of the leader, then those of the steps that start with it.
    pub fn gang_tasks(&self, gang: Gang) -> impl Iterator<Item = GangTask> + '_ {
        let steps = self.gang_steps(gang.leader);
        steps.flat_map(move |step| self.part(&gang, step).map(move |index| GangTask { step, index }))
    }

    /// These tasks, and all with which they start.
    pub fn with_mates(&self, tasks: &RangeSet) -> RangeSet {
        let mut all = tasks.clone();
        if !self.has_gangs {
            return all;
        }
        for (step, part) in tasks.ranges().flat_map(|range| self.by_step(range)) {
            if !self.is_in_gang(step) {
                continue;
            }
            let (base, nodes) = (self.steps[step].base, self.nodes(step));
            let (first, last) = ((part.start - base) / nodes, (part.end - 1 - base) / nodes);
            for mate in self.gang_steps(self.leader_of(step)) {
                let (base, nodes) = (self.steps[mate].base, self.nodes(mate));
                all.insert_range(base + first * nodes..base + (last + 1) * nodes);
            }
        }
        all
    }

    /// True if a task of the gang failed for good or was cancelled.
    pub fn is_broken(&self, gang: &Gang) -> bool {
        self.gang_tasks(*gang).any(|GangTask { step, index }| {
            let step = &self.steps[step];
            step.failed.contains(index) || step.canceled.contains(index)
        })
    }

    /// No task of a broken gang is ready any more.
    pub fn close_gang(&mut self, gang: &Gang) {
        let tasks: Vec<GangTask> = self.gang_tasks(*gang).collect();
        for GangTask { step, index } in tasks {
            self.steps[step].ready.remove(index);
        }
    }

    /// The tasks of a step that belong to broken gangs.
    pub(super) fn tasks_of_broken_gangs(&self, step: usize) -> RangeSet {
        let mut broken = RangeSet::default();
        for member in self.gang_steps(self.leader_of(step)) {
            let (base, nodes) = (self.steps[member].base, self.nodes(member));
            for range in
                [&self.steps[member].failed, &self.steps[member].canceled].iter().flat_map(|s| s.ranges())
            {
                let (first, last) = ((range.start - base) / nodes, (range.end - 1 - base) / nodes);
                let (own, width) = (self.steps[step].base, self.nodes(step));
                broken.insert_range(own + first * width..own + (last + 1) * width);
            }
        }
        broken
    }

    /// The tasks of the leader's next gang that may start: those that did not succeed, all of which are ready.
    pub fn next_gang(&self, leader: usize) -> Option<Vec<GangTask>> {
        // The first that is ready starts most often. Where it does not, all are looked at, by ranges.
        let first = self.steps[leader].ready.first().and_then(|index| self.startable(self.gang_of(index)?));
        if first.is_some() {
            return first;
        }
        let steps: Vec<usize> = self.gang_steps(leader).collect();
        let mut open = steps.iter().map(|step| self.whole_gangs(*step, true));
        let mut numbers = open.next()?;
        open.for_each(|gangs| numbers = numbers.intersection(&gangs));
        let mut done = steps.iter().map(|step| self.whole_gangs(*step, false));
        let mut over = done.next()?;
        done.for_each(|gangs| over = over.intersection(&gangs));
        numbers.subtract(&over);
        self.startable(Gang { leader, number: numbers.first()? })
    }

    /// How many tasks the leader's next gang starts of each step, in the order of [`gang_steps`](Job::gang_steps): as
    /// the step says where none of them has succeeded. `None` if no gang may start, or the step leads none.
    pub fn next_nodes(&self, leader: usize) -> Option<Vec<Option<u32>>> {
        if !self.is_in_gang(leader) || self.spec.steps[leader].with.is_some() {
            return None;
        }
        let tasks = self.next_gang(leader)?;
        let nodes = self.gang_steps(leader).map(|step| {
            let starting = tasks.iter().filter(|task| task.step == step).count() as u32;
            if starting == self.nodes(step) { self.spec.steps[step].nodes } else { Some(starting) }
        });
        Some(nodes.collect())
    }

    /// The numbers of the gangs of which all tasks of the step have succeeded, or are `or_ready`.
    fn whole_gangs(&self, step: usize, or_ready: bool) -> RangeSet {
        let nodes = self.nodes(step);
        let step = &self.steps[step];
        let mut tasks = step.succeeded.clone();
        step.ready.ranges().filter(|_| or_ready).for_each(|range| tasks.insert_range(range));
        let mut gangs = RangeSet::default();
        for range in tasks.ranges() {
            let (first, end) = ((range.start - step.base).div_ceil(nodes), (range.end - step.base) / nodes);
            gangs.insert_range(first..end.max(first));
        }
        gangs
    }

    /// The tasks of a gang that did not succeed; `None` if one of them is not ready, or there are none.
    fn startable(&self, gang: Gang) -> Option<Vec<GangTask>> {
        let mut tasks = Vec::new();
        for task in self.gang_tasks(gang) {
            if self.steps[task.step].ready.contains(task.index) {
                tasks.push(task);
            } else if !self.has_succeeded(&task) {
                return None;
            }
        }
        (!tasks.is_empty()).then_some(tasks)
    }

    /// True if a task of a gang has succeeded.
    pub fn has_succeeded(&self, task: &GangTask) -> bool {
        self.steps[task.step].succeeded.contains(task.index)
    }

    /// True if a step has something that its queue could start: a ready task, or the leader's next gang. Steps that
    /// start with another have nothing of their own.
    pub fn has_startable(&self, step: usize) -> bool {
        match self.is_in_gang(step) {
            false => !self.steps[step].ready.is_empty(),
            true => self.spec.steps[step].with.is_none() && self.next_gang(step).is_some(),
        }
    }
}
