//! Work for the engine's thread that the server's runtime does. The engine's thread looks after a future only between two
//! rounds, so there each step of a read would wait for a round, and a task spawned there would wait until no round follows.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::Pin;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// The runtime in which the server was started.
pub(crate) struct Background(Handle);

impl Background {
    pub fn here() -> Background {
        Background(Handle::current())
    }

    /// Begins with the work, and ends it early if the returned future is dropped. A panic of the work becomes a panic of
    /// the task that waits for it.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = T> + Send>> {
        let running = AbortOnDropHandle::new(self.0.spawn(work));
        Box::pin(async move {
            match running.await {
                Ok(outcome) => outcome,
                Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
                // The runtime ends, and the process with it.
                Err(_) => pending().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    /// Work of several steps.
    async fn count_steps(steps: Arc<AtomicUsize>) {
        for _ in 0..3 {
            steps.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_never_waits_does_not_delay_it() {
        let background = Background::here();
        let busy = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move {
                let steps = Arc::new(AtomicUsize::new(0));
                let _read = background.run(count_steps(steps.clone()));
                let deadline = Instant::now() + Duration::from_secs(30);
                while steps.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
                    std::hint::spin_loop();
                }
                steps.load(Ordering::Relaxed)
            })
        });
        let steps = tokio::task::spawn_blocking(move || busy.join().unwrap()).await.unwrap();
        assert_eq!(steps, 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_ends_when_nothing_waits_for_it() {
        let background = Background::here();
        let held = Arc::new(());
        let work = background.run({
            let held = held.clone();
            async move {
                pending::<()>().await;
                drop(held);
            }
        });
        drop(work);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
