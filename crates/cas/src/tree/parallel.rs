//! Work on many files by a few threads.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::error::TreeError;

/// Does `work` for the numbers below `count`, by as many threads as there are cpus, at most `threads_max`. The results
/// are in order of the numbers. After a failure no further work begins.
pub(super) fn in_parallel<R: Send>(
    count: usize,
    threads_max: usize,
    work: &(dyn Fn(usize) -> Result<R, TreeError> + Sync),
) -> Result<Vec<R>, TreeError> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cpus.min(threads_max).min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || {
        let mut done = Vec::new();
        while !has_failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            let result = work(at);
            if result.is_err() {
                has_failed.store(true, Ordering::Relaxed);
            }
            done.push((at, result));
        }
        done
    };
    let mut results: Vec<(usize, Result<R, TreeError>)> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        started
            .into_iter()
            .flat_map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
