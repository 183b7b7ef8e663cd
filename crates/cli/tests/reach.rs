//! What a task reaches of the worker that runs it: its own directories, and neither the worker's token nor what other
//! tasks wrote.

use crate::support::port::{KillOnDrop, Port};
use crate::support::{is_root, show, wait_until, windlass};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65534;
/// What ann's task writes.
const SECRET: &str = "the-secret-of-ann";

/// A server without a worker of its own, and a worker whose tasks all have the rights of one user.
struct Shared {
    port: Port,
    dir: tempfile::TempDir,
    ann: String,
    bob: String,
    _worker: KillOnDrop,
}

impl Shared {
    fn start(user: u32) -> Shared {
        let (port, dir) = (Port::open(&["--no-worker"]), tempfile::tempdir().unwrap());
        let token = |user: &str| port.token(&["--role", "user", "--user", user]);
        let (ann, bob) = (token("ann"), token("bob"));
        let file = dir.path().join("worker.token");
        fs::write(&file, port.token(&["--role", "worker", "--worker", "box1"])).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        for path in [dir.path(), &file] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        let mut command = port.farm.command(&["worker", "start", "--name", "box1", "--cpus", "1"]);
        command.arg("--state").arg(dir.path().join("state")).arg("--token-file").arg(&file);
        command.env("WINDLASS_SERVER", format!("http://{}", port.host())).current_dir("/");
        match user {
            0 => command.arg("--as-root"),
            user => command.uid(user).gid(user).env("WINDLASS_STATE", dir.path().join("own")),
        };
        let log = fs::File::create(port.dir.join("box1.log")).unwrap();
        let worker = KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "box1");
        Shared { port, dir, ann, bob, _worker: worker }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.port.dir.join("box1.log")).unwrap()
    }

    /// Prints all that it can read of the worker, and then that it ran.
    fn look(&self) -> String {
        let (token, state) = (self.dir.path().join("worker.token"), self.dir.path().join("state"));
        let (token, state) = (token.display(), state.display());
        format!("cat {token} {state}/logs/*/* {state}/keeper.json; ls -A {state} {state}/*; echo it ran; pwd")
    }

    /// What bob's command printed on both outputs.
    fn seen_by_a_command(&self) -> String {
        show(&self.port.run_as(&self.bob, &["run", "--cwd", "/", "--", "sh", "-c", &self.look()]))
    }

    /// The same of a template, whose files the keeper writes: its tasks start in another way.
    fn seen_by_a_template(&self) -> String {
        let path: PathBuf = self.port.dir.join("job.yaml");
        let head = "specificationVersion: jobtemplate-2023-09\nname: T\nsteps:\n- name: S\n  script:\n    actions:\n      \
                    onRun: {command: sh, args: ['{{Task.File.Run}}']}\n    embeddedFiles:\n    - name: Run\n      \
                    type: TEXT\n      data: |\n        ";
        fs::write(&path, format!("{head}touch made && ls; {}\n", self.look())).unwrap();
        let job = self.port.ok_as(&self.bob, &["submit", "-o", "name", "-f", path.to_str().unwrap()]);
        let job = job.trim();
        self.port.run_as(&self.bob, &["job", "wait", job]);
        let task = format!("{job}.0");
        let err = show(&self.port.run_as(&self.bob, &["logs", &task, "--stderr"]));
        self.port.ok_as(&self.bob, &["logs", &task]) + &err
    }

    fn nothing_is_seen(&self) {
        let secret = format!("echo {SECRET}");
        let written = self.port.ok_as(&self.ann, &["run", "--cwd", "/", "--", "sh", "-c", &secret]);
        assert!(written.contains(SECRET), "{written}\n{}", self.log());
        if self.log().contains("nothing is hidden from tasks") {
            println!("SKIP reach: the kernel refuses mount namespaces");
            return;
        }
        let token = fs::read_to_string(self.dir.path().join("worker.token")).unwrap();
        for seen in [self.seen_by_a_command(), self.seen_by_a_template()] {
            assert!(seen.contains("it ran"), "{seen}\n{}", self.log());
            assert!(!seen.contains(SECRET) && !seen.contains(token.trim()), "{seen}");
            assert!(!seen.contains("incarnation") && !seen.contains("store-id"), "{seen}");
            assert!(seen.contains("sessions") && seen.contains("nodes"), "what tasks use is there: {seen}");
        }
        // Outside of the tasks all is where it was.
        assert!(self.dir.path().join("state/store-id").exists());
        assert!(self.port.ok_as(&self.ann, &["logs", "1.0"]).contains(SECRET));
    }
}

#[test]
fn a_task_that_is_root_does_not_see_the_token_or_the_output_of_others() {
    if !is_root("a worker whose tasks run as root") {
        return;
    }
    Shared::start(0).nothing_is_seen();
}

#[test]
fn tasks_of_a_normal_user_s_worker_do_not_see_them_either_and_the_worker_warns() {
    if !is_root("a worker that runs as another user") {
        return;
    }
    let program = Command::new(windlass()).arg("--version").current_dir("/").uid(NOBODY).gid(NOBODY).output();
    if !program.is_ok_and(|output| output.status.success()) {
        println!("SKIP reach: another user cannot execute {}", windlass());
        return;
    }
    let shared = Shared::start(NOBODY);
    wait_until("the worker warns", || shared.log().contains("the tasks of all submitters run as this user"));
    shared.nothing_is_seen();
}
