//! Why a task failed: one word for programs, a sentence for people, and what to do about it. The API, the command line
//! and the board all show these.

use crate::ids::TaskId;
use crate::job::{End, StepSpec, TaskResult};
use crate::resources::Bytes;

/// Least memory that is advised for a task that ran out of it: 64 MiB.
const MEMORY_ADVISED_MIN: u64 = 64 << 20;

/// The sentence of a task whose worker's memory was short, below any limit of its own.
pub const SHORT_OF_MEMORY: &str = "a process of it was killed because memory was short";

/// One word for why a task failed. Programs compare these, so they never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Its working directory could not be entered.
    Directory,
    /// Its program could not be executed.
    Program,
    /// Its worker could not make it run as its user.
    User,
    /// It could not be started, for another reason.
    NotStarted,
    /// Its program ended with an exit code that means failure.
    ExitCode,
    /// A signal that Windlass did not send ended it.
    Signal,
    /// It was killed at its memory limit, or a process of it because memory was short.
    OutOfMemory,
    /// It was killed at its time limit.
    TimeLimit,
    /// Its worker was lost while it ran, more often than it is tried again.
    Lost,
    /// Its program succeeded, and what was to be kept of its directory could not be kept.
    OutputsLost,
    /// It was cancelled, or taken back before it started.
    Canceled,
    /// A job that its job comes after did not succeed.
    Dependency,
    /// A word of a newer release, or an end that is not known.
    Other,
}

/// What is known of an attempt that failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// The task, for the commands that the advice names.
    pub task: TaskId,
    /// How the attempt ended; `None` if that is not known.
    pub result: Option<&'a TaskResult>,
    /// Bytes of memory with which it was booked; `None` if that is not known.
    pub memory_bytes: Option<u64>,
    /// The step of the task, with its limits.
    pub step: &'a StepSpec,
}

impl Cause {
    /// All causes, with the words that stand for them.
    pub const ALL: [(Cause, &'static str); 13] = [
        (Cause::Directory, "directory"),
        (Cause::Program, "program"),
        (Cause::User, "user"),
        (Cause::NotStarted, "not_started"),
        (Cause::ExitCode, "exit_code"),
        (Cause::Signal, "signal"),
        (Cause::OutOfMemory, "out_of_memory"),
        (Cause::TimeLimit, "time_limit"),
        (Cause::Lost, "lost"),
        (Cause::OutputsLost, "outputs_lost"),
        (Cause::Canceled, "canceled"),
        (Cause::Dependency, "dependency"),
        (Cause::Other, "other"),
    ];

    /// The word that stands for it.
    pub fn as_str(self) -> &'static str {
        Cause::ALL[self as usize].1
    }

    /// The cause of a word; [`Cause::Other`] of one that this release does not know.
    pub fn parse(word: &str) -> Cause {
        Cause::ALL.iter().find(|(_, known)| *known == word).map_or(Cause::Other, |(cause, _)| *cause)
    }

    /// The sentence for readers who may not know what the task runs; `None` where the sentence of a failure quotes
    /// nothing of that.
    pub fn outline(self) -> Option<&'static str> {
        match self {
            Cause::Directory => Some("its working directory could not be entered"),
            Cause::Program => Some("its program could not be started"),
            Cause::User => Some("its worker could not run it as its user"),
            Cause::NotStarted => Some("it could not be started"),
            Cause::OutputsLost => Some("its outputs could not be kept"),
            _ => None,
        }
    }

    /// The cause of a start that failed, by the words of the worker, which are all that the store keeps of it.
    fn of_start(why: &str) -> Cause {
        const USER: [&str; 4] = ["cannot become its user", "submitter '", "submitters can", "user '"];
        if why.starts_with("cannot enter the working directory") {
            Cause::Directory
        } else if why.starts_with("cannot start '") {
            Cause::Program
        } else if USER.iter().any(|begin| why.starts_with(*begin)) {
            Cause::User
        } else {
            Cause::NotStarted
        }
    }
}

