//! A frame as a job of Windlass: pinned to its worker, with RQD's variables and a script that does RQD's part.

use crate::rqd::{Launch, RunFrame};
use std::collections::BTreeMap;
use windlass_api::{Resources, StepRequest, SubmitRequest};
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_cuebot::FrameRun;

/// The script that runs on the worker as the frame's user. It opens the log, and runs the command.
pub(super) const SCRIPT: &str = include_str!("frame.sh");
/// The exit status with which the script refuses a frame, after it has written the reason to its standard error.
pub(super) const REFUSED: i32 = 125;
/// The word before the keys in the names of all frames' jobs.
const MARK: &str = "opencue-frame";
/// The directories in which RQD looks for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A directory that every worker has.
const DIR: &str = "/tmp";
/// A tag that no worker has.
const NOWHERE: &str = "opencue-nowhere";

/// The name of the job of a run: a label for people, and the keys of frame and proc.
fn job_name(run: &FrameRun, label: &str) -> String {
    let keys = format!(" {MARK} {} {}", run.frame, run.proc_id);
    format!("{}{keys}", shortened(label, NAME_BYTES_MAX.saturating_sub(keys.len())))
}

/// Reads frame and proc from the name of a job. `None` if the job runs no frame.
pub(super) fn run_of_job(name: &str) -> Option<FrameRun> {
    let (rest, proc_id) = name.rsplit_once(' ')?;
    let (rest, frame) = rest.rsplit_once(' ')?;
    let is_marked = rest.rsplit_once(' ').is_some_and(|(_, mark)| mark == MARK);
    is_marked.then(|| FrameRun { frame: frame.to_owned(), proc_id: proc_id.to_owned() })
}

/// The key under which the job of a run is submitted: a second job with it is the first one.
fn key(run: &FrameRun) -> String {
    format!("{MARK} {}", run.proc_id)
}

/// A job that never starts, in the place of the frame's own. If the frame's job was submitted, the server answers with
/// that one. If it was not, a launch that is still on its way finds this one there.
pub(super) fn claim(run: &FrameRun, user: &str, queue: &str) -> SubmitRequest {
    let step = StepRequest {
        command: vec!["true".to_owned()],
        tags: vec![NOWHERE.to_owned()],
        ..StepRequest::default()
    };
    SubmitRequest {
        name: Some(job_name(run, "never launched")),
        queue: Some(queue.to_owned()),
        user: Some(user.to_owned()),
        key: Some(key(run)),
        steps: vec![step],
        ..SubmitRequest::default()
    }
}

/// The job that runs a frame.
pub(super) fn request(launch: &Launch, queue: &str) -> SubmitRequest {
    let frame = &launch.frame;
    let run = launch.run();
    let layer = frame.frame_name.split_once('-').map_or(frame.frame_name.as_str(), |(_, layer)| layer);
    let bytes = |kib: i64| u64::try_from(kib).unwrap_or(0).saturating_mul(1 << 10);
    let step = StepRequest {
        name: Some(shortened(layer, NAME_BYTES_MAX).to_owned()),
        command: command(frame),
        env: environment(frame, &launch.host),
        cwd: Some(DIR.to_owned()),
        resources: Some(Resources {
            cpus: f64::from(frame.num_cores) / 100.0,
            memory: bytes(launch.amounts.mem_kib),
            gpus: u32::try_from(frame.num_gpus).unwrap_or(0),
            gpu_memory: bytes(launch.amounts.gpu_mem_kib),
            custom: BTreeMap::new(),
        }),
        workers: vec![launch.host.clone()],
        ..StepRequest::default()
    };
    SubmitRequest {
        name: Some(job_name(&run, &format!("{}.{}", frame.job_name, frame.frame_name))),
        queue: Some(queue.to_owned()),
        user: Some(frame.user_name.clone()),
        key: Some(key(&run)),
        placeable_only: true,
        steps: vec![step],
        ..SubmitRequest::default()
    }
}

