//! One server for all users of a machine: who they are, what they see of each other, and how the server is set up.

use crate::support::{Farm, show, wait_until, windlass};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use windlass_gateway_nix::hook::framing::Try;

/// Accounts that a machine has. Nobody's home is used.
const ANN: &str = "daemon";
const BOB: &str = "bin";
const STRANGER: &str = "mail";
/// The group of the socket, and that of administrators.
const USERS: &str = "lp";
const ADMINS: &str = "adm";

/// The number in a line of /etc/passwd or /etc/group.
fn number(file: &str, name: &str, field: usize) -> Option<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(field)?.parse().ok()
}

/// A user of the machine, with a home and groups of the test's.
struct Account {
    name: &'static str,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    home: PathBuf,
}

/// A machine's server, with root as its administrator.
struct Machine {
    farm: Farm,
}

impl Machine {
    /// `None` where the test's machine does not let it become other users.
    fn start(test: &str) -> Option<Machine> {
        let skip = |why: &str| {
            println!("SKIP {test}: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("it needs root, to become other users");
        }
        let has_all = [ANN, BOB, STRANGER].iter().all(|name| number("/etc/passwd", name, 2).is_some());
        if !has_all || [USERS, ADMINS].iter().any(|name| number("/etc/group", name, 2).is_none()) {
            return skip("this machine lacks the accounts daemon, bin and mail, or the groups lp and adm");
        }
        let nobody = ["--reuid=65534", "--clear-groups", windlass(), "--version"];
        let tried = Command::new("setpriv").args(nobody).output();
        if !tried.is_ok_and(|output| output.status.success()) {
            return skip("it needs setpriv of util-linux, and a program that all users may run");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let config = dir.path().join("machine.toml");
        let maps = [ANN, BOB].map(|name| format!("\"{name}={name}\"")).join(", ");
        let text = format!("[machine]\ngroup = \"{USERS}\"\nadmins = \"{ADMINS}\"\nmap_users = [{maps}]\n");
        std::fs::write(&config, text).unwrap();
        let farm = Farm::in_dir(dir, &["--config", config.to_str().unwrap(), "--cpus", "2"]);
        Some(Machine { farm })
    }

    /// A user who may open the socket, and may be an administrator.
    fn member(&self, name: &'static str, is_admin: bool) -> Account {
        let groups = [USERS, ADMINS].iter().take(1 + usize::from(is_admin));
        let groups = groups.map(|name| number("/etc/group", name, 2).unwrap()).collect();
        self.account(name, groups)
    }

    fn account(&self, name: &'static str, groups: Vec<u32>) -> Account {
        let (uid, gid) = (number("/etc/passwd", name, 2).unwrap(), number("/etc/passwd", name, 3).unwrap());
        let home = self.farm.path().join(name);
        if !home.exists() {
            std::fs::create_dir(&home).unwrap();
            std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
            chown(&home, Some(uid), Some(gid)).unwrap();
        }
        Account { name, uid, gid, groups, home }
    }

    /// The program as that user, who says to be root.
    fn command(&self, who: &Account, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={}", who.uid)).arg(format!("--regid={}", who.gid));
        let groups: Vec<String> = who.groups.iter().map(u32::to_string).collect();
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.arg(format!("--groups={}", groups.join(","))),
        };
        command.arg(windlass()).args(args).current_dir("/").stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("WINDLASS_") || name.starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        command.env("HOME", &who.home).env("USER", "root").env("XDG_RUNTIME_DIR", &who.home);
        command.env("WINDLASS_MACHINE_SOCKET", self.farm.socket());
        command
    }

    fn run(&self, who: &Account, args: &[&str]) -> Output {
        self.command(who, args).output().unwrap()
    }

    fn ok(&self, who: &Account, args: &[&str]) -> String {
        let output = self.run(who, args);
        let (name, log) = (who.name, self.farm.server_log());
        assert!(output.status.success(), "{name} {args:?}: {}\n{log}", show(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, code: i32, who: &Account, args: &[&str]) -> String {
        let output = self.run(who, args);
        assert_eq!(output.status.code(), Some(code), "{} {args:?}: {}", who.name, show(&output));
        String::from_utf8(output.stderr).unwrap()
    }

    fn json(&self, who: &Account, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(who, &[args, &["-o", "json"]].concat())).unwrap()
    }
}

#[test]
fn users_of_a_machine_share_its_server_and_are_who_the_kernel_says() {
    const SECRET: &str = "the-secret-of-ann";
    let Some(machine) = Machine::start("users_of_a_machine_share_its_server") else { return };
    let (ann, bob) = (machine.member(ANN, false), machine.member(BOB, false));
    // Their tasks have their rights, whatever they say of themselves.
    let script = format!("id -un; : {SECRET}");
    assert_eq!(machine.ok(&ann, &["run", "--", "sh", "-c", &script]), format!("{ANN}\n"));
    assert_eq!(machine.ok(&bob, &["run", "--", "id", "-un"]), format!("{BOB}\n"));
    let jobs = machine.json(&ann, &["jobs"]);
    let whose: Vec<(&str, &str)> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["user"].as_str().unwrap(), job["queue"].as_str().unwrap()))
        .collect();
    assert_eq!(whose, [(BOB, BOB), (ANN, ANN)]);
    let version = machine.json(&ann, &["version"]).to_string();
    assert!(version.contains("\"user\":\"daemon\"") && version.contains("\"role\":\"user\""), "{version}");
    // Each reads their own jobs, and changes only those.
    assert!(machine.ok(&ann, &["job", "show", "1", "-o", "json"]).contains(SECRET));
    assert!(!machine.ok(&bob, &["job", "show", "1", "-o", "json"]).contains(SECRET));
    assert!(machine.fails(4, &bob, &["logs", "1.0"]).contains("belongs to another user"));
    machine.fails(4, &bob, &["job", "cancel", "1"]);
    machine.fails(4, &bob, &["server", "stop"]);
    let as_ann = format!(r#"{{"user": "{ANN}", "steps": [{{"command": ["true"], "cwd": "/"}}]}}"#);
    let body = bob.home.join("job.json");
    std::fs::write(&body, as_ann).unwrap();
    std::fs::set_permissions(&body, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = machine.fails(4, &bob, &["api", "POST", "/jobs", "--input", body.to_str().unwrap()]);
    assert!(said.contains("may not submit as"), "{said}");
}

#[test]
fn root_and_a_group_administer_a_machine_s_server() {
    let Some(machine) = Machine::start("root_and_a_group_administer") else { return };
    let (ann, bob) = (machine.member(ANN, false), machine.member(BOB, true));
    let said = machine.fails(4, &ann, &["queue", "set", ANN, "--weight", "300"]);
    let why = format!("user '{ANN}' has the role user here, and this needs the role admin");
    assert!(said.contains(&why) && said.contains("root, or a member of"), "{said}");
    assert!(!said.contains("token"), "{said}");
    machine.ok(&bob, &["queue", "set", ANN, "--weight", "300"]);
    assert_eq!(machine.json(&ann, &["queue", "show", ANN])["weight"], 300);
    machine.farm.ok(&["queue", "set", ANN, "--weight", "200"]);
    assert_eq!(machine.json(&ann, &["queue", "show", ANN])["weight"], 200);
    assert!(machine.json(&bob, &["version"]).to_string().contains("\"role\":\"admin\""));
    // Root's tasks would have all rights.
    let mut of_root = machine.farm.command(&["run", "--cwd", "/", "--", "true"]);
    let said = show(&of_root.env("USER", "root").output().unwrap());
    assert!(said.contains("is mapped to root"), "{said}");
    let state = std::fs::metadata(machine.farm.state()).unwrap().permissions().mode();
    let socket = std::fs::metadata(machine.farm.socket()).unwrap().permissions().mode();
    assert_eq!((state & 0o777, socket & 0o777), (0o711, 0o660));
    for entry in std::fs::read_dir(machine.farm.state()).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let is_open = metadata.is_file() && metadata.permissions().mode() & 0o044 != 0;
        let name = entry.file_name();
        assert!(!is_open || !name.to_string_lossy().contains("windlass.db"), "{name:?} is open to others");
    }
}

#[test]
fn those_whom_a_machine_s_server_does_not_let_in_have_their_own() {
    let Some(machine) = Machine::start("those_who_are_not_let_in") else { return };
    let stranger = machine.account(STRANGER, Vec::new());
    let own = stranger.home.join("windlass/server.sock").display().to_string();
    // No server of theirs runs, and this starts none.
    assert!(machine.fails(5, &stranger, &["server", "status"]).contains(&own));
    let ann = machine.member(ANN, false);
    let socket = machine.farm.socket().display().to_string();
    assert!(machine.ok(&ann, &["server", "status"]).contains(&socket));
    let own = ann.home.join("windlass/server.sock").display().to_string();
    assert!(machine.fails(5, &ann, &["--server", "own", "server", "status"]).contains(&own));
    let mut command = machine.command(&ann, &["server", "status"]);
    let output = command.env("WINDLASS_SERVER", "own").output().unwrap();
    assert!(show(&output).contains(&own), "{}", show(&output));
}

/// What Nix asks its build hook first: no settings, and a derivation.
fn question() -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let question = Try {
        is_willing: false,
        system: "x86_64-linux".to_owned(),
        drv: "/nix/store/0-a.drv".to_owned(),
        features: Vec::new(),
    };
    question.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_build_hook_of_nix_asks_a_machine_s_server() {
    let Some(machine) = Machine::start("the_build_hook_of_nix_asks_a_machine_s_server") else { return };
    let says = |who: &Account, server: &str| {
        let mut command = machine.command(who, &["nix-hook", "--build-remote", "/bin/true", "0"]);
        command.env("WINDLASS_SERVER", server);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut hook = command.spawn().unwrap();
        hook.stdin.take().unwrap().write_all(&question()).unwrap();
        show(&hook.wait_with_output().unwrap())
    };
    let ann = machine.member(ANN, false);
    // A hook whose server does not answer within some milliseconds takes the build without an answer.
    wait_until("the machine's server has said that it has no gateway of Nix", || {
        says(&ann, "").contains("the server does not take builds")
    });
    for (who, server) in [(&ann, "own"), (&machine.account(STRANGER, Vec::new()), "")] {
        assert!(says(who, server).contains("no server is named"), "{} {server}", who.name);
    }
}

#[test]
fn nobody_sees_or_ends_the_turn_of_another_user() {
    const SECRET: &str = "the-secret-of-ann";
    let Some(machine) = Machine::start("nobody_sees_or_ends_the_turn_of_another_user") else { return };
    let (ann, bob) = (machine.member(ANN, false), machine.member(BOB, false));
    let script = format!("read line; exit 7; : {SECRET}");
    let mut turn = machine.command(&ann, &["turn", "--", "sh", "-c", &script]);
    let mut turn = turn.stdin(Stdio::piped()).spawn().unwrap();
    let of = |who: &Account| machine.json(who, &["turns"]).as_array().unwrap().clone();
    wait_until("the turn runs", || of(&ann).iter().any(|turn| turn["state"] == "runs"));
    let (own, others) = (of(&ann), of(&bob));
    assert_eq!((&own[0]["user"], &others[0]["user"]), (&ANN.into(), &ANN.into()));
    assert!(own[0]["command"].is_string() && others[0].get("command").is_none(), "{own:?} {others:?}");
    for (what, field) in [("end", "wall_ms=1"), ("memory", "memory=1")] {
        let path = format!("/turns/{}/{what}", own[0]["turn"]);
        let said = machine.fails(4, &bob, &["api", "POST", &path, "-f", field]);
        assert!(said.contains("belongs to another user"), "{said}");
    }
    let why = machine.ok(&bob, &["why", &format!("turn:{}", own[0]["turn"])]);
    assert!(!why.contains(SECRET), "{why}");
    assert_eq!(of(&ann).len(), 1, "it goes on");
    turn.stdin.take().unwrap().write_all(b"on\n").unwrap();
    assert_eq!(turn.wait().unwrap().code(), Some(7));
}

#[test]
fn a_command_waits_for_a_machine_s_server_that_is_restarted() {
    let Some(mut machine) = Machine::start("a_command_waits_for_a_machine_s_server") else { return };
    let ann = machine.member(ANN, false);
    let begun = machine.farm.work().join("begun");
    std::fs::set_permissions(machine.farm.work(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let script =
        format!("touch {}; while [ ! -e {}.end ]; do sleep 0.01; done", begun.display(), begun.display());
    let mut waiting = machine.command(&ann, &["run", "--", "sh", "-c", &script]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the task runs", || begun.exists());
    machine.farm.kill_server();
    machine.farm.start();
    std::fs::write(format!("{}.end", begun.display()), "").unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(!ann.home.join(".local").exists(), "no server of its own was started");
}

/// `server install --machine` with these flags.
fn install(farm: &Farm, args: &[&str]) -> Output {
    farm.run(&[&["server", "install", "--machine"], args].concat())
}

fn packaging(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_files_of_a_machine_s_server_are_those_of_the_packages() {
    let farm = Farm::new();
    let image = farm.path().join("image");
    let output = install(&farm, &["--root", image.to_str().unwrap(), "--dry-run"]);
    assert!(output.status.success(), "{}", show(&output));
    assert!(!image.exists(), "a dry run writes nothing");
    let said = String::from_utf8(output.stdout).unwrap();
    let unit = packaging("systemd/windlass-machine.service").replace("/usr/bin/windlass", windlass());
    let groups = "g windlass-users -\ng windlass-admins -\n".to_owned();
    for part in [unit, packaging("etc/machine.toml"), groups] {
        assert!(said.contains(&part), "{said}");
    }
    assert!(said.contains("would run: systemctl enable windlass-machine.service"), "{said}");
    let said = farm.fails(2, &["server", "install"]);
    assert!(said.contains("--machine"), "{said}");
    let said = farm.fails(2, &["server", "install", "--machine", "--group", "a b"]);
    assert!(said.contains("'a b' is not a valid group"), "{said}");
}

#[test]
fn an_installation_is_done_again_without_a_change_and_undone() {
    let farm = Farm::new();
    let image = farm.path().join("image");
    let root = ["--root", image.to_str().unwrap()];
    let done = |args: &[&str]| {
        let output = install(&farm, &[&root[..], args].concat());
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let unit = image.join("etc/systemd/system/windlass-machine.service");
    let settings = image.join("etc/windlass/machine.toml");
    assert_eq!(done(&["--group", "builders"]).matches("wrote ").count(), 3);
    let machine = windlass_server::Config::read(&settings).unwrap().machine.unwrap();
    assert_eq!((machine.group.as_str(), machine.admins.as_str()), ("builders", "windlass-admins"));
    assert_eq!(std::fs::metadata(&unit).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(done(&[]).matches("is as it should be").count(), 3);
    // What the administrator changed stays, and what is not theirs is put right.
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text + "# mine\n").unwrap();
    std::fs::write(&unit, "").unwrap();
    let said = done(&[]);
    assert!(
        said.contains("kept /etc/windlass/machine.toml") && said.contains("wrote /etc/systemd"),
        "{said}"
    );
    assert!(std::fs::read_to_string(&settings).unwrap().ends_with("# mine\n"));
    let refused = install(&farm, &[&root[..], &["--group", "others"]].concat());
    assert!(show(&refused).contains("has group = \"builders\": change it there"), "{}", show(&refused));
    let said = done(&["--uninstall"]);
    assert!(said.contains("removed /etc/systemd") && !unit.exists() && settings.exists(), "{said}");
    assert!(done(&["--uninstall"]).contains("is not there"));
}
