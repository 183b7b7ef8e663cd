//! A control group with one core, in which a worker and a hog run beside each other.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where version 2 of control groups may be mounted: on a hybrid machine, and else.
const V2: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Where the memory controller of version 1 is.
const MEMORY_V1: &str = "/sys/fs/cgroup/memory";
/// Threads that want the core all the time.
const BUSY_THREADS: usize = 2;
/// Threads that read pages of the file in any order.
const READERS: usize = 8;
/// Bytes that the memory hog never lets go.
const HELD_BYTES: usize = 80 << 20;
/// Bytes of its file. With what it holds, they are more than the group may have.
const FILE_BYTES: u64 = 128 << 20;
/// Bytes that all processes in a group may have.
const LIMIT_BYTES: u64 = 144 << 20;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// How long the kernel may take to let go of what was killed.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(5);

/// A control group with one core. Its processes are killed with it.
pub struct CoreGroup {
    group: PathBuf,
    memory: Option<PathBuf>,
    cpu: usize,
    inside: Vec<Child>,
}

impl CoreGroup {
    /// One for each of two cores; `limited`: with little memory. The error says what this machine lacks.
    pub fn pair(limited: bool) -> Result<[CoreGroup; 2], String> {
        if !rustix::process::getuid().is_root() {
            return Err("needs root, to make control groups".to_owned());
        }
        let mask = rustix::thread::sched_getaffinity(None).map_err(|e| e.to_string())?;
        let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu));
        let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else {
            return Err("needs two cores".to_owned());
        };
        Ok([CoreGroup::new(first, limited)?, CoreGroup::new(second, limited)?])
    }

    fn new(cpu: usize, limited: bool) -> Result<CoreGroup, String> {
        let mount = V2.iter().map(Path::new).find(|mount| mount.join("cgroup.subtree_control").exists());
        let mount = mount.ok_or("no cgroup v2 is mounted")?;
        let name = format!("windlass-bench-{}-{cpu}", std::process::id());
        let mut made = CoreGroup { group: mount.join(&name), memory: None, cpu, inside: Vec::new() };
        let make =
            |dir: &Path| fs::create_dir(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()));
        make(&made.group)?;
        if !fs::read_to_string(made.group.join("memory.pressure")).is_ok_and(|text| text.contains("some")) {
            return Err("the kernel does not measure pressure of control groups".to_owned());
        }
        if limited {
            let memory = Path::new(MEMORY_V1).join(name);
            make(&memory).map_err(|e| format!("needs the memory controller of cgroup v1: {e}"))?;
            let limit = memory.join("memory.limit_in_bytes");
            made.memory = Some(memory);
            fs::write(limit, LIMIT_BYTES.to_string()).map_err(|e| format!("cannot limit memory: {e}"))?;
        }
        Ok(made)
    }

    pub fn start_worker(
        &mut self,
        program: &Path,
        (server, token): (&str, &str),
        name: &str,
        state: &Path,
    ) -> io::Result<()> {
        let mut command = self.command(program);
        command.env("WINDLASS_TOKEN", token).args(["--server", server, "worker", "start", "--as-root"]);
        command.args(["--cpus", "1", "--name", name, "--state"]);
        self.inside.push(command.arg(state).spawn()?);
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        const ENTER: &str = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit 1; shift; done; \
                             shift; exec taskset -c \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "sh"]).arg(&self.group).args(&self.memory);
        command.args(["--", &self.cpu.to_string()]).arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for CoreGroup {
    fn drop(&mut self) {
        _ = fs::write(self.group.join("cgroup.kill"), "1");
        self.inside.iter_mut().for_each(|child| _ = child.wait());
        let deadline = Instant::now() + EMPTY_TIMEOUT;
        for dir in [Some(&self.group), self.memory.as_ref()].into_iter().flatten() {
            while dir.exists() && !remove(dir) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Removes a group and those below it; false while something is in one of them.
fn remove(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok()
}

/// The kind of process beside a worker.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hog {
    None,
    /// Wants the core all the time.
    Cpu,
    /// Wants more memory than there is.
    Memory,
}

/// A hog's process; it ends with this one.
pub struct HogProcess(Child);

impl Hog {
    /// Starts it in a group. `bench` is the program `windlass-bench`, and the memory hog reads `file`.
    pub fn start(self, bench: &Path, group: &CoreGroup, file: &Path) -> io::Result<Option<HogProcess>> {
        let mut command = group.command(bench);
        command.args(["hog", "--be"]);
        match self {
            Hog::None => return Ok(None),
            Hog::Cpu => command.arg("cpu"),
            Hog::Memory => {
                write_file(file)?;
                command.arg(file)
            }
        };
        Ok(Some(HogProcess(command.stdin(Stdio::piped()).spawn()?)))
    }
}

impl Drop for HogProcess {
    fn drop(&mut self) {
        // It waits for the end of its input.
        drop(self.0.stdin.take());
        _ = self.0.wait();
    }
}

/// Acts as a hog until the input ends; `what` is `cpu`, or the file that the memory hog reads.
pub fn be(what: &Path) -> io::Result<()> {
    if what == Path::new("cpu") {
        (0..BUSY_THREADS).for_each(|_| {
            _ = std::thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            })
        });
    } else {
        let file = File::open(what)?;
        // Cached pages count for the process that wrote them, and would never be read here.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let held = black_box(vec![1u8; HELD_BYTES]);
        std::mem::forget(held);
        let file = std::sync::Arc::new(file);
        for reader in 0..READERS {
            let file = std::sync::Arc::clone(&file);
            std::thread::spawn(move || read_pages(&file, reader as u64 + 1));
        }
    }
    _ = std::io::stdin().read(&mut [0])?;
    Ok(())
}

/// Reads one byte of one page after the other, by xorshift.
fn read_pages(file: &File, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    loop {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        _ = file.read_at(&mut [0], random % (FILE_BYTES / PAGE) * PAGE);
    }
}

/// The file that the memory hog reads: with blocks on the disk, so that reading them takes its time.
fn write_file(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut file = File::create(path)?;
    let block = vec![1u8; 1 << 20];
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()
}
