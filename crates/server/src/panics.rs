//! A panic ends the process, so that its supervisor starts another: half a server is worse than none for a
//! second. Only a request that panics is answered with an error and harms nothing else, for otherwise a request
//! that finds such a defect could end the server as often as it likes.

use std::panic::PanicHookInfo;

tokio::task_local! {
    /// Set while a request is answered.
    static REQUEST: ();
}

/// From now on a panic outside of requests ends the process.
pub fn end_process_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        before(info);
        if REQUEST.try_with(|()| ()).is_err() {
            tracing::error!("a part of this process made a mistake: ending, to be started again");
            std::process::abort();
        }
    }));
}

/// Answers a request: a panic in it is its own.
pub(crate) async fn in_request<T>(answer: impl Future<Output = T>) -> T {
    REQUEST.scope((), answer).await
}

/// Does a part of a request's work on a thread of its own.
pub(crate) fn in_request_here<T>(work: impl FnOnce() -> T) -> T {
    REQUEST.sync_scope((), work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    const CHILD: &str = "WINDLASS_TEST_PANIC";

    /// What a process of this test binary does, which the tests below start.
    #[test]
    fn child() {
        let Ok(place) = std::env::var(CHILD) else { return };
        end_process_on_panic();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let ended = match place.as_str() {
            "task" => runtime.block_on(runtime.spawn(async { panic!("meant") })),
            _ => runtime.block_on(runtime.spawn(in_request(async {
                let parsing = tokio::task::spawn_blocking(|| in_request_here(|| panic!("meant")));
                assert!(parsing.await.is_err_and(|e| e.is_panic()));
                panic!("meant")
            }))),
        };
        assert!(ended.is_err_and(|e| e.is_panic()));
    }

    fn run(place: &str) -> std::process::ExitStatus {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "panics::tests::child"]).env(CHILD, place);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    }

    #[test]
    fn a_panic_ends_the_process_unless_it_is_a_request_s() {
        assert_eq!(run("task").signal(), Some(rustix::process::Signal::ABORT.as_raw()));
        assert!(run("request").success());
    }
}
