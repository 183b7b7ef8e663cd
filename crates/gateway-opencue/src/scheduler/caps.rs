//! Caps of a pass: subscriptions, folders, jobs and limits. The transaction of a booking checks all of them again.
//! Here they keep a pass from planning frames that would be refused.

use super::snapshot::{Host, Layer, Snapshot, Used};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::WorkerId;
use windlass_core::class::Class;
use windlass_core::workers::Workers;

/// The rest of a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Cores and devices; `None` is without bound.
    Amounts {
        /// Hundredths of a core.
        cores: Option<i64>,
        gpus: Option<i64>,
    },
    Frames(i64),
}

/// The kind of a cap, by the row of the tables that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapKind {
    /// The burst of a show in an allocation.
    Subscription,
    /// The maximum of a group of jobs.
    Folder,
    /// The maximum of a job.
    Job,
    /// A limit on frames or hosts.
    Limit,
}

impl CapKind {
    /// The kind of a cap of this name.
    fn of(cap: &str) -> CapKind {
        match cap.split_once(' ') {
            Some(("job", _)) => CapKind::Job,
            Some(("folder", _)) => CapKind::Folder,
            _ => CapKind::Limit,
        }
    }

    /// Its word in counts.
    pub fn name(self) -> &'static str {
        match self {
            CapKind::Subscription => "subscription",
            CapKind::Folder => "folder",
            CapKind::Job => "job",
            CapKind::Limit => "limit",
        }
    }
}

/// All caps of a pass.
#[derive(Default)]
pub struct Caps {
    by_name: BTreeMap<String, Cap>,
    /// Cores that a show (first) may still get of an allocation.
    rooms: BTreeMap<(String, String), i64>,
    /// What frames of a show ask for, in hundredths of a core.
    widths: BTreeMap<String, BTreeSet<u32>>,
    /// Frames of a show and a width get nothing of an allocation: it would be more than its burst.
    blocked: BTreeSet<(String, u32, String)>,
    /// Shows and allocations whose room changed since it was compared with the widths.
    touched: BTreeSet<(String, String)>,
}

/// The name by which hosts are closed to frames of a show and a width.
fn closed(show: &str, width: u32) -> String {
    format!("subscription {show} {width}")
}

impl Caps {
    /// The caps of a snapshot.
    pub fn read(&mut self, snapshot: &Snapshot) {
        self.by_name.clear();
        for layer in &snapshot.layers {
            self.by_name.insert(format!("job {}", layer.job), left(&layer.job_used));
            self.by_name.insert(format!("folder {}", layer.folder), left(&layer.folder_used));
        }
        for limit in snapshot.limits.values() {
            let used =
                if limit.is_of_hosts { limit.frames.len() as i64 } else { limit.frames.values().sum() };
            self.by_name.insert(format!("limit {}", limit.name), Cap::Frames(limit.max - used));
        }
        let rooms =
            snapshot.subscriptions.iter().map(|s| ((s.show.clone(), s.alloc.clone()), s.burst - s.cores));
        self.rooms = rooms.collect();
        self.touched = self.rooms.keys().cloned().collect();
    }

    /// The class with the caps that its layer is under. A cap that all waiting frames of the job cannot reach is left
    /// out: layers of many jobs are one class then, for which a round looks once.
    pub fn limit_class(&self, class: Class, layer: &Layer, snapshot: &Snapshot) -> Class {
        let mut limits = BTreeSet::from([closed(&layer.show, class.request.cpu)]);
        let (used, waiting) = (&layer.job_used, i64::from(layer.waiting));
        let is_tight = |used: i64, max: i64, each: i64| max > 0 && max - used < waiting.saturating_mul(each);
        // Threads may take more than the minimum.
        if layer.is_threadable && used.cores_max > 0
            || is_tight(used.cores, used.cores_max, i64::from(class.request.cpu))
            || is_tight(used.gpus, used.gpus_max, layer.gpus_min)
        {
            limits.insert(format!("job {}", layer.job));
        }
        if layer.folder_used.cores_max > 0 || layer.folder_used.gpus_max > 0 && layer.gpus_min > 0 {
            limits.insert(format!("folder {}", layer.folder));
        }
        let mut targets = BTreeSet::new();
        for id in snapshot.layer_limits.get(&layer.id).into_iter().flatten() {
            let Some(limit) = snapshot.limits.get(id) else { continue };
            if limit.is_of_hosts && limit.frames.len() as i64 >= limit.max {
                // Frames on hosts that are counted already take no more of the limit.
                let hosts: BTreeSet<String> = limit.frames.keys().cloned().collect();
                targets = if targets.is_empty() { hosts } else { &targets & &hosts };
                if targets.is_empty() {
                    limits.insert(format!("limit {}", limit.name));
                }
            } else {
                limits.insert(format!("limit {}", limit.name));
            }
        }
        Class { limits, targets, ..class }
    }