/// The name of a frame's log, where OpenCue's clients look for it.
fn log_file(frame: &RunFrame) -> String {
    format!("{}.{}.rqlog", frame.job_name, frame.frame_name)
}

fn command(frame: &RunFrame) -> Vec<String> {
    let log_file = log_file(frame);
    let words: [&str; 7] =
        ["/bin/sh", "-c", SCRIPT, "opencue-frame", &frame.log_dir, &log_file, &frame.command];
    words.map(str::to_owned).to_vec()
}

/// RQD's variables, and over them those of the frame, whose `PATH` is searched after RQD's. `TZ` is left to the worker:
/// RQD's is that of one studio.
fn environment(frame: &RunFrame, host: &str) -> BTreeMap<String, String> {
    let log_file = log_file(frame);
    let own: [(&str, &str); 15] = [
        ("PATH", PATH),
        ("TERM", "unknown"),
        ("USER", &frame.user_name),
        ("LOGNAME", &frame.user_name),
        ("mcp", "1"),
        ("show", &frame.show),
        ("shot", &frame.shot),
        ("jobid", &frame.job_name),
        ("jobhost", host),
        ("frame", &frame.frame_name),
        ("zframe", &frame.frame_name),
        ("logfile", &log_file),
        ("maxframetime", "0"),
        ("minspace", "200"),
        ("SP_NOMYCSHRC", "1"),
    ];
    let mut all: BTreeMap<String, String> =
        own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, value) in &frame.environment {
        let value = if name == "PATH" { format!("{PATH}:{value}") } else { value.clone() };
        all.insert(name.clone(), value);
    }
    all
}

