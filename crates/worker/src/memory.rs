//! What processes hold in memory, by the files of `/proc`. `keeper` asks for the processes of a task, and `load` for
//! those of all tasks, where no control group counts them. The caller finds the processes.

use std::fs;
use std::io;
use std::path::Path;

/// Resident bytes of each of these processes; none of a process that is gone. A page that several share counts for
/// each. This reads counters, and waits for nothing that a process does.
pub fn resident_sizes(proc: &Path, pids: &[i32]) -> Vec<u64> {
    let page = rustix::param::page_size() as u64;
    let size = |pid: &i32| {
        let text = fs::read_to_string(proc.join(format!("{pid}/statm"))).ok()?;
        Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * page)
    };
    pids.iter().filter_map(size).collect()
}

/// Bytes of these processes together, in which a page that several processes share counts once: for each of them its
/// part. The kernel walks over all of their pages, at some milliseconds for each GiB, and may wait for a process that
/// changes its memory at that moment.
///
/// # Errors
/// If a process that lives cannot be read: the kernel is too old, or does not let this user.
pub fn proportional_bytes(proc: &Path, pids: &[i32]) -> io::Result<u64> {
    let mut bytes = 0u64;
    for pid in pids {
        match fs::read_to_string(proc.join(format!("{pid}/smaps_rollup"))) {
            // A process that has ended and is not collected has none.
            Ok(text) => bytes = bytes.saturating_add(proportional(&text).unwrap_or(0)),
            Err(_) if !proc.join(pid.to_string()).exists() => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}

/// The bytes of the line `Pss:   N kB`.
fn proportional(rollup: &str) -> Option<u64> {
    let size = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    size.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_processes_share_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let page = rustix::param::page_size() as u64;
        for (pid, pages, pss_kib) in [(11, 100, 60), (12, 90, 55)] {
            let of = dir.path().join(pid.to_string());
            fs::create_dir(&of).unwrap();
            fs::write(of.join("statm"), format!("500 {pages} 1 1 0 1 0\n")).unwrap();
            let rollup = format!(
                "1000-2000 ---p 00000000 00:00 0 [rollup]\nRss: 400 kB\nPss:  {pss_kib} kB\nPss_Anon: 9 kB\n"
            );
            fs::write(of.join("smaps_rollup"), rollup).unwrap();
        }
        let pids = [11, 12, 99];
        assert_eq!(resident_sizes(dir.path(), &pids), [100 * page, 90 * page]);
        assert_eq!(proportional_bytes(dir.path(), &pids).unwrap(), 115 << 10);
        fs::remove_file(dir.path().join("12/smaps_rollup")).unwrap();
        assert!(proportional_bytes(dir.path(), &pids).is_err(), "it lives, and is not told");
    }

    #[test]
    fn this_process_can_be_read() {
        let own = [std::process::id() as i32];
        let [resident] = resident_sizes(Path::new("/proc"), &own)[..] else { panic!("it is there") };
        let part = proportional_bytes(Path::new("/proc"), &own).unwrap();
        assert!(part > 0 && part <= 2 * resident, "{part} of {resident}");
    }
}
