//! Why a class has that number of workers that are wanted, in words.

use super::survey::ClassScaling;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

impl ClassScaling {
    /// The reason as a sentence for people. The target is that of the answer which this is a part of.
    pub fn reason(&self, target_wait_ms: u64) -> String {
        let ClassScaling { here, busy, unusable, wanted, tasks, unknown_tasks, max, for_others, .. } = *self;
        let mut run = format!("{busy} of {here} workers run something");
        if self.confined > 0 {
            run += &format!(", of which {} get no more for now", self.confined);
        }
        if unusable > 0 {
            run += &format!(", and {unusable} of the others take no work");
        }
        if tasks == 0 && for_others > 0 {
            let at_max = if self.is_at_max { format!("; {}", at_most(max)) } else { String::new() };
            return format!(
                "of the tasks that count for other classes {for_others} at a time have room here; {run}{at_max}"
            );
        }
        if tasks == 0 {
            let kept =
                if wanted > busy { format!(", and at least {wanted} are kept") } else { String::new() };
            return format!("nothing waits; {run}{kept}");
        }
        let work = match (tasks - unknown_tasks.min(tasks), unknown_tasks) {
            (0, _) => "for an unknown time".to_owned(),
            (_, 0) => format!("for {}", duration(self.work_ms)),
            (known, unknown) => {
                format!("{known} of them for {}, {unknown} for an unknown time", duration(self.work_ms))
            }
        };
        let (noun, verb) = if tasks == 1 { ("task", "waits") } else { ("tasks", "wait") };
        let (at_a_time, target) = (self.tasks_at_a_time, duration(target_wait_ms));
        let bound = match (self.is_at_max, self.grows) {
            (true, _) => format!("; {}", at_most(max)),
            (false, false) => {
                "; no more workers are asked for, because other classes are declared".to_owned()
            }
            (false, true) => String::new(),
        };
        format!(
            "{tasks} {noun} {verb}, to run {work}; {at_a_time} at a time start all within {target}; {run}{bound}"
        )
    }
}

fn at_most(max: u32) -> String {
    format!("the class has at most {max} workers")
}

/// A duration in its largest unit that keeps it at least 2.
fn duration(ms: u64) -> String {
    match ms {
        0..2_000 => format!("{ms} ms"),
        2_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / MINUTE_MS),
        _ => format!("{} h", ms / HOUR_MS),
    }
}
