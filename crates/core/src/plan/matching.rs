//! The workers of tasks that start together: tasks of one step go to different workers, and all tasks on a worker have
//! room there together.
//!
//! Properties:
//! - What needs most chooses first, and each task takes the best worker that is left. Tasks that need the same choose
//!   in the order of their steps.
//! - If there is a choice for all tasks, one is found, unless the search for it takes more than `SEARCH_STEPS_MAX`
//!   steps.
//! - The search begins only where the cheap way leaves a task without a worker. A gang of one step never needs it.

use crate::class::Class;
use crate::ids::WorkerId;
use crate::resources::Resources;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of a search through all choices: comparisons of tasks with the room of a worker, and states that are entered.
/// Of random farms with cpus and memory, four steps on four workers took at most 150, and six steps on twelve workers
/// at most 1,200. Beyond the bound the gang counts as one without room, and is tried again when a worker gains some.
const SEARCH_STEPS_MAX: usize = 4_000;

/// Steps that start together and are searched for: one bit each. Of more, the cheap way alone decides.
const SEARCHED_PARTS_MAX: usize = u32::BITS as usize;

/// Workers that a search looks at, those first that suit the largest tasks best. It enters a state for each of them,
/// one inside the other, so this bounds its stack.
const SEARCHED_WORKERS_MAX: usize = 256;

/// Tasks of one step that start with others, and the workers that they may have, best first.
pub(super) struct Part<'a> {
    pub(super) class: &'a Class,
    pub(super) workers: Vec<WorkerId>,
    pub(super) tasks: usize,
}

/// True if a worker has room for such amounts together.
type HasRoom<'a> = &'a dyn Fn(WorkerId, &Resources) -> bool;

/// The worker of each task, part by part. If not all can have one, some of those that can.
pub(super) fn match_tasks<'a>(parts: &'a [Part<'a>], has_room: HasRoom<'a>) -> Vec<Option<WorkerId>> {
    let rooms = Rooms { parts, has_room };
    let chosen = Matching::of(rooms).chosen;
    if chosen.iter().all(Option::is_some) {
        return chosen;
    }
    ExactSearch::find(rooms).unwrap_or(chosen)
}

#[derive(Clone, Copy)]
struct Rooms<'a> {
    parts: &'a [Part<'a>],
    has_room: HasRoom<'a>,
}

impl Rooms<'_> {
    /// True if a worker that the part may have has room for a task of it, beside one of each of these other parts.
    fn has_room(&self, worker: WorkerId, part: usize, beside: impl Iterator<Item = usize>) -> bool {
        let class = self.parts[part].class;
        let mut all: Option<Resources> = None;
        for other in beside {
            let also = self.parts[other].class;
            // Which of a worker's limits two tasks may share is for the next round to say.
            if other == part || !also.limits.is_disjoint(&class.limits) {
                return false;
            }
            all.get_or_insert_with(|| class.request.clone()).add(&also.request);
        }
        all.is_none_or(|sum| (self.has_room)(worker, &sum))
    }

    /// The parts, those first whose tasks need most.
    fn largest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        order.sort_by_key(|part| Reverse(&self.parts[*part].class.request));
        order
    }
}

/// The cheap way: each task takes the best worker that is left; where none is, others move one by one (Kuhn's algorithm
/// for bipartite matching). What needs most has the fewest workers, so it chooses first.
struct Matching<'a> {
    rooms: Rooms<'a>,
    /// The part of each task.
    part_of: Vec<usize>,
    /// The worker of each task that has one.
    chosen: Vec<Option<WorkerId>>,
    /// The tasks on each worker.
    on: BTreeMap<WorkerId, Vec<usize>>,
}

