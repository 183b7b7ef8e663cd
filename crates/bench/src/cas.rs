//! The store of files: which of a thousand digests it lacks, and how fast blobs go in and out, each beside a plain way
//! to the same.

use super::figures::{elapsed_ms, median, mib, percentile, resident_bytes};
use anyhow::Context as _;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use windlass_cas::{Blob, Cas, CasConfig, Digest, Hasher, Space, SyncPolicy};

/// Digests of a question. Half of them are there.
const ASKED: u64 = 1_000;
/// Questions, of which the median counts.
const QUESTIONS: u64 = 201;
/// Large blobs, of which the median counts.
const RUNS: u8 = 5;
/// Threads that fill the store.
const THREADS: u64 = 16;
const PIECE_BYTES: usize = 1 << 20;
const NOW_MS: u64 = 1_800_000_000_000;

/// Fills a store with small blobs, asks it, opens it again, and passes large blobs through it.
pub fn run(dir: &Path, blobs: u64, large_mib: u64) -> anyhow::Result<()> {
    let dir = dir.join("cas");
    let before = resident_bytes()?;
    let cas = open(&dir)?;
    let (ms, filled) = elapsed_ms(|| fill(&cas, blobs));
    filled?;
    let added = resident_bytes()?.saturating_sub(before);
    println!("small blobs, {blobs} from {THREADS} threads: {:.0}/s", blobs as f64 / ms * 1e3);
    println!("  resident memory that they add: {:.1} MiB, {} bytes each", mib(added), added / blobs.max(1));
    questions(&cas, blobs)?;
    drop(cas);
    let (ms, cas) = elapsed_ms(|| open(&dir));
    println!("opened again: {ms:.0} ms");
    large(&cas?, &dir, large_mib)
}

fn open(dir: &Path) -> anyhow::Result<Cas> {
    let (bytes_max, sync) = (1 << 40, SyncPolicy::Never);
    Ok(Cas::open(CasConfig { dir: dir.to_owned(), bytes_max, keep_ms: 0, sync }, NOW_MS)?)
}

fn fill(cas: &Cas, blobs: u64) -> anyhow::Result<()> {
    let fill_part = |thread: u64| {
        (thread..blobs).step_by(THREADS as usize).try_for_each(|number| {
            let bytes = number.to_le_bytes();
            cas.put(Space::Cache, Digest::of(&bytes), &bytes, NOW_MS)
        })
    };
    std::thread::scope(|scope| {
        let fill_part = &fill_part;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || fill_part(thread))).collect();
        for thread in threads {
            thread.join().expect("a thread that fills does not panic")?;
        }
        Ok(())
    })
}

fn questions(cas: &Cas, blobs: u64) -> anyhow::Result<()> {
    let known: HashSet<Digest> = (0..blobs).map(|number| Digest::of(&number.to_le_bytes())).collect();
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for question in 0..QUESTIONS {
        // Spread over the store, so that each lookup is as cold as in use.
        let number = |at: u64| (question * 7_919 + at * 104_729) % (2 * blobs);
        let asked: Vec<Digest> = (0..ASKED).map(|at| Digest::of(&number(at).to_le_bytes())).collect();
        let (ms, missing) = elapsed_ms(|| cas.missing(Space::Cache, &asked, NOW_MS));
        ours.push(ms);
        let look = || asked.iter().filter(|digest| !known.contains(*digest)).copied().collect::<Vec<_>>();
        let (ms, expected) = elapsed_ms(look);
        plain.push(ms);
        anyhow::ensure!(missing == expected, "the store and the set differ");
    }
    let (p50, p99, plain) = (median(&mut ours), percentile(&mut ours, 0.99), median(&mut plain));
    println!("{ASKED} digests asked of {blobs}: p50 {p50:.3} ms, p99 {p99:.3} ms");
    println!("  a HashSet: p50 {plain:.3} ms, ratio {:.2}", p50 / plain);
    Ok(())
}

fn large(cas: &Cas, dir: &Path, large_mib: u64) -> anyhow::Result<()> {
    let (mut hashes, mut ins, mut outs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut plain_ins, mut plain_outs) = (Vec::new(), Vec::new());
    let mut piece: Vec<u8> = (0..PIECE_BYTES).map(|at| at as u8).collect();
    let plain_path = dir.join("plain");
    for run in 0..RUNS {
        piece[0] = run.wrapping_add(1);
        let mut hasher = Hasher::default();
        hashes.push(elapsed_ms(|| (0..large_mib).for_each(|_| hasher.update(&piece))).0);
        let digest = hasher.finish();
        let (ms, kept) = elapsed_ms(|| {
            let mut writer = cas.writer(Space::Cache, digest)?;
            (0..large_mib).try_for_each(|_| writer.write(&piece))?;
            writer.commit(NOW_MS)
        });
        kept?;
        ins.push(ms);
        let (ms, written) = elapsed_ms(|| {
            let mut file = File::create(&plain_path)?;
            (0..large_mib).try_for_each(|_| file.write_all(&piece))
        });
        written?;
        plain_ins.push(ms);
        let (ms, read) = elapsed_ms(|| match cas.read(Space::Cache, digest, NOW_MS)? {
            Some(Blob::File { mut file, .. }) => read_all(&mut file),
            _ => anyhow::bail!("the blob is not a file"),
        });
        outs.push(ms);
        let (ms, plain) = elapsed_ms(|| read_all(&mut File::open(&plain_path).context("cannot open")?));
        plain_outs.push(ms);
        anyhow::ensure!(read? == digest.size && plain? == digest.size, "both files have all bytes");
    }
    let speed = |ms: &mut Vec<f64>| large_mib as f64 * 1.048_576 / median(ms) * 1e3;
    let (hashed, written, plain) = (speed(&mut hashes), speed(&mut ins), speed(&mut plain_ins));
    println!("a blob of {large_mib} MiB in: {written:.0} MB/s; its SHA-256 alone {hashed:.0} MB/s");
    println!("  a plain file: {plain:.0} MB/s, ratio {:.2}", written / plain);
    let (read, plain) = (speed(&mut outs), speed(&mut plain_outs));
    println!("  out: {read:.0} MB/s; a plain file {plain:.0} MB/s, ratio {:.2}", read / plain);
    Ok(())
}

/// Bytes of the file.
fn read_all(file: &mut File) -> anyhow::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut all = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(all),
            read => all += read as u64,
        }
    }
}
