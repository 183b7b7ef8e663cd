//! How many workers tasks take: first fit, largest tasks first, over groups of workers of which the same is left. Such a
//! group is one entry however many workers it has, so the cost follows the number of different requests.

use crate::resources::Resources;

/// Workers that have tasks, and of which the same is left.
#[derive(Clone, PartialEq, Debug)]
struct UsedBins {
    left: Resources,
    count: u64,
}

/// The workers of one class as they are filled.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bins {
    model: Resources,
    used: Vec<UsedBins>,
    /// Workers without a task.
    empty: u64,
    opened: u64,
}

impl Bins {
    /// Workers without tasks, each of these amounts.
    pub(super) fn new(model: Resources, count: u64) -> Self {
        Bins { model, used: Vec::new(), empty: count, opened: 0 }
    }

    /// Adds workers that get no more than they run, which is this much.
    pub(super) fn confine(&mut self, runs: Resources, count: u64) {
        self.used.push(UsedBins { left: runs, count });
    }

    /// How many workers have no task.
    pub(super) fn empty(&self) -> u64 {
        self.empty
    }

    /// How many workers were added.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// Gives room to up to `tasks` tasks that run at a time. Returns how many found none.
    pub(super) fn fill(&mut self, request: &Resources, mut tasks: u64) -> u64 {
        for place in 0..self.used.len() {
            if tasks == 0 {
                return 0;
            }
            tasks = self.fill_used(place, request, tasks);
        }
        self.used.retain(|bins| bins.count > 0);
        let each = copies(request, &self.model);
        if each == 0 || tasks == 0 {
            return tasks;
        }
        let count = tasks.div_ceil(each).min(self.empty);
        if count == 0 {
            return tasks;
        }
        self.empty -= count;
        self.used.push(UsedBins { left: self.model.clone(), count });
        self.fill_used(self.used.len() - 1, request, tasks)
    }

    /// Adds up to `most` workers for tasks that found no room. Returns how many still find none.
    pub(super) fn open(&mut self, request: &Resources, tasks: u64, most: u64) -> u64 {
        let each = copies(request, &self.model);
        if each == 0 || tasks == 0 {
            return tasks;
        }
        let count = tasks.div_ceil(each).min(most);
        self.empty += count;
        self.opened += count;
        self.fill(request, tasks)
    }

    /// Gives room to up to `tasks` tasks that run at a time, each on another worker. Returns how many found none.
    pub(super) fn fill_apart(&mut self, request: &Resources, mut tasks: u64) -> u64 {
        for place in 0..self.used.len() {
            let UsedBins { left, count } = self.used[place].clone();
            if copies(request, &left) > 0 {
                let take = count.min(tasks);
                self.used[place].count -= take;
                self.use_for_one(&left, request, take);
                tasks -= take;
            }
        }
        self.used.retain(|bins| bins.count > 0);
        let take = if copies(request, &self.model) > 0 { self.empty.min(tasks) } else { 0 };
        self.empty -= take;
        self.use_for_one(&self.model.clone(), request, take);
        tasks - take
    }

    /// Adds up to `most` workers for tasks that found no room, one for each. Returns how many still find none.
    pub(super) fn open_apart(&mut self, request: &Resources, tasks: u64, most: u64) -> u64 {
        let take = if copies(request, &self.model) > 0 { tasks.min(most) } else { 0 };
        self.opened += take;
        self.use_for_one(&self.model.clone(), request, take);
        tasks - take
    }

    /// Workers of which this is left get a task each.
    fn use_for_one(&mut self, left: &Resources, request: &Resources, count: u64) {
        if count > 0 {
            self.used.push(UsedBins { left: left.less(request), count });
        }
    }

    /// Splits a group into workers that are filled, at most one that is filled in part, and those that stay as they are.
    fn fill_used(&mut self, place: usize, request: &Resources, tasks: u64) -> u64 {
        let UsedBins { left, count } = self.used[place].clone();
        let each = copies(request, &left);
        if each == 0 || count == 0 {
            return tasks;
        }
        let full = (tasks / each).min(count);
        let rest = if full < count { tasks - full * each } else { 0 };
        let in_part = u64::from(rest > 0);
        self.used[place].count = count - full - in_part;
        if full > 0 {
            self.used.push(UsedBins { left: left.less(&times(request, each)), count: full });
        }
        if rest > 0 {
            self.used.push(UsedBins { left: left.less(&times(request, rest)), count: 1 });
        }
        tasks - full * each - rest
    }
}