impl<'a> Matching<'a> {
    fn of(rooms: Rooms<'a>) -> Matching<'a> {
        let parts = rooms.parts.iter().enumerate();
        let part_of: Vec<usize> = parts.flat_map(|(n, part)| std::iter::repeat_n(n, part.tasks)).collect();
        let chosen = vec![None; part_of.len()];
        let mut matching = Matching { rooms, part_of, chosen, on: BTreeMap::new() };
        for part in rooms.largest_first() {
            let first = matching.part_of.partition_point(|other| *other < part);
            for task in first..first + rooms.parts[part].tasks {
                matching.place(task, &mut BTreeSet::new());
            }
        }
        matching
    }

    /// Finds a worker for a task, and moves others for it if need be. Looks at each worker once.
    fn place(&mut self, task: usize, seen: &mut BTreeSet<WorkerId>) -> bool {
        let parts = self.rooms.parts;
        let workers = &parts[self.part_of[task]].workers;
        if let Some(free) = workers.iter().find(|worker| self.has_room(task, **worker, None)) {
            self.put(task, *free);
            return true;
        }
        for worker in workers.iter().copied() {
            if !seen.insert(worker) {
                continue;
            }
            for other in self.on.get(&worker).cloned().unwrap_or_default() {
                if !self.has_room(task, worker, Some(other)) {
                    continue;
                }
                self.take_off(other, worker);
                self.put(task, worker);
                if self.place(other, seen) {
                    return true;
                }
                self.take_off(task, worker);
                self.put(other, worker);
            }
        }
        false
    }

    fn put(&mut self, task: usize, worker: WorkerId) {
        self.chosen[task] = Some(worker);
        self.on.entry(worker).or_default().push(task);
    }

    fn take_off(&mut self, task: usize, worker: WorkerId) {
        self.chosen[task] = None;
        self.on.entry(worker).or_default().retain(|there| *there != task);
    }

    /// True if the worker has room for the task beside those that it was chosen for, but for one of them.
    fn has_room(&self, task: usize, worker: WorkerId, but: Option<usize>) -> bool {
        let there = self.on.get(&worker).into_iter().flatten().filter(|there| Some(**there) != but);
        self.rooms.has_room(worker, self.part_of[task], there.map(|there| self.part_of[*there]))
    }
}

/// A search through all choices, worker by worker: each takes one task of each part of some set. Only sets to which no
/// part can be added are tried, since a smaller set leaves more to the other workers. Which task of a part goes where
/// does not matter, so a state is the number of tasks that are left of each part. A state that failed is not entered
/// again, so workers with equal room cost little more than one.
///
/// A set of parts is a number with a bit for each of them.
struct ExactSearch<'a> {
    rooms: Rooms<'a>,
    /// The workers, and the parts that may have each.
    workers: Vec<(WorkerId, u32)>,
    /// How many workers each part may have, of those from each place on.
    rest: Vec<Vec<usize>>,
    /// The tasks of each part that have no worker yet.
    left: Vec<usize>,
    /// The parts of which each worker has a task.
    chosen: Vec<u32>,
    /// The largest sets of some parts for which a worker has room.
    largest: BTreeMap<(usize, u32), Vec<u32>>,
    /// Tasks that found no place on the workers from this place on.
    failed: BTreeSet<(usize, Vec<usize>)>,
    steps: Cell<usize>,
}

impl<'a> ExactSearch<'a> {
    /// The worker of each task, part by part; `None` if no choice fits, or none was found.
    fn find(rooms: Rooms<'a>) -> Option<Vec<Option<WorkerId>>> {
        let is_short = |part: &Part| part.workers.len() < part.tasks;
        let parts = rooms.parts.len();
        if !(2..=SEARCHED_PARTS_MAX).contains(&parts) || rooms.parts.iter().any(is_short) {
            return None;
        }
        let mut search = ExactSearch::new(rooms);
        search.place(0).then(|| search.by_task())
    }

