//! Reading of traces: comments, then one job on each line as eighteen numbers, with -1 for an unknown value.
//! Archived traces have other negative numbers too, where a clock or a sum went wrong; these are unknown as
//! well. Sizes are bounded, because a trace is any file that a user names. Nothing here interprets the jobs.

use super::nodes::NodeSpec;
use flate2::bufread::MultiGzDecoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of one line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Jobs of one trace.
const JOBS_MAX: usize = 10_000_000;
/// Seconds of any time in a trace, which is half of what 64 bits of nanoseconds can hold.
const SECONDS_MAX: f64 = 9e9;
/// Names of a job's fields, in the order of the format.
const FIELDS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "processors",
    "processor time",
    "memory",
    "processors asked for",
    "time asked for",
    "memory asked for",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];
/// Fields with the extension `{1,1,2} queue 2:ppn=1:tag` after the eighteen; the last one is the node
/// specification.
const FIELDS_WITH_NODES: usize = 21;

/// A trace, with what its comments name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Jobs by submission; those of the same moment are in the order of the file.
    pub jobs: Vec<Record>,
    /// Values of the header comments such as `MaxProcs`, by name. The first of each name counts.
    pub header: BTreeMap<String, String>,
    /// Names of queues by number, as far as the comments have them.
    pub queues: BTreeMap<u64, String>,
    /// Names of users by number, as far as the comments have them.
    pub users: BTreeMap<u64, String>,
    /// Names of programs by number, as far as the comments have them.
    pub programs: BTreeMap<u64, String>,
    /// Lines that were left out because they describe no job, and the first of them.
    pub skipped: Option<(usize, BadLine)>,
}

/// One job of a trace. `None` is unknown. Times are milliseconds, while the format has seconds, also with decimals.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its number in the trace.
    pub number: u64,
    /// When it was submitted, since the start of the trace or since 1970.
    pub submit_ms: u64,
    /// How long it waited.
    pub wait_ms: Option<u64>,
    /// How long it ran.
    pub run_ms: Option<u64>,
    /// Processors that it had.
    pub cpus: Option<u64>,
    /// Processor time, as the mean over its processors.
    pub cpu_ms: Option<u64>,
    /// KiB of memory, as the mean over its processors.
    pub memory_kib: Option<u64>,
    /// Processors that it requested.
    pub asked_cpus: Option<u64>,
    /// Run time that it requested.
    pub asked_ms: Option<u64>,
    /// Memory that it requested: KiB for each processor, or with `nodes` bytes on each machine.
    pub asked_memory: Option<u64>,
    /// 1 for succeeded, 0 for failed, 5 for cancelled.
    pub status: Option<u64>,
    /// Number of its user.
    pub user: Option<u64>,
    /// Number of its group.
    pub group: Option<u64>,
    /// Number of its program.
    pub executable: Option<u64>,
    /// Number of its queue.
    pub queue: Option<u64>,
    /// The machines that it requested, by kind; empty if the trace has no node specifications.
    pub nodes: Vec<NodeSpec>,
}

/// A line that does not describe a job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}; mend the line, or leave it out with --skip-bad")]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// The field, and what is wrong with it.
    pub what: String,
}

/// The reason why a trace cannot be read.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {bad}")]
    Line { path: PathBuf, bad: BadLine },
}

/// The reason why reading ends early.
#[derive(Debug)]
enum Stop {
    Io(io::Error),
    Line(BadLine),
}

impl Trace {
    /// Reads a file, plain or gzipped. With `skip_bad` lines that do not describe a job are left out and counted.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or the first line that does not describe a job.
    pub fn open(path: &Path, skip_bad: bool) -> Result<Trace, TraceError> {
        let file = |source| TraceError::File { path: path.to_owned(), source };
        let input = File::open(path).map_err(file)?;
        Trace::read(input, skip_bad).map_err(|stop| match stop {
            Stop::Io(source) => file(source),
            Stop::Line(bad) => TraceError::Line { path: path.to_owned(), bad },
        })
    }

    /// Parses text, plain or gzipped.
    ///
    /// # Errors
    ///
    /// The first line that does not describe a job.
    pub fn parse(text: &[u8]) -> Result<Trace, BadLine> {
        Trace::read(text, false).map_err(|stop| match stop {
            Stop::Line(bad) => bad,
            // Gzipped text can be truncated.
            Stop::Io(error) => BadLine { line: 0, what: error.to_string() },
        })
    }

