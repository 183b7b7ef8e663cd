//! Which machines the tasks of a job get that start together. [`Workload`](super::Workload) asks it whether a job could
//! ever run, and the baselines ask it before each start. It shares no code with the engine's choice.

use std::collections::{BTreeMap, BTreeSet};

/// Hundredths of a core, and bytes of memory.
pub(super) type Room = (u32, u64);

/// Equal tasks of a job. Each needs a machine of its own among `machines`, of which earlier ones are preferred. Tasks
/// of different groups may share a machine.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) tasks: usize,
    pub(super) each: Room,
    pub(super) machines: Vec<usize>,
}

/// A machine for each task, group by group; `None` if the tasks do not fit together. `free` is the room of a machine.
///
/// Each task in turn takes the first machine with room. Without one, it takes the place of a task of another group,
/// which then looks for another machine (augmenting paths, as in Kuhn's matching).
pub(super) fn choose_machines(groups: &[Group], free: &dyn Fn(usize) -> Room) -> Option<Vec<usize>> {
    let mut choice = Choice { groups, free, group_of: Vec::new(), chosen: Vec::new(), on: BTreeMap::new() };
    for (number, group) in groups.iter().enumerate() {
        let roomy = group.machines.iter().filter(|machine| has_room(group.each, free(**machine)));
        if roomy.take(group.tasks).count() < group.tasks {
            return None;
        }
        choice.group_of.extend(std::iter::repeat_n(number, group.tasks));
    }
    choice.chosen = vec![usize::MAX; choice.group_of.len()];
    for task in 0..choice.group_of.len() {
        if !choice.place(task, &mut BTreeSet::new()) {
            return None;
        }
    }
    Some(choice.chosen)
}

/// Whether a task fits into this room.
pub(super) fn has_room(task: Room, room: Room) -> bool {
    task.0 <= room.0 && task.1 <= room.1
}

struct Choice<'a> {
    groups: &'a [Group],
    free: &'a dyn Fn(usize) -> Room,
    group_of: Vec<usize>,
    /// The machine of each task that was placed.
    chosen: Vec<usize>,
    on: BTreeMap<usize, Vec<usize>>,
}

impl Choice<'_> {
    /// Finds a machine for a task, and moves others for it if need be. Looks at each machine once.
    fn place(&mut self, task: usize, seen: &mut BTreeSet<usize>) -> bool {
        let groups = self.groups;
        let machines = &groups[self.group_of[task]].machines;
        if let Some(machine) = machines.iter().find(|machine| self.fits(task, **machine, None)) {
            self.put(task, *machine);
            return true;
        }
        for machine in machines {
            if !seen.insert(*machine) {
                continue;
            }
            for other in self.on.get(machine).cloned().unwrap_or_default() {
                if !self.fits(task, *machine, Some(other)) {
                    continue;
                }
                self.take_off(other, *machine);
                self.put(task, *machine);
                if self.place(other, seen) {
                    return true;
                }
                self.take_off(task, *machine);
                self.put(other, *machine);
            }
        }
        false
    }

    fn put(&mut self, task: usize, machine: usize) {
        self.chosen[task] = machine;
        self.on.entry(machine).or_default().push(task);
    }

    fn take_off(&mut self, task: usize, machine: usize) {
        self.on.entry(machine).or_default().retain(|there| *there != task);
    }

    /// Whether the machine has room for the task beside those that were placed there, except one of them.
    fn fits(&self, task: usize, machine: usize, except: Option<usize>) -> bool {
        let group = self.group_of[task];
        let there = self.on.get(&machine).into_iter().flatten();
        let (mut cpu, mut memory) = (self.free)(machine);
        for other in there.filter(|other| Some(**other) != except) {
            let other = self.group_of[*other];
            if other == group {
                return false;
            }
            // Tasks are placed only where they fit together, so nothing is less than zero.
            cpu -= self.groups[other].each.0;
            memory -= self.groups[other].each.1;
        }
        has_room(self.groups[group].each, (cpu, memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(tasks: usize, cpu: u32, machines: &[usize]) -> Group {
        Group { tasks, each: (cpu, 0), machines: machines.to_vec() }
    }

    fn choose(groups: &[Group], free: &[u32]) -> Option<Vec<usize>> {
        choose_machines(groups, &|machine| (free[machine], 0))
    }

    #[test]
    fn each_task_of_a_group_has_a_machine_of_its_own() {
        assert_eq!(choose(&[group(2, 1, &[0, 1, 2])], &[9, 0, 9]), Some(vec![0, 2]));
        assert_eq!(
            choose(&[group(2, 1, &[2, 0])], &[9, 0, 9]),
            Some(vec![2, 0]),
            "in the order of preference"
        );
        assert_eq!(choose(&[group(2, 1, &[0])], &[9]), None);
    }

    #[test]
    fn groups_share_a_machine_that_has_room_for_both() {
        let groups = [group(1, 2, &[0]), group(1, 2, &[0])];
        assert_eq!(choose(&groups, &[4]), Some(vec![0, 0]));
        assert_eq!(choose(&groups, &[3]), None);
    }

    #[test]
    fn a_task_makes_way_for_one_that_fits_nowhere_else() {
        let groups = [group(1, 2, &[0, 1]), group(1, 2, &[0])];
        assert_eq!(choose(&groups, &[2, 2]), Some(vec![1, 0]));
        let groups = [group(2, 2, &[0, 1, 2]), group(1, 2, &[0]), group(1, 2, &[1])];
        assert_eq!(choose(&groups, &[2, 2, 4]), None, "two tasks of a group on one machine");
    }
}