    fn new(rooms: Rooms<'a>) -> ExactSearch<'a> {
        let mut workers: Vec<(WorkerId, u32)> = Vec::new();
        let mut places: BTreeMap<WorkerId, usize> = BTreeMap::new();
        for part in rooms.largest_first() {
            for worker in &rooms.parts[part].workers {
                let place = *places.entry(*worker).or_insert(workers.len());
                if place == workers.len() {
                    workers.push((*worker, 0));
                }
                workers[place].1 |= 1 << part;
            }
        }
        workers.truncate(SEARCHED_WORKERS_MAX);
        let mut rest = vec![vec![0; rooms.parts.len()]];
        for (_, may) in workers.iter().rev() {
            let after = rest.last().into_iter().flatten().enumerate();
            let counts: Vec<usize> =
                after.map(|(part, count)| count + usize::from(has(*may, part))).collect();
            rest.push(counts);
        }
        rest.reverse();
        ExactSearch {
            rooms,
            rest,
            left: rooms.parts.iter().map(|part| part.tasks).collect(),
            chosen: vec![0; workers.len()],
            workers,
            largest: BTreeMap::new(),
            failed: BTreeSet::new(),
            steps: Cell::new(0),
        }
    }

    /// Places what is left on the workers from this place on.
    fn place(&mut self, at: usize) -> bool {
        let open = (0..self.left.len())
            .filter(|part| self.left[*part] > 0)
            .fold(0_u32, |set, part| set | (1 << part));
        if open == 0 {
            return true;
        }
        let state = (at, self.left.clone());
        let is_hopeless = self.left.iter().zip(&self.rest[at]).any(|(left, rest)| left > rest);
        if is_hopeless || self.failed.contains(&state) || !self.count_step() {
            return false;
        }
        for set in self.largest_sets(at, open) {
            members(set).for_each(|part| self.left[part] -= 1);
            self.chosen[at] = set;
            if self.place(at + 1) {
                return true;
            }
            members(set).for_each(|part| self.left[part] += 1);
        }
        self.chosen[at] = 0;
        self.failed.insert(state);
        false
    }

    /// The sets of open parts for which a worker has room, and to which none can be added.
    fn largest_sets(&mut self, at: usize, open: u32) -> Vec<u32> {
        let may = self.workers[at].1 & open;
        if let Some(known) = self.largest.get(&(at, may)) {
            return known.clone();
        }
        let mut sets = Vec::new();
        self.extend(at, may, (0, 0), &mut sets);
        self.largest.insert((at, may), sets.clone());
        sets
    }

    /// Adds parts to a set, of those from one on, in all ways.
    fn extend(&self, at: usize, may: u32, (from, set): (usize, u32), sets: &mut Vec<u32>) {
        let worker = self.workers[at].0;
        let fits = |part: &usize| {
            has(may, *part)
                && !has(set, *part)
                && self.count_step()
                && self.rooms.has_room(worker, *part, members(set))
        };
        match (from..self.rooms.parts.len()).find(fits) {
            Some(part) => {
                self.extend(at, may, (part + 1, set | (1 << part)), sets);
                self.extend(at, may, (part + 1, set), sets);
            }
            // One that was left out could be added.
            None if (0..from).any(|part| fits(&part)) => {}
            None => sets.push(set),
        }
    }

    /// One step more; false if there were too many.
    fn count_step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get() <= SEARCH_STEPS_MAX
    }

    fn by_task(&self) -> Vec<Option<WorkerId>> {
        let mut all = Vec::new();
        for part in 0..self.rooms.parts.len() {
            let chosen = self.workers.iter().zip(&self.chosen).filter(|(_, set)| has(**set, part));
            all.extend(chosen.map(|((worker, _), _)| Some(*worker)));
        }
        all
    }
}

/// True if the part is in the set.
fn has(set: u32, part: usize) -> bool {
    set & (1 << part) != 0
}

