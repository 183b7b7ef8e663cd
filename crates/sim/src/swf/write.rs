//! Writing of traces. `windlass sim export` writes the jobs of a server with it, and tests read the result
//! back. It writes what a [`Trace`] has, without checks, and no node specifications.

use super::read::{Record, Trace};
use std::io::{self, Write};

/// Writes a trace: its header, the names of its queues, users and programs, and a line for each job. Times are whole
/// seconds, as in the format. With `fractions` they keep their milliseconds, which not every reader accepts.
///
/// # Errors
///
/// Errors of the output.
pub fn write(trace: &Trace, fractions: bool, out: &mut impl Write) -> io::Result<()> {
    for (word, value) in &trace.header {
        writeln!(out, "; {word}: {}", one_line(value))?;
    }
    let names = [("Queue", &trace.queues), ("User", &trace.users), ("Program", &trace.programs)];
    for (what, names) in names {
        for (number, name) in names {
            writeln!(out, "; {what}: {number} {}", one_line(name))?;
        }
    }
    trace.jobs.iter().try_for_each(|job| writeln!(out, "{}", line(job, fractions)))
}

fn line(job: &Record, fractions: bool) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), |n| n.to_string());
    let time = |ms: Option<u64>| match ms {
        Some(ms) if fractions && ms % 1000 > 0 => format!("{}.{:03}", ms / 1000, ms % 1000),
        Some(ms) if fractions => (ms / 1000).to_string(),
        _ => number(ms.map(|ms| (ms + 500) / 1000)),
    };
    let fields = [
        job.number.to_string(),
        time(Some(job.submit_ms)),
        time(job.wait_ms),
        time(job.run_ms),
        number(job.cpus),
        time(job.cpu_ms),
        number(job.memory_kib),
        number(job.asked_cpus),
        time(job.asked_ms),
        number(job.asked_memory),
        number(job.status),
        number(job.user),
        number(job.group),
        number(job.executable),
        number(job.queue),
        // Partition, preceding job and think time.
        number(None),
        number(None),
        number(None),
    ];
    fields.join(" ")
}

/// The text on one line: control characters become spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
