//! What tasks are booked with: what their step asks for, or more where earlier tasks held or used more.
//!
//! Properties:
//! - A size is never below what is asked for.
//! - If workers that sizes go by ([`Worker::counts_for_sizes`]) could run what is asked for, some of them could run what
//!   it is sized to, and all tasks that start together could run on them together. So no task waits for memory or cpus
//!   that its step did not ask for and that no such worker has.
//! - Sizes follow what is learned and the workers. When workers change, the cost follows the classes that were sized and
//!   the workers that are looked at for each. Only steps of a profile of which some class is of another size are touched.

use super::Profiles;
use super::sized::{RevisedPart, SizedPart, Sizing};
use crate::class::Class;
use crate::plan::{self, Planner, placement};
use crate::score::history;
use crate::worker::Worker;
use crate::workers::Workers;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Classes of which it is remembered what they were sized to. When there are more, those are dropped of which the
/// profile is gone or knows more since, and where that is not enough, all.
const SIZED_MAX: usize = 4_096;

impl Profiles {
    /// What a class is sized to. `asked` is what is asked for, with what starts together with it; `parts` has what
    /// sizes each part, in the same order.
    pub fn size(&mut self, asked: Class, parts: &[SizedPart], plan: &Planner) -> Class {
        if !self.may_grow(&asked, parts) {
            return asked;
        }
        let sizing = self.sizing_of(asked, parts);
        if let Some(known) = self.sized.known.get(&sizing) {
            return known.clone();
        }
        let class = self.grown(&sizing, plan);
        self.remember(sizing, class.clone());
        class
    }

    /// The same, from scratch.
    pub fn size_now(&self, asked: Class, parts: &[SizedPart], plan: &Planner) -> Class {
        match self.may_grow(&asked, parts) {
            true => self.grown(&self.sizing_of(asked, parts), plan),
            false => asked,
        }
    }

    /// Workers may have changed: brings what classes are sized to in line with them. Returns the signatures of which
    /// steps may be of another size now.
    #[must_use]
    pub fn follow_workers(&mut self, plan: &Planner) -> BTreeSet<u64> {
        let mut changed = BTreeSet::new();
        let version = plan.workers.sizes_version();
        if self.sized.version == version {
            return changed;
        }
        self.sized.version = version;
        if std::mem::take(&mut self.sized.has_dropped) {
            changed
                .extend(self.all.iter().filter(|(_, profile)| profile.sizing.is_some()).map(|(id, _)| *id));
        }
        for (sizing, before) in std::mem::take(&mut self.sized.known) {
            if !self.is_current(&sizing) {
                continue;
            }
            let class = self.grown(&sizing, plan);
            if class != before {
                changed.extend(sizing.parts.iter().map(|part| part.profile));
            }
            self.sized.known.insert(sizing, class);
        }
        changed
    }

    /// False of a class that is what is asked for, whatever workers there are.
    fn may_grow(&self, asked: &Class, parts: &[SizedPart]) -> bool {
        let all = std::iter::once(asked).chain(&asked.mates);
        all.zip(parts).any(|(asked, part)| {
            let profile = self.all.get(&part.profile).filter(|profile| profile.sizing.is_some());
            profile.is_some_and(|known| part.cpus_auto || known.reserve_bytes > asked.request.memory)
        })
    }

    fn sizing_of(&self, asked: Class, parts: &[SizedPart]) -> Sizing {
        let revised = |part: &SizedPart| RevisedPart {
            profile: part.profile,
            revision: self.all.get(&part.profile).map_or(0, |profile| profile.revision),
            cpus_auto: part.cpus_auto,
        };
        Sizing { parts: parts.iter().map(revised).collect(), asked }
    }

    fn is_current(&self, sizing: &Sizing) -> bool {
        let is_same = |part: &RevisedPart| {
            self.all.get(&part.profile).is_some_and(|profile| profile.revision == part.revision)
        };
        sizing.parts.iter().all(is_same)
    }

    fn remember(&mut self, sizing: Sizing, class: Class) {
        if self.sized.known.len() >= SIZED_MAX {
            let mut known = std::mem::take(&mut self.sized.known);
            known.retain(|sizing, _| self.is_current(sizing));
            if known.len() > SIZED_MAX / 2 {
                known.clear();
                self.sized.has_dropped = true;
            }
            self.sized.known = known;
        }
        self.sized.known.insert(sizing, class);
    }

    fn grown(&self, sizing: &Sizing, plan: &Planner) -> Class {
        let mut class = sizing.asked.clone();
        let mut parts = sizing.parts.iter();
        if let Some(part) = parts.next() {
            self.grow(&mut class, part, &plan.workers);
        }
        for (mate, part) in class.mates.iter_mut().zip(parts) {
            self.grow(mate, part, &plan.workers);
        }
        // Each alone fits some worker, and all together may not.
        let is_lone = !class.is_gang() || class == sizing.asked;
        if is_lone || plan::could_start_all(plan, &class, Worker::counts_for_sizes) {
            class
        } else {
            sizing.asked.clone()
        }
    }

    /// Lets a class grow by what is known of it, as far as some worker has that, or as many workers have as it has
    /// tasks that start together.
    fn grow(&self, class: &mut Class, part: &RevisedPart, workers: &Workers) {
        let known =
            self.all.get(&part.profile).and_then(|profile| Some((profile.reserve_bytes, profile.sizing?)));
        let Some((reserve_bytes, prediction)) = known else { return };
        let last = class.nodes.unwrap_or(1).saturating_sub(1) as usize;
        let per_core_bytes = part.cpus_auto.then(|| bytes_per_core(fitting(class, workers)));
        let most_bytes = fitting(class, workers).nth(last).map_or(0, |worker| worker.record.capacity.memory);
        let asked_bytes = class.request.memory;
        class.request.memory = asked_bytes.max(reserve_bytes.min(most_bytes));
        class.guess = class.request.memory - asked_bytes;
        let Some(per_core_bytes) = per_core_bytes else { return };
        // Of those that have this much memory.
        let mut cpus: Vec<u32> = fitting(class, workers).map(|worker| worker.record.capacity.cpu).collect();
        cpus.sort_unstable_by_key(|cpu| Reverse(*cpu));
        let most_cpu = cpus.get(last).copied().unwrap_or(0);
        let cpu = history::auto_cpus(&prediction, per_core_bytes, most_cpu).unwrap_or(0);
        class.request.cpu = class.request.cpu.max(cpu.min(most_cpu));
    }
}

/// The workers that could run a class, of those that sizes go by; those with most memory first.
fn fitting<'a>(class: &'a Class, workers: &'a Workers) -> impl Iterator<Item = &'a Worker> {
    let large = workers
        .largest_first()
        .take_while(move |worker| worker.record.capacity.memory >= class.request.memory);
    large.filter(move |worker| placement::eligible_when_idle(class, worker))
}

/// Bytes of memory that go with each core of workers; 0 of none.
fn bytes_per_core<'a>(workers: impl Iterator<Item = &'a Worker>) -> u64 {
    let (mut kib, mut cpu) = (0_u64, 0_u64);
    for worker in workers {
        kib += worker.record.capacity.memory / 1024;
        cpu += u64::from(worker.record.capacity.cpu);
    }
    (kib * 100).checked_div(cpu).unwrap_or(0) * 1024
}