/// The parts of a set.
fn members(set: u32) -> impl Iterator<Item = usize> {
    (0..SEARCHED_PARTS_MAX).filter(move |part| has(set, *part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each worker has, and of each part what a task asks for, how many there are, and which workers it may have.
    type MatchCase = (Vec<Resources>, Vec<(Resources, usize, u8)>);

    fn amounts(most: u32) -> impl Strategy<Value = Resources> {
        (0..=most, 0..=most).prop_map(|(cpu, memory)| Resources::new(cpu, memory.into()))
    }

    fn farms() -> impl Strategy<Value = MatchCase> {
        let part = (amounts(4), 1_usize..4, any::<u8>());
        (prop::collection::vec(amounts(8), 2..=4), prop::collection::vec(part, 2..=4))
    }

    fn may_have(farm: &MatchCase, part: usize, worker: usize) -> bool {
        let (asks, _, may) = &farm.1[part];
        // Two bits in three: most parts may have most workers.
        may & (0b11 << (2 * worker)) != 0 && asks.fits(&farm.0[worker])
    }

    /// The worker of each task, by what a gang finds.
    fn matched(farm: &MatchCase) -> Option<Vec<WorkerId>> {
        let class =
            |(request, ..): &(Resources, usize, u8)| Class { request: request.clone(), ..Class::default() };
        let classes: Vec<Class> = farm.1.iter().map(class).collect();
        let parts = classes.iter().enumerate().map(|(part, class)| {
            let workers = (0..farm.0.len()).filter(|worker| may_have(farm, part, *worker));
            let workers = workers.map(|worker| WorkerId(worker as u64)).collect();
            Part { class, workers, tasks: farm.1[part].1 }
        });
        let parts: Vec<Part> = parts.collect();
        let has_room = |worker: WorkerId, sum: &Resources| sum.fits(&farm.0[worker.0 as usize]);
        match_tasks(&parts, &has_room).into_iter().collect()
    }

    /// True if some way to give each part, from one on, its number of workers leaves none overfull.
    fn is_possible(farm: &MatchCase, part: usize, used: &[Resources]) -> bool {
        let Some((asks, tasks, _)) = farm.1.get(part) else { return true };
        let mut sets = (0..1_u32 << farm.0.len()).filter(|set| set.count_ones() as usize == *tasks);
        sets.any(|set| {
            let mut used = used.to_vec();
            let is_open = members(set).all(|worker| {
                used[worker].add(asks);
                may_have(farm, part, worker) && used[worker].fits(&farm.0[worker])
            });
            is_open && is_possible(farm, part + 1, &used)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_choice_is_found_exactly_where_there_is_one(farm in farms()) {
            let found = matched(&farm);
            let empty = vec![Resources::default(); farm.0.len()];
            prop_assert_eq!(found.is_some(), is_possible(&farm, 0, &empty));
            let mut used = empty;
            let mut chosen = found.iter().flatten();
            for (part, (asks, tasks, _)) in farm.1.iter().enumerate().filter(|_| found.is_some()) {
                let own: BTreeSet<usize> =
                    chosen.by_ref().take(*tasks).map(|worker| worker.0 as usize).collect();
                prop_assert_eq!(own.len(), *tasks);
                for worker in own {
                    prop_assert!(may_have(&farm, part, worker));
                    used[worker].add(asks);
                }
            }
            prop_assert!(used.iter().zip(&farm.0).all(|(used, has)| used.fits(has)));
        }
    }

    #[test]
    fn a_search_that_is_too_long_ends() {
        // Each part alone has more workers than it needs. All of them together need twice of what there is.
        let workers: Vec<Resources> = vec![Resources::new(3, 3); 40];
        let tasks = [(2, 1), (1, 2), (2, 2), (1, 1), (2, 1), (1, 2)];
        let parts = tasks.map(|(cpu, memory)| (Resources::new(cpu, memory), 28, u8::MAX));
        let class =
            |(request, ..): &(Resources, usize, u8)| Class { request: request.clone(), ..Class::default() };
        let classes: Vec<Class> = parts.iter().map(class).collect();
        let all: Vec<WorkerId> = (0..40).map(WorkerId).collect();
        let parts: Vec<Part> =
            classes.iter().map(|class| Part { class, workers: all.clone(), tasks: 28 }).collect();
        let has_room = |worker: WorkerId, sum: &Resources| sum.fits(&workers[worker.0 as usize]);
        let chosen = match_tasks(&parts, &has_room);
        assert!(chosen.iter().any(Option::is_none));
        assert!(chosen.iter().flatten().count() > 40, "what the cheap way found is told");
    }
}
