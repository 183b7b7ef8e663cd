//! `windlass top` with a real farm in a real terminal, which tmux is.

use crate::support::{self, Farm, kill, wait_until, windlass};
use std::process::{Command, Stdio};

/// A terminal with a shell in it, with the environment of a farm.
struct Pane<'a> {
    farm: &'a Farm,
}

impl Pane<'_> {
    /// `None` where there is no tmux.
    fn open<'a>(farm: &'a Farm, test: &str) -> Option<Pane<'a>> {
        let version = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            println!("SKIP {test}: needs tmux");
            return None;
        }
        let pane = Pane { farm };
        let dir = std::path::Path::new(windlass()).parent().unwrap().display().to_string();
        let path = format!("PATH={dir}:{}", std::env::var("PATH").unwrap());
        pane.tmux(&[
            "-f",
            "/dev/null",
            "-u",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
            "-e",
            &path,
            "sh",
        ]);
        Some(pane)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let of_farm = self.farm.command(&[]);
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.farm.path().join("tmux")).args(args).stdin(Stdio::null());
        for (name, value) in of_farm.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").current_dir(self.farm.work());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", support::show(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Types keys by their names in tmux.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn sees(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
                screen = self.screen();
                holds(&screen)
            });
        }));
        assert!(seen.is_ok(), "{what} is not seen:\n{screen}");
        screen
    }

    fn sees_all(&self, texts: &[&str]) -> String {
        self.sees(&texts.join(" and "), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Starts `windlass top` as a process whose number is told.
    fn start(&self) -> i32 {
        let file = self.farm.work().join("pid");
        _ = std::fs::remove_file(&file);
        let command = format!("sh -c 'echo $$ > pid; exec {} top'; echo code-$?", windlass());
        self.press(&[&command, "Enter"]);
        let mut pid = None;
        wait_until("it says its number", || {
            pid = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        self.sees_all(&["1 Workers", "● live"]);
        pid.unwrap()
    }

    /// The shell has its terminal again, as it was: with what it showed before, and with echo.
    fn is_given_back(&self, code: &str) {
        self.sees_all(&[code]);
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
        self.press(&["echo back-$((20 + 3))", "Enter"]);
        self.sees_all(&["echo back-$((20 + 3))", "back-23"]);
        self.press(&["clear", "Enter"]);
        self.sees("an empty screen", |screen| !screen.contains("back-23"));
    }
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        let socket = self.farm.path().join("tmux");
        _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").stderr(Stdio::null()).status();
    }
}

fn gate(farm: &Farm, name: &str) {
    rustix::fs::mkfifoat(rustix::fs::CWD, farm.work().join(name), rustix::fs::Mode::RWXU).unwrap();
}

/// Each key waits for what the key before it brought. Notices pass, so nothing is waited for together with one.
#[test]
fn a_farm_is_watched_and_steered_from_a_terminal() {
    let farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    let Some(pane) = Pane::open(&farm, "a_farm_is_watched_and_steered_from_a_terminal") else { return };
    pane.start();
    pane.sees_all(&["1 worker, at 1", "box", "0/2", "workers 1/1 up"]);

    // A job appears, runs and ends without a key.
    pane.press(&["2"]);
    pane.sees_all(&["no jobs; 'windlass run -- COMMAND' submits one"]);
    gate(&farm, "gate");
    let waits = "printf 'begun \\033[31mred\\033[0m\\n'; read x < gate; true";
    farm.ok(&["submit", "--name", "film", "--", "sh", "-c", waits]);
    pane.sees("a running job", |screen| {
        screen.lines().any(|line| line.contains("film") && line.contains("running"))
    });
    pane.press(&["l"]);
    pane.sees_all(&["output of task 1.0, following", "begun red"]);
    std::fs::write(farm.work().join("gate"), "x\n").unwrap();
    pane.sees_all(&["output of task 1.0, the end"]);
    pane.press(&["Escape"]);
    pane.sees("a job that ended", |screen| {
        screen.lines().any(|line| line.contains("film") && line.contains("succeeded"))
    });

    // A task that waits says why.
    farm.ok(&["submit", "--name", "wide", "--cpus", "2", "--array", "1-2", "--", "sleep", "1000"]);
    pane.sees("the other job", |screen| {
        screen.lines().any(|line| line.contains("wide") && line.contains("running"))
    });
    pane.press(&["g", "w"]);
    pane.sees_all(&["task 2.1 is ready", "What would make it run", "it is next on box"]);

    // A worker is drained, and resumed.
    pane.press(&["1", "d"]);
    pane.sees_all(&["Drain worker box?", "Enter: yes"]);
    pane.press(&["hot", "Enter"]);
    pane.sees_all(&["worker box takes no new work"]);
    pane.sees_all(&["Held: no worker takes work: 1 drained"]);
    assert_eq!(farm.json(&["worker", "show", "box"])["state"], "draining");
    pane.sees("a drained worker", |screen| {
        screen.lines().any(|line| line.starts_with("box") && line.contains("draining: hot"))
    });
    pane.press(&["d"]);
    pane.sees_all(&["Resume worker box?"]);
    pane.press(&["y"]);
    pane.sees_all(&["worker box takes work again"]);
    assert_eq!(farm.json(&["worker", "show", "box"])["state"], "up");

    // A queue is paused with a note, and a job is cancelled.
    pane.press(&["3"]);
    pane.sees_all(&["1 queue, at 1"]);
    pane.press(&["p", "new disk", "Enter"]);
    pane.sees_all(&["paused: new disk"]);
    pane.press(&["2", "g", "c"]);
    pane.sees_all(&["Cancel job 2 'wide'", "It kills 1 running task, and gives up 1 waiting task."]);
    pane.press(&["y"]);
    pane.sees("a cancelled job", |screen| {
        screen.lines().any(|line| line.contains("wide") && line.contains("cancelled"))
    });
    pane.press(&["q"]);
    pane.is_given_back("code-0");
}

/// A job counts as running from when its first task is booked, which is a moment before that task starts.
#[test]
fn output_is_followed_before_its_task_has_started() {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box"]);
    let Some(pane) = Pane::open(&farm, "output_is_followed_before_its_task_has_started") else { return };
    pane.start();
    pane.press(&["2"]);
    pane.sees_all(&["no jobs; 'windlass run -- COMMAND' submits one"]);
    kill(farm.keeper_pid(), "STOP");
    farm.ok(&["submit", "--name", "film", "--", "echo", "begun at last"]);
    pane.sees("a running job", |screen| {
        screen.lines().any(|line| line.contains("film") && line.contains("running"))
    });
    pane.press(&["l"]);
    pane.sees_all(&["output of task 1.0, following"]);
    kill(farm.keeper_pid(), "CONT");
    pane.sees_all(&["output of task 1.0, the end", "begun at last"]);
}

#[test]
fn it_outlives_its_server_and_gives_the_terminal_back() {
    let mut farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    let terminal = Farm::new();
    let Some(pane) = Pane::open(&terminal, "it_outlives_its_server_and_gives_the_terminal_back") else {
        return;
    };
    let address = format!("export WINDLASS_SERVER=unix:{}", farm.socket().display());
    pane.press(&[&address, "Enter"]);
    kill(pane.start(), "TERM");
    pane.is_given_back("code-143");
    pane.start();
    pane.press(&["C-c"]);
    pane.is_given_back("code-130");

    let pid = pane.start();
    farm.kill_server();
    pane.sees_all(&["○ stale", "no events for"]);
    pane.tmux(&["resize-window", "-x", "79", "-y", "20"]);
    pane.sees_all(&["of 80x24 or more", "this one is 79x20"]);
    farm.start();
    pane.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    pane.sees_all(&["● live", "1 worker, at 1", "box"]);
    kill(pid, "INT");
    pane.is_given_back("code-130");
}

#[test]
fn without_a_terminal_it_names_what_to_use_instead() {
    let farm = Farm::new();
    let said = farm.fails(2, &["top"]);
    assert!(said.contains("standard output is none") && said.contains("'windlass workers'"), "{said}");
    assert!(said.contains("-o json"), "{said}");
}