/// The text, or as much of its beginning as has room.
fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::path::Path;
    use std::process::{Command, Output};
    use windlass_cuebot::Amounts;

    fn launch() -> Launch {
        let environment = [("PATH", "/film/bin"), ("CUE3", "1"), ("CUE_IFRAME", "7"), ("show", "other")];
        let frame = RunFrame {
            resource_id: "p-1".to_owned(),
            frame_id: "f-1".to_owned(),
            frame_name: "0007-beauty_pass".to_owned(),
            job_name: "film-sh01-ann_comp".to_owned(),
            command: "render {} 7".to_owned(),
            user_name: "ann".to_owned(),
            log_dir: "/shots/film/sh01/logs/film-sh01-ann_comp--1".to_owned(),
            show: "film".to_owned(),
            shot: "sh01".to_owned(),
            num_cores: 250,
            num_gpus: 1,
            environment: HashMap::from(environment.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            ..RunFrame::default()
        };
        let amounts = Amounts { mem_kib: 1 << 20, gpu_mem_kib: 2, ..Amounts::default() };
        Launch { host_id: "H".to_owned(), host: "box1".to_owned(), frame, amounts }
    }

    #[test]
    fn a_frame_is_a_job_of_its_user_on_its_worker() {
        let request = request(&launch(), "opencue");
        let name = request.name.as_deref().unwrap();
        assert_eq!(name, "film-sh01-ann_comp.0007-beauty_pass opencue-frame f-1 p-1");
        assert_eq!((request.user.as_deref(), request.queue.as_deref()), (Some("ann"), Some("opencue")));
        assert_eq!(request.key, claim(&run_of_job(name).unwrap(), "ann", "opencue").key, "one key for both");
        let step = &request.steps[0];
        assert_eq!(
            (step.name.as_deref(), step.workers.as_slice()),
            (Some("beauty_pass"), &["box1".to_owned()][..])
        );
        let resources = step.resources.as_ref().unwrap();
        assert_eq!((resources.cpus, resources.memory, resources.gpus), (2.5, 1 << 30, 1));
        assert_eq!(step.retries, 0, "OpenCue decides whether it runs again");
        let words: Vec<&str> = step.command[3..].iter().map(String::as_str).collect();
        let log = ["film-sh01-ann_comp.0007-beauty_pass.rqlog", "render {} 7"];
        assert_eq!(words, ["opencue-frame", "/shots/film/sh01/logs/film-sh01-ann_comp--1", log[0], log[1]]);
        let env = |name: &str| step.env.get(name).map(String::as_str);
        assert_eq!(env("PATH").map(|path| path.ends_with("/sbin:/bin:/film/bin")), Some(true));
        assert_eq!((env("zframe"), env("logfile")), (Some("0007-beauty_pass"), Some(log[0])));
        assert_eq!((env("jobhost"), env("USER"), env("CUE3")), (Some("box1"), Some("ann"), Some("1")));
        assert_eq!(env("show"), Some("other"), "the frame's own variables go before RQD's");
        assert!(request.into_spec("gateway").is_ok());
    }

    #[test]
    fn only_names_of_jobs_of_frames_tell_of_one() {
        let run = FrameRun { frame: "f".to_owned(), proc_id: "p".to_owned() };
        for label in ["a", "", "two words", &"é".repeat(300)] {
            let name = job_name(&run, label);
            assert!(name.len() <= NAME_BYTES_MAX, "{name}");
            assert_eq!(run_of_job(&name).as_ref(), Some(&run), "{name}");
        }
        for name in ["", "make", "a b c d", "opencue-frame f p", "x opencue-frame f"] {
            assert_eq!(run_of_job(name), None, "{name}");
        }
        assert!(claim(&run, "ann", "opencue").into_spec("gateway").is_ok());
    }

    /// Runs the script as this user, or as `nobody` where that is root.
    fn script(dir: &Path, command: &str, attempt: &str) -> Output {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SCRIPT, "opencue-frame"])
            .arg(dir.join("film/logs"))
            .args(["j.0001-x.rqlog", command]);
        shell.env_clear().env("PATH", PATH).env("WINDLASS_ATTEMPT", attempt).env("jobhost", "box1");
        if rustix::process::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut shell, 65_534);
        }
        shell.current_dir("/").output().unwrap()
    }

    #[test]
    fn the_script_writes_the_log_that_rqd_writes_and_keeps_earlier_ones() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let read =
            |name: &str| std::fs::read_to_string(dir.path().join("film/logs").join(name)).unwrap_or_default();
        let first = script(dir.path(), "echo one\necho two >&2; exit 3", "1");
        assert_eq!((first.status.code(), first.stdout.len(), first.stderr.len()), (Some(3), 0, 0));
        let log = read("j.0001-x.rqlog");
        for part in
            ["RenderQ JobSpec", "renderHost           box1\n", "one\ntwo\n", "exitStatus          3\n"]
        {
            assert!(log.contains(part), "{part:?} is missing: {log}");
        }
        assert!(!log.contains("WINDLASS_"), "{log}");
        for text in ["second", "third"] {
            assert_eq!(script(dir.path(), &format!("echo {text}"), "1").status.code(), Some(0));
        }
        assert_eq!(read("j.0001-x.rqlog.1"), log);
        assert!(read("j.0001-x.rqlog.2").contains("second\n") && read("j.0001-x.rqlog").contains("third\n"));
    }

    #[test]
    fn the_script_refuses_a_lost_frame_and_a_log_that_it_cannot_make() {
        let dir = tempfile::tempdir().unwrap();
        let lost = script(dir.path(), "true", "2");
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(lost.status.code(), Some(REFUSED));
        assert!(said(&lost).contains("lost with its worker"), "{}", said(&lost));
        // A file stands where the directories would be.
        std::fs::write(dir.path().join("film"), "").unwrap();
        let refused = script(dir.path(), "true", "1");
        assert_eq!(refused.status.code(), Some(REFUSED));
        assert!(said(&refused).contains("cannot make the directory of the log"), "{}", said(&refused));
    }
}