impl FailedAttempt<'_> {
    /// Why it failed, in one word.
    pub fn cause(&self) -> Cause {
        match self.result.map(|result| &result.end) {
            Some(End::Exited(_)) => Cause::ExitCode,
            Some(End::Signaled(_)) => Cause::Signal,
            Some(End::TimeLimit) => Cause::TimeLimit,
            Some(End::OutOfMemory) => Cause::OutOfMemory,
            Some(End::Canceled | End::Recalled) => Cause::Canceled,
            Some(End::NotStarted { why, .. }) => Cause::of_start(why),
            Some(End::Lost) => Cause::Lost,
            Some(End::OutputsLost { .. }) => Cause::OutputsLost,
            None => Cause::Other,
        }
    }

    /// Why it failed, as a sentence. Failures with the same sentence are alike, so nothing in it is of one task alone,
    /// but for what the worker said of a start or of outputs.
    pub fn summary(&self) -> String {
        match self.result.map(|result| &result.end) {
            Some(End::Exited(code)) => format!("exit code {code}"),
            Some(End::Signaled(number)) => match signal_name(*number) {
                Some(name) => format!("killed by signal {number} ({name})"),
                None => format!("killed by signal {number}"),
            },
            Some(End::TimeLimit) => match self.step.time_limit_ms {
                Some(limit_ms) => format!("over its time limit of {}", duration(limit_ms)),
                None => "over its time limit".to_owned(),
            },
            Some(End::OutOfMemory) => match self.memory_limit().filter(|_| !self.is_short_of_memory()) {
                Some(bytes) => format!("over its memory limit of {}", Bytes(bytes)),
                None => SHORT_OF_MEMORY.to_owned(),
            },
            Some(End::Canceled | End::Recalled) => "cancelled".to_owned(),
            Some(End::NotStarted { why, .. }) if why.is_empty() => {
                "it could not be started, and its worker gave no reason".to_owned()
            }
            Some(End::NotStarted { why, .. }) => split_start(why).0.to_owned(),
            Some(End::Lost) => "its worker was lost while it ran".to_owned(),
            Some(End::OutputsLost { why, .. }) if why.is_empty() => {
                "its outputs could not be kept, and its worker gave no reason".to_owned()
            }
            Some(End::OutputsLost { why, .. }) => format!("its outputs could not be kept: {why}"),
            None => "it ended in a way that is not known".to_owned(),
        }
    }

    /// What to do about it; `None` where only the output of the task can tell.
    pub fn advice(&self) -> Option<String> {
        match self.result.map(|result| &result.end)? {
            End::Exited(126) => Some("126 is a shell's code for a file that is not executable".to_owned()),
            End::Exited(127) => Some(
                "127 is a shell's code for a program that it does not find: give its path, or PATH with --env"
                    .to_owned(),
            ),
            End::Signaled(9) => Some(
                "Windlass did not send this signal: the kernel log of the worker says whether memory ran out"
                    .to_owned(),
            ),
            End::TimeLimit => Some(match self.step.time_limit_ms {
                Some(limit_ms) => {
                    format!("let it run longer: --time-limit {}", duration(limit_ms.saturating_mul(2)))
                }
                None => "let it run longer: --time-limit TIME".to_owned(),
            }),
            End::OutOfMemory if self.is_short_of_memory() => {
                Some("book the memory that it needs, so that nothing else takes it: --memory SIZE".to_owned())
            }
            End::OutOfMemory => Some(format!("ask for more memory: --memory {}", self.memory_advised())),
            End::Lost => {
                Some(format!("'windlass job retry {}' runs it again, on another worker", self.task))
            }
            End::NotStarted { why, .. } => advice_on_start(why),
            End::OutputsLost { .. } => {
                Some(format!("mend that, and 'windlass job retry {}' runs it again", self.task))
            }
            End::Exited(_) | End::Signaled(_) | End::Canceled | End::Recalled => None,
        }
    }

    /// Bytes that it could hold. Windlass kills nothing for memory that no one asked for.
    fn memory_limit(&self) -> Option<u64> {
        let asked = self.step.request.memory;
        (asked > 0).then(|| self.memory_bytes.unwrap_or(0).max(asked))
    }

    /// True if the kernel killed a process of it below that.
    fn is_short_of_memory(&self) -> bool {
        self.result.is_some_and(|result| result.is_short_of_memory(self.memory_limit()))
    }

    /// Twice what it had or held, as `--memory` takes it.
    fn memory_advised(&self) -> String {
        let peak = self.result.and_then(|result| result.peak_memory).unwrap_or(0);
        let had = self.memory_limit().unwrap_or(0).max(peak);
        let advised = had.max(MEMORY_ADVISED_MIN / 2).saturating_mul(2);
        Bytes(advised.checked_next_power_of_two().unwrap_or(advised)).to_string().replace(' ', "")
    }
}