/// How many tasks of a request fit at a time; the largest number for a request of nothing.
fn copies(request: &Resources, room: &Resources) -> u64 {
    let fixed = [
        (u64::from(request.cpu), u64::from(room.cpu)),
        (request.memory, room.memory),
        (request.gpus.into(), room.gpus.into()),
        (request.gpu_memory, room.gpu_memory),
    ];
    let custom = request.custom.iter();
    let custom = custom.map(|(name, need)| (*need, room.custom.get(name).copied().unwrap_or(0)));
    let each = fixed.into_iter().chain(custom).filter(|(need, _)| *need > 0);
    each.map(|(need, has)| has / need).min().unwrap_or(u64::MAX)
}

fn times(request: &Resources, tasks: u64) -> Resources {
    let few = u32::try_from(tasks).unwrap_or(u32::MAX);
    Resources {
        cpu: request.cpu.saturating_mul(few),
        memory: request.memory.saturating_mul(tasks),
        gpus: request.gpus.saturating_mul(few),
        gpu_memory: request.gpu_memory.saturating_mul(tasks),
        custom: request
            .custom
            .iter()
            .map(|(name, need)| (name.clone(), need.saturating_mul(tasks)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Workers of 4 cpus and 8 bytes of memory, and how many of `here` tasks leave unused, and how many are added.
    fn packed(here: u64, most: u64, tasks: &[(u32, u64, u64)]) -> (u64, u64) {
        let mut bins = Bins::new(Resources::new(400, 8), here);
        for (cpus, memory, count) in tasks {
            let request = Resources::new(cpus * 100, *memory);
            let left = bins.fill(&request, *count);
            bins.open(&request, left, most - bins.opened());
        }
        (bins.empty(), bins.opened())
    }

    #[test]
    fn workers_that_there_are_come_first_and_small_tasks_fill_the_gaps() {
        assert_eq!(packed(3, 9, &[]), (3, 0));
        assert_eq!(packed(3, 9, &[(3, 1, 2)]), (1, 0));
        // Each gap of one cpu takes a small task; the third one takes an unused worker.
        assert_eq!(packed(3, 9, &[(3, 1, 2), (1, 1, 3)]), (0, 0));
        assert_eq!(packed(3, 9, &[(3, 1, 5)]), (0, 2));
        assert_eq!(packed(0, 2, &[(3, 1, 5)]), (0, 2));
        // Memory is what is short.
        assert_eq!(packed(0, 9, &[(1, 4, 5)]), (0, 3));
        // What fits no worker opens none, and what asks for nothing needs one.
        assert_eq!(packed(1, 9, &[(5, 1, 5)]), (1, 0));
        assert_eq!(packed(0, 9, &[(0, 0, 5)]), (0, 1));
    }

    #[test]
    fn tasks_that_start_together_have_a_worker_each() {
        let mut bins = Bins::new(Resources::new(400, 8), 2);
        let one = Resources::new(100, 1);
        assert_eq!(bins.fill_apart(&one, 5), 3);
        assert_eq!((bins.open_apart(&one, 3, 2), bins.empty(), bins.opened()), (1, 0, 2));
        // The next four find room beside them.
        assert_eq!((bins.fill_apart(&one, 4), bins.fill_apart(&Resources::new(300, 1), 1)), (0, 1));
        assert_eq!(bins.open_apart(&Resources::new(500, 1), 1, 9), 1);
    }

    #[test]
    fn workers_that_get_no_more_have_room_for_what_they_run() {
        let mut bins = Bins::new(Resources::new(400, 8), 0);
        let one = Resources::new(100, 1);
        bins.confine(one.clone(), 2);
        assert_eq!((bins.fill(&one, 3), bins.empty()), (1, 0));
    }

    #[test]
    fn a_million_tasks_are_a_few_groups() {
        let mut bins = Bins::new(Resources::new(400, 8), 1_000);
        let left = bins.fill(&Resources::new(300, 1), 1_000_000);
        let groups = bins.used.iter().filter(|bins| bins.count > 0).count();
        assert_eq!((left, groups), (999_000, 1));
    }

    proptest! {
        /// No worker is filled beyond what it has, and no task finds no room while a worker could be added.
        #[test]
        fn all_tasks_have_room(here in 0_u64..5, tasks in prop::collection::vec((0_u32..5, 0_u64..9, 0_u64..20), 0..8)) {
            let model = Resources::new(400, 8);
            let mut bins = Bins::new(model.clone(), here);
            let mut sum = Resources::default();
            for (cpus, memory, count) in tasks {
                let request = Resources::new(cpus * 100, memory);
                let left = bins.fill(&request, count);
                prop_assert_eq!(bins.open(&request, left, 1_000), 0);
                sum.add(&times(&request, count));
            }
            let used: u64 = bins.used.iter().map(|bins| bins.count).sum();
            prop_assert_eq!(used + bins.empty, here + bins.opened);
            let mut taken = times(&model, used);
            for bins in &bins.used {
                taken.sub(&times(&bins.left, bins.count));
            }
            prop_assert_eq!(taken, sum);
        }
    }
}
