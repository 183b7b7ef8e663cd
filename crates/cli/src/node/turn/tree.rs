//! The memory of a turn's command with all that it started: measured while it runs, and told to the server.

use rustix::param::page_size;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use windlass_api::TurnHolds;
use windlass_api::client::{Client, turns};

/// How long a command has run before it is measured for the first time, and the pause between two measurements. Commands
/// that end before cost nothing.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Where there are many processes, measuring takes at most one part in this many of the time.
const MEASURE_PART: u32 = 50;
/// How often it is told what has not changed. The server tells by that how long it has not.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// A change of one part in this many is told at once.
const CHANGE_PART: u64 = 16;
/// How long the server may take to hear of it.
const TELL_MAX: Duration = Duration::from_secs(2);

/// Measures a command for as long as this is polled, and tells the server. `peak` is the most that was measured.
pub async fn watch(client: &Client, turn: &Cell<u64>, pid: i32, peak: &Cell<u64>) -> Infallible {
    let mut pause = MEASURE_EVERY;
    let mut told: Option<(u64, Instant)> = None;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let memory = held_bytes(Path::new("/proc"), pid);
        pause = MEASURE_EVERY.max(began.elapsed() * MEASURE_PART);
        peak.set(peak.get().max(memory));
        let is_news =
            told.is_none_or(|(bytes, at)| differs(bytes, memory) || began.duration_since(at) >= TELL_EVERY);
        if memory > 0 && is_news {
            // What does not arrive is told again.
            let held = TurnHolds { memory };
            _ = tokio::time::timeout(TELL_MAX, turns::holds(client, turn.get(), &held)).await;
            told = Some((memory, began));
        }
    }
}

fn differs(before: u64, now: u64) -> bool {
    before.abs_diff(now) > before / CHANGE_PART
}

/// Bytes that a process and its descendants hold; 0 where it is gone. Of pages of files and of shared memory those of the
/// process with most of them count: mostly they are the same in all.
fn held_bytes(proc: &Path, root: i32) -> u64 {
    let sizes = tree(proc, root).into_iter().filter_map(|pid| sizes_of(proc, pid));
    let (own, shared) =
        sizes.fold((0u64, 0u64), |(own, most), (private, shared)| (own + private, most.max(shared)));
    (own + shared) * page_size() as u64
}

/// Pages that a process has for itself, and those that it may share.
fn sizes_of(proc: &Path, pid: i32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(proc.join(format!("{pid}/statm"))).ok()?;
    let mut fields = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some((resident.saturating_sub(shared), shared))
}

/// A process and its descendants.
fn tree(proc: &Path, root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent_of(proc, pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![root];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        // No process is met twice: each was the child of one other.
        all.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    all
}

fn parent_of(proc: &Path, pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?;
    // The program's name in parentheses may hold anything.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_what_its_processes_hold_and_what_they_share_once() {
        let dir = tempfile::tempdir().unwrap();
        // Number, parent, resident and shared pages.
        for (pid, parent, resident, shared) in [
            (1, 0, 900, 9),
            (20, 1, 100, 40),
            (21, 20, 500, 60),
            (30, 21, 70, 0),
            (40, 1, 800, 8),
            (50, 50, 1, 1),
        ] {
            let of = dir.path().join(pid.to_string());
            fs::create_dir(&of).unwrap();
            fs::write(of.join("stat"), format!("{pid} (a b) c) S {parent} 7 7 0\n")).unwrap();
            fs::write(of.join("statm"), format!("5000 {resident} {shared} 1 0 1 0\n")).unwrap();
        }
        fs::create_dir(dir.path().join("self")).unwrap();
        let held = |root| held_bytes(dir.path(), root) / page_size() as u64;
        assert_eq!(held(20), 60 + 440 + 70 + 60);
        assert_eq!(held(30), 70);
        assert_eq!((held(99), held(50)), (0, 1), "one that is gone, and one that says nonsense");
    }

    #[test]
    fn this_process_is_measured_with_its_children() {
        let own = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let all = tree(Path::new("/proc"), own);
        assert!(all.contains(&child.id().cast_signed()) && held_bytes(Path::new("/proc"), own) > 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn small_changes_are_not_news() {
        assert!(!differs(1_600, 1_700) && differs(1_600, 1_701) && differs(1_600, 1_000));
        assert!(differs(0, 1) && !differs(0, 0));
    }
}