/// What a worker said of a start that failed, without the advice in it, and that advice.
fn split_start(why: &str) -> (&str, Option<&str>) {
    let separator = match Cause::of_start(why) {
        Cause::Directory => "; --cwd",
        Cause::User => "; ",
        // A program may have any name, so only these words are taken for advice.
        Cause::Program => "; it is taken for",
        _ => return (why, None),
    };
    match why.rfind(separator).map(|at| (&why[..at], &why[at + "; ".len()..])) {
        Some((what, advice)) if !advice.is_empty() => (what, Some(advice)),
        _ => (why, None),
    }
}

fn advice_on_start(why: &str) -> Option<String> {
    let said = split_start(why).1.map(str::to_owned);
    let own = match Cause::of_start(why) {
        Cause::Directory => Some("--cwd DIR names one that this worker has"),
        Cause::Program if why.ends_with("its interpreter does not exist") => {
            Some("correct the first line of the script (#!), or install on the worker what it names")
        }
        Cause::Program if why.contains("Is a directory") => Some("give the path of a program in it"),
        Cause::Program if why.contains("No such file") => {
            Some("give the path of a program that the worker has")
        }
        Cause::Program if why.contains("Permission denied") => {
            Some("make the file executable: chmod +x FILE")
        }
        Cause::Program if why.contains("Exec format error") => {
            Some("give a script, or a program for the worker's kind of machine")
        }
        Cause::User => Some("the operator of the worker maps submitters to its users with --map-user"),
        _ => None,
    };
    said.or_else(|| own.map(str::to_owned))
}

