//! A job's stage, the readiness of its data and its health, each with the word and the number that Compass CI gives it.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use serde::{Deserialize, Serialize};
use windlass_core::job::{End, JobState, LaunchFault};

/// An enum with a word and a number for each value.
macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $number:literal $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value = $number,)+
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$value),+];

            /// The number on the wire.
            pub fn number(self) -> u8 {
                self as u8
            }

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }

            /// The value with this word; `None` if no value has it.
            pub fn parse(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

numbered! {
    /// The stage of a job. Stages follow each other in this order, and may be skipped. Those from `Finish` on are ends.
    Stage {
        /// Waits for its turn, or for other jobs.
        #[default]
        Submit = 0 "submit",
        /// It was sent to a machine.
        Dispatch = 1 "dispatch",
        Boot = 2 "boot",
        Setup = 3 "setup",
        /// It waits for the other machines of its cluster.
        WaitPeer = 4 "wait_peer",
        Running = 5 "running",
        PostRun = 6 "post_run",
        /// A user inspects the machine.
        ManualCheck = 7 "manual_check",
        /// The user has prolonged the inspection.
        Renew = 8 "renew",
        /// It gave its machine back.
        Finish = 9 "finish",
        /// Its user cancelled it before it ran.
        Cancel = 10 "cancel",
        AbortInvalid = 11 "abort_invalid",
        /// A job that it waited for failed.
        AbortWait = 12 "abort_wait",
        /// Its host could not start it.
        AbortProvider = 13 "abort_provider",
    }
}

numbered! {
    /// The readiness of a job's results.
    Readiness {
        /// There are no results yet.
        #[default]
        None = 0 "N/A",
        Uploading = 1 "uploading",
        Uploaded = 2 "uploaded",
        /// They are uploaded and evaluated.
        Complete = 3 "complete",
        /// Some results are missing.
        Incomplete = 4 "incomplete",
        /// There are none, because the job never ran.
        Norun = 5 "norun",
    }
}

numbered! {
    /// The health of a job. A timeout is too long a time in the stage of its name.
    Health {
        /// No health was reported.
        #[default]
        Unknown = 0 "unknown",
        Success = 1 "success",
        Fail = 2 "fail",
        /// The job was cancelled before it ran.
        Cancel = 10 "cancel",
        WgetKernelFail = 20 "wget_kernel_fail",
        WgetInitrdFail = 21 "wget_initrd_fail",
        InitrdBroken = 22 "initrd_broken",
        LoadDiskFail = 23 "load_disk_fail",
        ErrorMount = 24 "error_mount",
        /// The processor has another microcode than expected.
        MicrocodeMismatch = 25 "microcode_mismatch",
        AbortInvalid = 30 "abort_invalid",
        /// A job that it waited for failed.
        AbortWait = 31 "abort_wait",
        /// Its host could not start it.
        AbortProvider = 32 "abort_provider",
        /// It could not go on.
        Abort = 33 "abort",
        /// It took longer than its own soft limit.
        SoftTimeout = 40 "soft_timeout",
        NfsHang = 41 "nfs_hang",
        Oom = 42 "oom",
        KernelPanic = 43 "kernel_panic",
        /// The user ended the job.
        Terminate = 44 "terminate",
        /// The user logged in to the testbox.
        Disturbed = 45 "disturbed",
        TimeoutDispatch = 50 "timeout_dispatch",
        TimeoutBoot = 51 "timeout_boot",
        TimeoutSetup = 52 "timeout_setup",
        TimeoutWaitPeer = 53 "timeout_wait_peer",
        TimeoutRunning = 54 "timeout_running",
        TimeoutPostRun = 55 "timeout_post_run",
        TimeoutManualCheck = 56 "timeout_manual_check",
        TimeoutRenew = 57 "timeout_renew",
    }
}

impl Stage {
    /// True if the job has ended.
    pub fn is_end(self) -> bool {
        self >= Stage::Finish
    }

    /// The stage, health and readiness of a job of which no host has reported anything.
    pub fn of_untold(state: JobState) -> (Stage, Option<Health>, Readiness) {
        match state {
            JobState::Active => (Stage::Submit, None, Readiness::None),
            JobState::Succeeded => (Stage::Finish, Some(Health::Success), Readiness::Complete),
            JobState::Failed => (Stage::Finish, Some(Health::Abort), Readiness::Incomplete),
            JobState::Canceled => (Stage::Cancel, Some(Health::Cancel), Readiness::Norun),
        }
    }
}

impl Health {
    /// The health of a job that was too long in a stage; `None` for stages without a time limit.
    pub fn timeout(stage: Stage) -> Option<Health> {
        Some(match stage {
            Stage::Dispatch => Health::TimeoutDispatch,
            Stage::Boot => Health::TimeoutBoot,
            Stage::Setup => Health::TimeoutSetup,
            Stage::WaitPeer => Health::TimeoutWaitPeer,
            Stage::Running => Health::TimeoutRunning,
            Stage::PostRun => Health::TimeoutPostRun,
            Stage::ManualCheck => Health::TimeoutManualCheck,
            Stage::Renew => Health::TimeoutRenew,
            _ => return None,
        })
    }

    /// The end of an attempt with this health and stage. One that finished without a reported health succeeded.
    pub fn to_end(health: Option<Health>, stage: Stage) -> End {
        match health {
            _ if stage == Stage::AbortProvider => not_started(),
            None | Some(Health::Unknown | Health::Success) if stage == Stage::Finish => End::Exited(0),
            Some(Health::AbortProvider) => not_started(),
            Some(Health::Cancel | Health::Terminate) => End::Canceled,
            Some(health) if health >= Health::TimeoutDispatch => End::TimeLimit,
            _ => End::Exited(1),
        }
    }
}

/// The end of a job that did not start. A host does not report whether it or the job's kernel and archives are at
/// fault.
fn not_started() -> End {
    End::NotStarted { why: "its host could not start it".to_owned(), fault: LaunchFault::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_those_of_compass_ci() {
        for stage in Stage::ALL {
            assert_eq!(Stage::parse(stage.as_str()), Some(*stage));
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.as_str());
        }
        assert_eq!((Stage::Running.number(), Stage::AbortProvider.number()), (5, 13));
        assert_eq!((Readiness::None.as_str(), Readiness::Norun.number()), ("N/A", 5));
        assert_eq!((Health::Terminate.number(), Health::TimeoutRenew.number()), (44, 57));
        assert_eq!(Health::parse("no such"), None);
    }

    #[test]
    fn health_and_stage_make_an_end() {
        assert_eq!(Health::to_end(None, Stage::Finish), End::Exited(0));
        assert_eq!(Health::to_end(Some(Health::Fail), Stage::Finish), End::Exited(1));
        assert_eq!(Health::to_end(Some(Health::Oom), Stage::Finish), End::Exited(1));
        assert_eq!(Health::to_end(Some(Health::TimeoutBoot), Stage::Finish), End::TimeLimit);
        assert!(matches!(Health::to_end(None, Stage::AbortProvider), End::NotStarted { .. }));
        assert_eq!(Health::to_end(Some(Health::Terminate), Stage::Finish), End::Canceled);
        assert_eq!(Stage::of_untold(JobState::Canceled).0, Stage::Cancel);
    }
}