    fn read(input: impl Read, skip_bad: bool) -> Result<Trace, Stop> {
        let mut input = BufReader::new(input);
        if input.fill_buf().map_err(Stop::Io)?.starts_with(&[0x1f, 0x8b]) {
            return Trace::lines(BufReader::new(MultiGzDecoder::new(input)), skip_bad);
        }
        Trace::lines(input, skip_bad)
    }

    fn lines(mut input: impl BufRead, skip_bad: bool) -> Result<Trace, Stop> {
        let mut trace = Trace::default();
        let mut bytes = Vec::new();
        for line in 1.. {
            let bad = |what: String| Stop::Line(BadLine { line, what });
            bytes.clear();
            let read =
                (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes).map_err(Stop::Io)?;
            if read == 0 {
                break;
            }
            if read as u64 > LINE_BYTES_MAX {
                return Err(bad(format!("is longer than {LINE_BYTES_MAX} bytes")));
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim();
            if let Some(comment) = text.strip_prefix(';') {
                trace.comment(comment);
            } else if !text.is_empty() {
                if trace.jobs.len() == JOBS_MAX {
                    return Err(bad(format!("has more than {JOBS_MAX} jobs before it")));
                }
                match job(line, text) {
                    Ok(job) => trace.jobs.push(job),
                    Err(what) if skip_bad => {
                        let (lines, _) = trace.skipped.get_or_insert((0, BadLine { line, what }));
                        *lines += 1;
                    }
                    Err(what) => return Err(bad(what)),
                }
            }
        }
        trace.jobs.sort_by_key(|job| job.submit_ms);
        Ok(trace)
    }

    /// Takes in a comment such as `MaxProcs: 128` or `Queue: 1 batch`.
    fn comment(&mut self, text: &str) {
        let Some((word, value)) = text.split_once(':') else { return };
        let (word, value) = (word.trim(), value.trim());
        let named = value.split_once(char::is_whitespace).and_then(|(number, name)| {
            let name = name.trim();
            Some((number.parse::<u64>().ok()?, name.to_owned())).filter(|_| !name.is_empty())
        });
        match (word, named) {
            ("Queue", Some((number, name))) => _ = self.queues.insert(number, name),
            ("User", Some((number, name))) => _ = self.users.insert(number, name),
            ("Program", Some((number, name))) => _ = self.programs.insert(number, name),
            _ => _ = self.header.entry(word.to_owned()).or_insert_with(|| value.to_owned()),
        }
    }
}

fn job(line: usize, text: &str) -> Result<Record, String> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    if fields.len() != FIELDS.len() && fields.len() != FIELDS_WITH_NODES {
        return Err(format!(
            "has {} fields; a job has {}, or {FIELDS_WITH_NODES} with {{nodes}}, queue and node specification",
            fields.len(),
            FIELDS.len()
        ));
    }
    let bad = |place: usize, what: &str| {
        format!("field {place} ({}): '{}' {what}", FIELDS[place - 1], shown(fields[place - 1]))
    };
    let whole = |place: usize| match fields[place - 1].parse::<i64>() {
        Ok(n) => Ok(u64::try_from(n).ok()),
        Err(_) => Err(bad(place, "is neither a whole number nor -1 for what is not known")),
    };
    let time = |place: usize| match fields[place - 1].parse::<f64>() {
        Ok(seconds) if seconds < 0.0 => Ok(None),
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Some((seconds * 1000.0).round() as u64)),
        _ => Err(bad(place, "is neither a number of seconds nor -1 for what is not known")),
    };
    let known = |place: usize, value: Option<u64>| value.ok_or_else(|| bad(place, "must be known"));
    for place in [16, 17] {
        whole(place)?;
    }
    time(18)?;
    Ok(Record {
        line,
        number: known(1, whole(1)?)?,
        submit_ms: known(2, time(2)?)?,
        wait_ms: time(3)?,
        run_ms: time(4)?,
        cpus: whole(5)?,
        cpu_ms: time(6)?,
        memory_kib: whole(7)?,
        asked_cpus: whole(8)?,
        asked_ms: time(9)?,
        asked_memory: whole(10)?,
        status: whole(11)?,
        user: whole(12)?,
        group: whole(13)?,
        executable: whole(14)?,
        queue: whole(15)?,
        nodes: fields.get(FIELDS_WITH_NODES - 1).map(|text| nodes(text)).transpose()?.unwrap_or_default(),
    })
}

fn nodes(text: &str) -> Result<Vec<NodeSpec>, String> {
    NodeSpec::parse(text).map_err(|why| format!("field 21 (node specification): '{}' {why}", shown(text)))
}

/// A field as messages show it: at most 40 characters, escaped.
fn shown(field: &str) -> String {
    field.chars().take(40).flat_map(char::escape_default).collect()
}