/// A duration as flags take it, without loss: `1h30m`, `2s500ms`.
fn duration(ms: u64) -> String {
    let parts = [(ms / 3_600_000, "h"), (ms / 60_000 % 60, "m"), (ms / 1_000 % 60, "s"), (ms % 1_000, "ms")];
    let some = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}"));
    let text: String = some.collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The name of a signal of Linux, where tasks run.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::job::LaunchFault;
    use proptest::prelude::*;

    const DIRECTORY: &str = "cannot enter the working directory '/films': No such file or directory (os error 2); \
                             --cwd DIR names one that this worker has";

    fn step() -> StepSpec {
        let mut step = StepSpec { time_limit_ms: Some(90_000), ..StepSpec::default() };
        step.request.memory = 2 << 30;
        step
    }

    fn say(end: End, step: &StepSpec) -> (Cause, String, Option<String>) {
        let result = TaskResult::bare(end);
        let task = TaskId { job: JobId(22), index: 2 };
        let failed = FailedAttempt { task, result: Some(&result), memory_bytes: None, step };
        (failed.cause(), failed.summary(), failed.advice())
    }

    fn outputs_lost(why: &str) -> End {
        End::OutputsLost { why: why.to_owned(), fault: LaunchFault::Unknown }
    }

    fn not_started(why: &str) -> End {
        End::NotStarted { why: why.to_owned(), fault: LaunchFault::Unknown }
    }

    #[test]
    fn words_are_a_contract() {
        for (place, (cause, word)) in Cause::ALL.iter().enumerate() {
            assert_eq!((*cause as usize, cause.as_str(), Cause::parse(word)), (place, *word, *cause));
        }
        assert_eq!(Cause::parse("quantum"), Cause::Other);
    }

    #[test]
    fn each_end_has_its_cause_and_its_sentence() {
        let cases = [
            (End::Exited(4), Cause::ExitCode, "exit code 4"),
            (End::Signaled(11), Cause::Signal, "killed by signal 11 (SIGSEGV)"),
            (End::Signaled(40), Cause::Signal, "killed by signal 40"),
            (End::TimeLimit, Cause::TimeLimit, "over its time limit of 1m30s"),
            (End::OutOfMemory, Cause::OutOfMemory, "over its memory limit of 2 GiB"),
            (End::Lost, Cause::Lost, "its worker was lost while it ran"),
            (
                outputs_lost("the quota is used up"),
                Cause::OutputsLost,
                "its outputs could not be kept: the quota is used up",
            ),
            (
                outputs_lost(""),
                Cause::OutputsLost,
                "its outputs could not be kept, and its worker gave no reason",
            ),
            (End::Canceled, Cause::Canceled, "cancelled"),
            (not_started("cannot start 'a; b': gone"), Cause::Program, "cannot start 'a; b': gone"),
            (not_started("cannot open its log: gone"), Cause::NotStarted, "cannot open its log: gone"),
        ];
        for (end, cause, summary) in cases {
            let (is, says, _) = say(end, &step());
            assert_eq!((is, &*says), (cause, summary));
        }
        let bare = StepSpec::default();
        assert_eq!(say(End::TimeLimit, &bare).1, "over its time limit");
        assert_eq!(say(End::OutOfMemory, &bare).1, SHORT_OF_MEMORY);
        let below = |peak| {
            let result = TaskResult { peak_memory: Some(peak), ..TaskResult::bare(End::OutOfMemory) };
            let (task, step) = (TaskId { job: JobId(22), index: 2 }, step());
            let failed =
                FailedAttempt { task, result: Some(&result), memory_bytes: Some(3 << 30), step: &step };
            (failed.summary(), failed.advice().unwrap_or_default())
        };
        let (summary, advice) = below((3 << 30) - 1);
        assert_eq!(summary, SHORT_OF_MEMORY);
        assert!(advice.ends_with("--memory SIZE"), "{advice}");
        assert_eq!(below(3 << 30).0, "over its memory limit of 3 GiB");
    }

    #[test]
    fn advice_has_the_figure_and_the_flag() {
        let advice = |end| say(end, &step()).2.unwrap_or_default();
        assert_eq!(advice(End::OutOfMemory), "ask for more memory: --memory 4GiB");
        assert_eq!(advice(End::TimeLimit), "let it run longer: --time-limit 3m");
        assert_eq!(advice(End::Lost), "'windlass job retry 22.2' runs it again, on another worker");
        assert_eq!(advice(outputs_lost("x")), "mend that, and 'windlass job retry 22.2' runs it again");
        assert!(advice(End::Exited(127)).contains("--env"));
        assert_eq!(advice(End::Exited(1)), "");
    }

    #[test]
    fn what_cannot_be_started_is_advised_by_its_reason() {
        let advice = |why| say(not_started(why), &step()).2.unwrap_or_default();
        assert!(advice("cannot start './films': Is a directory (os error 21)").contains("program in it"));
        assert!(advice("cannot start './x': its interpreter does not exist").contains("(#!)"));
        assert!(
            advice("cannot start './x': No such file or directory (os error 2)").contains("the worker has")
        );
    }

    #[test]
    fn what_a_worker_advises_is_told_as_advice() {
        let (cause, summary, advice) = say(not_started(DIRECTORY), &step());
        assert_eq!(cause, Cause::Directory);
        assert_eq!(
            summary,
            "cannot enter the working directory '/films': No such file or directory (os error 2)"
        );
        assert_eq!(advice.as_deref(), Some("--cwd DIR names one that this worker has"));
        let mapped =
            "submitter 'ann' is mapped to no user of this worker; its operator adds --map-user ann=USER";
        let (cause, summary, advice) = say(not_started(mapped), &step());
        assert_eq!((cause, &*summary), (Cause::User, "submitter 'ann' is mapped to no user of this worker"));
        assert_eq!(advice.as_deref(), Some("its operator adds --map-user ann=USER"));
    }

    fn ends() -> impl Strategy<Value = End> {
        prop_oneof![
            any::<i32>().prop_map(End::Exited),
            any::<i32>().prop_map(End::Signaled),
            Just(End::TimeLimit),
            Just(End::OutOfMemory),
            Just(End::Canceled),
            Just(End::Recalled),
            Just(End::Lost),
            ".{0,40}".prop_map(|why| outputs_lost(&why)),
            "(cannot enter the working directory|cannot start '|submitter '|)[a-zü;' -]{0,40}"
                .prop_map(|why| not_started(&why)),
        ]
    }

    proptest! {
        /// Whatever ended, it is said in words, and more is advised than there was.
        #[test]
        fn every_failure_is_said(
            end in ends(),
            memory in prop_oneof![Just(0), any::<u64>()],
            peak in any::<Option<u64>>(),
            limit in any::<Option<u64>>(),
        ) {
            let mut step = StepSpec { time_limit_ms: limit, ..StepSpec::default() };
            step.request.memory = memory;
            let result = TaskResult { peak_memory: peak, ..TaskResult::bare(end) };
            let task = TaskId { job: JobId(1), index: 0 };
            let failed = FailedAttempt { task, result: Some(&result), memory_bytes: None, step: &step };
            prop_assert!(!failed.summary().is_empty());
            prop_assert!(failed.cause() != Cause::Other && failed.cause() != Cause::Dependency);
            prop_assert!(failed.advice() != Some(String::new()));
            let quotes = matches!(result.end, End::NotStarted { .. } | End::OutputsLost { .. });
            prop_assert_eq!(failed.cause().outline().is_some(), quotes);
        }
    }
}
