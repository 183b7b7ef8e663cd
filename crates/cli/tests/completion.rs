//! Completion of a line by the shell: the values that the server knows, in the protocol of the shells' scripts and in
//! the shells themselves.

use crate::support::{Farm, show, windlass};
use std::path::Path;
use std::process::{Command, Output};

/// What is offered for the last of the words behind the program's name.
fn ask(farm: &Farm, words: &[&str]) -> Output {
    let mut command = farm.command(&["--", "windlass"]);
    command.args(words).env("WINDLASS_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).output().unwrap()
}

fn offered(farm: &Farm, words: &[&str]) -> Vec<String> {
    let output = ask(farm, words);
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", show(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    // Flags stand behind the values.
    text.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect()
}

/// A farm with a job that has succeeded, and one of two tasks that has failed.
fn farm_with_jobs() -> Farm {
    let farm = Farm::with_server(&["--cpus", "1", "--name", "box7"]);
    farm.ok(&["limit", "set", "maya", "2"]);
    farm.ok(&["run", "--queue", "film", "--", "true"]);
    farm.fails(1, &["run", "--each", "a", "b", "--", "false"]);
    farm
}

/// The program's directory in front of the others, as a value of PATH.
fn path() -> String {
    let dir = Path::new(windlass()).parent().unwrap().display();
    format!("{dir}:{}", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn what_the_server_knows_is_completed() {
    let farm = farm_with_jobs();
    assert_eq!(offered(&farm, &["job", "show", ""]), ["2", "1", "last"]);
    assert_eq!(offered(&farm, &["job", "show", "1"]), ["1"]);
    assert_eq!(offered(&farm, &["job", "retry", ""]), ["2", "last"], "only what has failed");
    assert!(offered(&farm, &["job", "cancel", ""]).is_empty(), "nothing runs");
    assert_eq!(offered(&farm, &["job", "wait", "1,"]), Vec::<String>::new());
    assert_eq!(offered(&farm, &["submit", "--after", "1,l"]), ["1,last"]);
    assert_eq!(offered(&farm, &["logs", "2."]), ["2.0", "2.1"]);
    assert_eq!(offered(&farm, &["why", "last.1"]), ["last.1"]);
    assert_eq!(offered(&farm, &["jobs", "--queue", "f"]), ["film"]);
    assert_eq!(offered(&farm, &["queue", "show", "f"]), ["film"]);
    assert_eq!(offered(&farm, &["worker", "drain", ""]), ["box7"]);
    assert_eq!(offered(&farm, &["run", "--limit", "m"]), ["maya"]);
    assert_eq!(offered(&farm, &["limit", "remove", ""]), ["maya"]);
    assert_eq!(offered(&farm, &["jobs", "--user", ""]).len(), 1);
    assert!(offered(&farm, &["jo"]).contains(&"jobs".to_owned()));
    assert!(offered(&farm, &["jobs", "--state", "canc"]).contains(&"cancelled".to_owned()));
    let template = "parameterDefinitions:\n- { name: Frames, type: STRING }\n- { name: Out, type: PATH }\n";
    std::fs::write(farm.work().join("film.yaml"), template).unwrap();
    assert_eq!(offered(&farm, &["run", "-f", "film.yaml", "-p", ""]), ["Frames=", "Out="]);
    assert_eq!(offered(&farm, &["run", "-f", "fil"]), ["film.yaml"]);
    assert_eq!(offered(&farm, &["run", "--", "cat", "fil"]), ["film.yaml"]);
}

#[test]
fn where_no_server_answers_nothing_is_offered_and_nothing_printed() {
    let farm = Farm::new();
    assert!(offered(&farm, &["job", "show", ""]).is_empty());
    assert!(!farm.socket().exists(), "no server was started");
    assert!(offered(&farm, &["--server", "127.0.0.1:1", "worker", "drain", ""]).is_empty());
    assert!(offered(&farm, &["--server", "odd,,odd", "worker", "drain", ""]).is_empty());
    // Others can read this token, which a command would warn of.
    std::fs::write(farm.work().join("token"), "wl_no\n").unwrap();
    assert!(offered(&farm, &["--token-file=token", "--server", "127.0.0.1:1", "logs", ""]).is_empty());
}

#[test]
fn a_name_that_a_shell_would_run_is_not_offered() {
    let farm = Farm::with_server(&["--no-worker"]);
    farm.fails(6, &["submit", "--queue", "plain", "--", "true"]);
    // Whether such a name is refused is the server's business.
    farm.run(&["submit", "--queue", "$(touch owned)", "--", "true"]);
    assert_eq!(offered(&farm, &["queue", "show", ""]).iter().filter(|name| name.contains('$')).count(), 0);
    assert_eq!(offered(&farm, &["queue", "show", "pl"]), ["plain"]);
}

#[test]
fn bash_completes_by_its_script() {
    let farm = farm_with_jobs();
    let script = "source <(windlass completion bash)
        complete -p windlass >/dev/null || exit 9
        COMP_WORDS=(windlass job show '') COMP_CWORD=3 COMP_TYPE=9
        _clap_complete_windlass windlass '' show
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let Ok(output) = in_shell(&farm, "bash", &["--norc", "-c", script]) else {
        return println!("SKIP bash_completes_by_its_script: needs bash");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(text.lines().take(3).collect::<Vec<_>>(), ["2", "1", "last"], "{}", show(&output));
}

#[test]
fn zsh_completes_by_its_script() {
    let farm = farm_with_jobs();
    // Stand-ins for what the completion system of an interactive shell has.
    let script = "compdef() { : }
        _describe() { local name=$argv[-1]; print -rl -- \"${(@P)name}\" }
        source <(windlass completion zsh)
        words=(windlass job show '') CURRENT=4
        _clap_dynamic_completer_windlass";
    let Ok(output) = in_shell(&farm, "zsh", &["-f", "-c", script]) else {
        return println!("SKIP zsh_completes_by_its_script: needs zsh");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", show(&output));
    let first: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(first, ["2:failed false", "1:succeeded true"], "{}", show(&output));
}

#[test]
fn fish_completes_by_its_script() {
    let farm = farm_with_jobs();
    let script = "windlass completion fish | source; complete --do-complete 'windlass job show '";
    let Ok(output) = in_shell(&farm, "fish", &["--no-config", "-c", script]) else {
        return println!("SKIP fish_completes_by_its_script: needs fish");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("2\tfailed false"), "{}", show(&output));
}

/// Runs a script in a shell that finds this program; an error where the shell is not installed.
fn in_shell(farm: &Farm, shell: &str, args: &[&str]) -> std::io::Result<Output> {
    let of_farm = farm.command(&[]);
    let mut command = Command::new(shell);
    command.args(args).env("PATH", path()).current_dir(farm.work());
    for (name, value) in of_farm.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output()
}