    /// The kind of the first cap that leaves too little for a frame of the class; `None` where none does.
    pub fn first_reached(&self, class: &Class) -> Option<CapKind> {
        self.reached(class).next().map(CapKind::of)
    }

    /// Number of widths of frames that wait, and that are closed out of an allocation by a burst.
    pub fn bursts_reached(&self) -> u64 {
        self.blocked.len() as u64
    }

    /// The caps that leave too little for a frame of the class, by name.
    pub fn reached<'a>(&'a self, class: &'a Class) -> impl Iterator<Item = &'a str> {
        let (cpu, class_gpus) = (i64::from(class.request.cpu), i64::from(class.request.gpus));
        class.limits.iter().map(String::as_str).filter(move |name| match self.by_name.get(*name) {
            Some(Cap::Frames(left)) => *left < 1,
            Some(Cap::Amounts { cores, gpus }) => {
                cores.is_some_and(|left| left < cpu)
                    || class_gpus > 0 && gpus.is_some_and(|left| left < class_gpus)
            }
            None => false,
        })
    }

    /// Hundredths of a core that a frame of the class may get of an allocation.
    pub fn allowed(&self, class: &Class, show: &str, alloc: &str) -> i64 {
        let caps = class.limits.iter().filter_map(|name| self.by_name.get(name));
        let cores = caps.filter_map(|cap| match cap {
            Cap::Amounts { cores, .. } => *cores,
            Cap::Frames(_) => None,
        });
        let room = self.rooms.get(&(show.to_owned(), alloc.to_owned())).copied();
        cores.chain(room).min().unwrap_or(i64::MAX)
    }

    /// A frame of the class was placed.
    pub fn take(&mut self, class: &Class, (cores, gpus): (i64, i64), (show, alloc): (&str, &str)) {
        for name in &class.limits {
            match self.by_name.get_mut(name) {
                Some(Cap::Frames(left)) => *left -= 1,
                Some(Cap::Amounts { cores: has_cores, gpus: has_gpus }) => {
                    *has_cores = has_cores.map(|left| left - cores);
                    *has_gpus = has_gpus.map(|left| left - gpus);
                }
                None => {}
            }
        }
        let key = (show.to_owned(), alloc.to_owned());
        if let Some(room) = self.rooms.get_mut(&key) {
            *room -= cores;
            self.touched.insert(key);
        }
    }

    /// Sets the widths of the frames that wait.
    pub fn set_widths<'a>(&mut self, layers: impl Iterator<Item = (&'a Layer, &'a [Class])>) {
        self.widths.clear();
        for (layer, classes) in layers {
            let widths = self.widths.entry(layer.show.clone()).or_default();
            widths.extend(classes.iter().map(|class| class.request.cpu));
        }
    }

    /// Closes the hosts of an allocation to frames that would go over a burst, and opens those where they would not any
    /// more.
    pub fn block_full_subscriptions(&mut self, workers: &mut Workers, hosts: &BTreeMap<WorkerId, Host>) {
        for key in std::mem::take(&mut self.touched) {
            let Some(room) = self.rooms.get(&key).copied() else { continue };
            let (show, alloc) = key;
            let known = self.blocked.iter().filter(|(s, _, a)| (s, a) == (&show, &alloc));
            let before: BTreeSet<u32> = known.map(|(_, width, _)| *width).collect();
            let widths = self.widths.get(&show).into_iter().flatten();
            let after: BTreeSet<u32> = widths.copied().filter(|width| i64::from(*width) > room).collect();
            for width in before.symmetric_difference(&after) {
                let is_closed = after.contains(width);
                let entry = (show.clone(), *width, alloc.clone());
                if is_closed {
                    self.blocked.insert(entry);
                } else {
                    self.blocked.remove(&entry);
                }
                for (id, _) in hosts.iter().filter(|(_, host)| host.alloc == alloc) {
                    set_closed(workers, *id, &closed(&show, *width), is_closed);
                }
            }
        }
    }

    /// Closes a new host to the frames that its allocation is closed to.
    pub fn block_host(&self, workers: &mut Workers, id: WorkerId, alloc: &str) {
        for (show, width, _) in self.blocked.iter().filter(|(_, _, of)| of == alloc) {
            set_closed(workers, id, &closed(show, *width), true);
        }
    }
}

/// Closes a host to the classes that have this name among their limits, or opens it to them.
pub(super) fn set_closed(workers: &mut Workers, id: WorkerId, name: &str, is_closed: bool) {
    workers.update(id, |worker| worker.licences.take(name, Some(1), if is_closed { 1 } else { -1 }));
    if !is_closed {
        workers.gained(id);
    }
}

fn left(used: &Used) -> Cap {
    let less = |used: i64, max: i64| (max > 0).then_some(max - used);
    Cap::Amounts { cores: less(used.cores, used.cores_max), gpus: less(used.gpus, used.gpus_max) }
}
