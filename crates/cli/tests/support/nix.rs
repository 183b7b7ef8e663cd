//! Worlds of Nix on one machine: clients and builders, each with a store of its own at `/nix` in a mount namespace of its
//! own, and a stand-in for ssh from one to the other.

use super::{Farm, show};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// The settings of each world. Nothing is sandboxed, so that builds see in which world they run.
const SETTINGS: &str = "sandbox = false\nsubstitute = false\nsubstituters =\nbuild-users-group =\n\
                        experimental-features = nix-command\nmax-jobs = 2\n";

/// A farm with worlds: `client`, `client2`, `b1`, `b2` and `b3`.
pub struct Worlds {
    pub farm: Farm,
}

impl Worlds {
    /// `None` where this machine cannot have them.
    pub fn open(test: &str) -> Option<Worlds> {
        if !super::is_root(test) {
            return None;
        }
        for program in ["nix-store", "nix-instantiate", "unshare"] {
            let mut asked = Command::new(program);
            if asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                println!("SKIP {test}: {program} is not installed");
                return None;
            }
        }
        // A place to mount on; without one no world could be.
        fs::create_dir_all("/nix").unwrap();
        let worlds = Worlds { farm: Farm::new() };
        for world in ["client", "client2", "b1", "b2", "b3"] {
            for dir in ["nix/store", "nix/var/nix", "etc", "home", "tmp"] {
                fs::create_dir_all(worlds.path(world).join(dir)).unwrap();
            }
            fs::write(worlds.path(world).join("etc/nix.conf"), SETTINGS).unwrap();
            fs::write(worlds.path(world).join("nix/var/world"), world).unwrap();
        }
        fs::create_dir_all(worlds.path("bin")).unwrap();
        worlds.script("in", &IN.replace("@DIR@", &worlds.farm.path().display().to_string()));
        worlds.script("ssh", &SSH.replace("@DIR@", &worlds.farm.path().display().to_string()));
        let hook = worlds.path("bin").join("windlass-nix-hook");
        std::os::unix::fs::symlink(super::windlass(), hook).unwrap();
        Some(worlds)
    }

    /// The same with a server that has no worker of its own.
    pub fn with_server(test: &str) -> Option<Worlds> {
        let mut worlds = Worlds::open(test)?;
        worlds.farm.set_options(&["--no-worker", "--nix"]);
        worlds.farm.start();
        Some(worlds)
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A file or directory of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.farm.path().join(name)
    }

    /// Starts a server over TCP, which the test keeps, and returns its address.
    pub fn serve_tcp(&self) -> (super::port::KillOnDrop, String) {
        let log = fs::File::create(self.path("server.log")).unwrap();
        let mut command = self.farm.command(&[
            "server",
            "start",
            "--no-worker",
            "--nix",
            "--as-root",
            "--listen",
            "127.0.0.1:0",
        ]);
        let server = super::port::KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let mut address = String::new();
        super::wait_until("the server listens", || {
            let log = self.farm.server_log();
            let line = log.split("windlass server listens on ").nth(1).and_then(|rest| rest.split_once(','));
            address = line.map(|(address, _)| address.to_owned()).unwrap_or_default();
            !address.is_empty()
        });
        super::local_token(&self.farm.state());
        (server, format!("http://{address}"))
    }

    /// A worker in a world, which takes builds; `before` is a script that runs first in its mount namespace.
    pub fn worker(&self, world: &str, server: &str, before: &str) -> super::port::KillOnDrop {
        let socket = format!("unix:{}", self.farm.state().join("admin.sock").display());
        let create = ["--server", &socket, "token", "create", "--role", "worker", "--worker", world, "--nix"];
        let token = self.farm.ok(&create);
        let state = self.path(world).join("worker").display().to_string();
        let start = format!(
            "{before} exec {} worker start --name {world} --cpus 1 --nix ssh://{world} --as-root --state {state}",
            super::windlass()
        );
        let mut command = self.run_in(world, &["sh", "-c", &start]);
        command.env("WINDLASS_SERVER", server).env("WINDLASS_TOKEN", token.trim());
        let log = fs::File::create(self.path(world).join("worker.log")).unwrap();
        super::port::KillOnDrop(command.stderr(log).spawn().unwrap())
    }

    /// A command in a world.
    pub fn run_in(&self, world: &str, words: &[&str]) -> Command {
        let mut command = self.farm.command(&[]);
        let environment: Vec<_> =
            command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        command = Command::new(self.path("bin/in"));
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("WINDLASS_SERVER", format!("unix:{}", self.farm.socket().display()));
        command.arg(world).args(words).stdin(Stdio::null()).current_dir(self.farm.work());
        command
    }

    /// The derivations of an expression: the paths of their files.
    pub fn derivations(&self, world: &str, expression: &str) -> Vec<String> {
        let output = self.run_in(world, &["nix-instantiate", "-E", expression]).output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| line.trim_end_matches("!out").to_owned())
            .collect()
    }

    /// `nix-store --realise` with these machines, by the hook or, without one, by Nix's own.
    pub fn realise(&self, world: &str, derivations: &[String], builders: &str, hook: bool) -> Command {
        let mut words = vec!["nix-store", "--realise", "--max-jobs", "0", "--option", "builders", builders];
        let program = self.path("bin/windlass-nix-hook").display().to_string();
        if hook {
            words.extend(["--option", "build-hook", &program]);
        }
        words.extend(derivations.iter().map(String::as_str));
        self.run_in(world, &words)
    }

    /// Builds an expression by the hook, to its end.
    pub fn build(&self, world: &str, expression: &str, builders: &str) -> Output {
        let derivations = self.derivations(world, expression);
        self.realise(world, &derivations, builders, true).output().unwrap()
    }

    /// Begins to build an expression by the hook.
    pub fn begin(&self, world: &str, expression: &str, builders: &str) -> Child {
        let derivations = self.derivations(world, expression);
        let mut command = self.realise(world, &derivations, builders, true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What the builds of a world noted in this file, a line each.
    pub fn noted(&self, world: &str, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(world).join("nix/var").join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many builds ran in each builder.
    pub fn built(&self) -> [usize; 3] {
        ["b1", "b2", "b3"].map(|world| self.noted(world, "builds").len())
    }

    /// The hosts that ssh was asked for, in order.
    pub fn connections(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("ssh.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The serve processes of a world.
    pub fn serving(&self, world: &str) -> Vec<i32> {
        let own = self.path(world).join("home").display().to_string();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let serves = |pid: &i32| {
            let read = |file: &str| {
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            read("cmdline").starts_with("nix-store\0--serve")
                && read("environ").contains(&format!("HOME={own}\0"))
        };
        pids.filter(serves).collect()
    }

    /// A counter of the server's metrics, with its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let mut stream = UnixStream::connect(self.farm.socket()).unwrap();
        // The older version of HTTP has no chunks.
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(f64::NAN)
    }
}

/// Lines of `builders` for machines with this many places each.
pub fn builders(hosts: &[&str], places: u32) -> String {
    hosts.iter().map(|host| format!("ssh://{host} x86_64-linux - {places} 1\n")).collect()
}

/// An expression of derivations `NAME-0` to `NAME-(count-1)`, each of which notes where it runs and then runs a script.
pub fn expression(name: &str, count: usize, more: &str, script: &str) -> String {
    format!(
        r#"map (i: derivation {{ name = "{name}-${{toString i}}"; system = "x86_64-linux"; builder = "/bin/sh"; {more}
           args = [ "-c" ''echo $name >> /nix/var/builds; {script} echo $name > $out'' ]; }}) (builtins.genList (x: x) {count})"#
    )
}

/// Runs a command in a world: `in WORLD COMMAND...`
const IN: &str = r#"#!/bin/sh
dir=@DIR@ world=$1
shift
export NIX_CONF_DIR=$dir/$world/etc HOME=$dir/$world/home XDG_CACHE_HOME=$dir/$world/home TMPDIR=$dir/$world/tmp
export NIX_REMOTE= PATH=$dir/bin:$PATH
exec unshare -m sh -c 'mount --bind '"$dir/$world"'/nix /nix; exec "$@"' sh "$@"
"#;

/// Does as ssh: `ssh HOST OPTIONS... COMMAND`. A host with a file `dead-HOST` does not answer for the
/// seconds in it, and `delay` has the seconds
/// that connecting takes.
const SSH: &str = r#"#!/bin/sh
dir=@DIR@ host=$1
shift
while [ $# -gt 0 ]; do
    case "$1" in
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
    esac
done
echo "$host" >> "$dir/ssh.log"
[ -e "$dir/delay" ] && sleep "$(cat "$dir/delay")"
if [ -e "$dir/dead-$host" ]; then
    sleep "$(cat "$dir/dead-$host")"
    exit 255
fi
exec "$dir/bin/in" "$host" sh -c "$*"
"#;
