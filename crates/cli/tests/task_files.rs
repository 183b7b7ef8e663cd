//! Files of tasks as their user has them: inputs, outputs, standard input, and what is fetched.

use crate::support::{Farm, names, show, wait_until};
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

fn farm() -> Farm {
    Farm::with_server(&["--cpus", "2"])
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes files into the directory from which the user works.
fn write(farm: &Farm, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = farm.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Runs the program to its end with a pipe as its standard input.
fn with_input(farm: &Farm, args: &[&str], input: &[u8]) -> Output {
    let mut command = farm.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut pipe = running.stdin.take().unwrap();
    // A program that does not read it closes it.
    _ = pipe.write_all(input);
    drop(pipe);
    running.wait_with_output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn inputs_go_to_a_directory_of_the_task_and_outputs_come_back() {
    let farm = farm();
    write(&farm, &[("src/a", "alpha"), ("src/sub/b", "beta"), ("other/c", "gamma"), ("left", "out")]);
    let script = "pwd; echo $WINDLASS_FILES; ls; cat src/a src/sub/b inc/c; mkdir -p out/deep; \
                  tr a-z A-Z < src/a > out/A; echo more > out/deep/m; echo no > none";
    let args = ["run", "--input", "src", "--input", "other=inc", "--outputs", "out/**", "--fetch=got"];
    let out = farm.ok(&[&args[..], &["--", "sh", "-c", script]].concat());
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0] == lines[1] && lines[0] != farm.work().to_str().unwrap(), "{out}");
    assert_eq!(lines[2..], ["inc", "src", "alphabetagamma"]);
    let got = farm.work().join("got");
    assert_eq!(
        (names(&got), names(&got.join("out"))),
        (vec!["out".to_owned()], vec!["A".into(), "deep".into()])
    );
    assert_eq!((read(&got.join("out/A")), read(&got.join("out/deep/m"))), ("ALPHA".into(), "more\n".into()));
    assert_eq!(names(&farm.work()), ["got", "left", "other", "src"], "nothing else is made here");
    wait_until("the directory of the task is gone", || !Path::new(lines[0]).exists());
    // The same later, by its number.
    farm.ok(&["job", "fetch", "1", "later"]);
    assert_eq!(read(&farm.work().join("later/out/A")), "ALPHA");
}

#[test]
fn inputs_are_read_only_and_their_directories_are_the_tasks_own() {
    let farm = farm();
    write(&farm, &[("src/a", "alpha"), ("src/tool", "#!/bin/sh\necho it runs\n")]);
    let tool = farm.work().join("src/tool");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = "src/tool; test -w src && echo own > src/new && cat src/new; stat -c %a src/a src/tool";
    let out = farm.ok(&["run", "--input", "src", "--", "sh", "-c", script]);
    assert_eq!(out, "it runs\nown\n444\n555\n");
    assert_eq!(names(&farm.work().join("src")), ["a", "tool"]);
}

#[test]
fn a_second_run_uploads_nothing() {
    let farm = farm();
    let large = "x".repeat(3 << 20);
    write(&farm, &[("src/a", "alpha"), ("src/b", "beta"), ("src/large", &large)]);
    let dry = farm.ok(&["run", "--dry-run", "--input", "src", "--", "true"]);
    assert!(dry.contains("inputs: 3 files, 3 MiB; would upload 3 files, 3 MiB"), "{dry}");
    let run = || {
        let output = farm.run(&["run", "-v", "--input", "src", "--", "cat", "src/a"]);
        assert!(output.status.success(), "{}", show(&output));
        told(&output)
    };
    let first = run();
    assert!(first.contains("uploaded 3 files, 3 MiB in "), "{first}");
    let second = run();
    assert!(second.contains("nothing is uploaded") && !second.contains("uploaded 3"), "{second}");
    let dry = farm.ok(&["run", "--dry-run", "-o", "json", "--input", "src", "--", "true"]);
    let dry: serde_json::Value = serde_json::from_str(&dry).unwrap();
    assert_eq!((&dry["upload"]["files"], &dry["upload"]["new_files"]), (&3.into(), &0.into()), "{dry}");
    write(&farm, &[("src/b", "changed")]);
    let third = run();
    assert!(third.contains("uploaded 1 file, 7 B in "), "{third}");
    // By a program that knows no digests yet.
    _ = std::fs::remove_dir_all(farm.path().join("cache"));
    assert!(run().contains("nothing is uploaded"));
}

#[test]
fn names_that_lead_out_are_refused_before_anything_runs() {
    let farm = farm();
    write(&farm, &[("a", "alpha"), ("b/a", "beta")]);
    std::os::unix::fs::symlink("/etc/passwd", farm.work().join("b/l")).unwrap();
    let cases: [(&[&str], &str); 13] = [
        (&["--input", "a=../x"], "'..' cannot be names"),
        (&["--input", "a=/x"], "begins with '/'"),
        (&["--input", "none"], "No such file"),
        (&["--input", "*.c"], "nothing matches '*.c'"),
        (&["--input", "a=x", "--input", "b/a=x"], "would both be 'x'"),
        (&["--input", "b"], "the link 'b/l' to '/etc/passwd' cannot be in a tree"),
        (&["--outputs", "../*"], "'..' would lead out"),
        (&["--outputs", "/tmp/*"], "begins with '/'"),
        (&["--outputs", "x", "--cwd", "/tmp"], "a directory of its own"),
        (&["--stdin", "none"], "cannot read 'none'"),
        (&["--fetch"], "no step keeps outputs"),
        (&["--flat", "--outputs", "x"], "give it, too"),
        (&["--output", "*.o"], "--outputs '*.o' keeps such files"),
    ];
    for (flags, says) in cases {
        let error = farm.fails(2, &[&["run"][..], flags, &["--", "true"]].concat());
        assert!(error.contains(says), "{flags:?}: {error}");
    }
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "");
}

#[test]
fn what_a_task_leaves_cannot_lead_out_of_the_directory_of_its_user() {
    let farm = farm();
    let script =
        "ln -s /etc/passwd l; ln -s ../../../x up; mkfifo p; mkdir d; ln -s ../f d/in; echo mine > f";
    let args = ["run", "--outputs", "**", "--fetch=got", "--", "sh", "-c", script];
    let output = farm.run(&args);
    assert!(output.status.success(), "{}", show(&output));
    assert!(told(&output).contains("kept not all of its outputs"), "{}", told(&output));
    let got = farm.work().join("got");
    assert_eq!(names(&got), ["d", "f"]);
    assert_eq!(read(&got.join("d/in")), "mine\n", "a link inside stays");
    // A link that stands in the way is not followed.
    let outside = farm.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let trap = farm.work().join("trap");
    std::fs::create_dir(&trap).unwrap();
    std::os::unix::fs::symlink(&outside, trap.join("d")).unwrap();
    std::os::unix::fs::symlink(outside.join("f"), trap.join("f")).unwrap();
    let error = farm.fails(1, &["job", "fetch", "last", "trap"]);
    assert!(error.contains("something else is there"), "{error}");
    farm.fails(1, &["job", "fetch", "last", "trap", "--force"]);
    assert_eq!(names(&outside), Vec::<String>::new());
    assert_eq!(read(&trap.join("f")), "mine\n", "the link itself gave way");
}

#[test]
fn standard_input_is_passed_on_where_it_is_asked_for() {
    let farm = farm();
    let output = with_input(&farm, &["run", "--stdin", "-", "--", "cat"], b"from a pipe\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from a pipe\n", "{}", show(&output));
    let long: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let output = with_input(&farm, &["run", "--stdin", "-", "--", "cat"], &long);
    assert!(output.stdout == long, "{} bytes came back: {}", output.stdout.len(), told(&output));
    write(&farm, &[("in", "a\nb\n")]);
    let out = farm.ok(&["run", "--stdin", "in", "--array", "1-3", "--", "wc", "-l"]);
    assert_eq!(out, "2\n2\n2\n", "each task reads all of it");
    let empty = with_input(&farm, &["run", "--stdin", "-", "--", "wc", "-c"], b"");
    assert_eq!(String::from_utf8_lossy(&empty.stdout), "0\n", "{}", show(&empty));
    let both = ["run", "--stdin", "-", "--each-line", "-", "--", "cat"];
    assert!(farm.fails(2, &both).contains("both read standard input"));
}

#[test]
fn a_standard_input_that_is_not_passed_on_is_noted_in_one_line() {
    const NOTE: &str = "tasks do not get this standard input";
    let farm = farm();
    let piped = |args: &[&str]| told(&with_input(&farm, args, b"x\n"));
    let noted = piped(&["run", "--", "cat"]);
    assert_eq!(noted.matches(NOTE).count(), 1, "{noted}");
    assert!(piped(&["submit", "--", "cat"]).contains(NOTE));
    assert!(!piped(&["run", "-q", "--", "cat"]).contains(NOTE));
    assert!(!piped(&["run", "--each-line", "-", "--", "echo"]).contains(NOTE), "it is read");
    let nothing = with_input(&farm, &["run", "--", "cat"], b"");
    assert!(!told(&nothing).contains(NOTE), "{}", show(&nothing));
    // The other end stays open, as under some services: nothing is waited for.
    let mut command = farm.command(&["run", "--", "echo", "done"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let pipe = running.stdin.take();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"done\n", "{}", show(&output));
    drop(pipe);
}

#[test]
fn the_list_of_a_loop_stays_the_loop_s() {
    let farm = farm();
    write(&farm, &[("list", "a\nb\nc\n")]);
    let windlass = crate::support::windlass();
    let mut shell = std::process::Command::new("sh");
    let script = format!("while read name; do {windlass} run -- echo $name; done < list");
    shell.args(["-c", &script]).current_dir(farm.work());
    // The environment of the farm.
    for (name, value) in farm.command(&[]).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\nb\nc\n", "{}", show(&output));
    assert_eq!(told(&output), "");
}

#[test]
fn outputs_of_a_failed_task_are_kept_and_its_exit_code_is_the_run_s() {
    let farm = farm();
    let script = "echo half > result; echo gone > other; exit 7";
    farm.fails(7, &["run", "--outputs", "res*", "--fetch=got", "--", "sh", "-c", script]);
    assert_eq!(names(&farm.work().join("got")), ["result"]);
    farm.fails(7, &["run", "--outputs", "res*", "--", "sh", "-c", script]);
    farm.ok(&["job", "fetch", "last", "later"]);
    assert_eq!(read(&farm.work().join("later/result")), "half\n");
    farm.fails(1, &["run", "--outputs", "none*", "--", "false"]);
    let error = farm.fails(3, &["job", "fetch", "last"]);
    assert!(error.contains("no outputs of job 3") && error.contains("--outputs"), "{error}");
    farm.fails(3, &["job", "fetch", "99"]);
}

#[test]
fn a_step_uses_the_outputs_of_another() {
    let farm = farm();
    write(
        &farm,
        &[
            ("src/a.c", "int a"),
            ("src/b.c", "int b"),
            (
                "job.yaml",
                "kind: windlass/job\nname: app\nsteps:\n- name: compile\n  command: [sh, -c, 'cp src/{} {.}.o']\n  \
                 param: {values: [a.c, b.c]}\n  files:\n    inputs: [src]\n    outputs: ['*.o']\n- name: link\n  \
                 command: [sh, -c, 'ls; cat *.o > app; cat']\n  depends: [{on: compile}]\n  files:\n    outputs_of: \
                 [compile]\n    outputs: [app]\n    stdin_file: params\n",
            ),
            ("params", "-O2\n"),
        ],
    );
    let out = farm.ok(&["run", "-f", "job.yaml", "--fetch=got", "--show", "grouped"]);
    assert_eq!(out, "a.o\nb.o\n-O2\n", "the second step finds the outputs, and not the inputs of the first");
    let got = farm.work().join("got");
    assert_eq!(names(&got), ["compile.0", "compile.1", "link.2"]);
    assert_eq!(read(&got.join("link.2/app")), "int aint b");
    let shown = farm.ok(&["job", "show", "last"]);
    for line in [
        "inputs     compile: 2 files, 10 B",
        "outputs    compile: *.o",
        "inputs     link: outputs of compile, a standard input of 4 B",
        "kept       3 files, 20 B of 3 tasks",
    ] {
        assert!(shown.contains(line), "{shown}\nlacks {line}");
    }
    let job = farm.json(&["job", "show", "last"]);
    let job = if job.is_array() { &job[0] } else { &job };
    assert_eq!(job["files"]["outputs"][2]["bytes"], 10, "{job}");
    // All together, and one alone.
    farm.ok(&["job", "fetch", "last", "flat", "--flat"]);
    assert_eq!(names(&farm.work().join("flat")), ["a.o", "app", "b.o"]);
    farm.ok(&["job", "fetch", "last", "one", "--task", "2"]);
    assert_eq!(names(&farm.work().join("one")), ["app"]);
}

#[test]
fn what_is_there_is_not_written_again_and_what_is_other_is_not_overwritten() {
    let farm = farm();
    let script = "echo same > same; echo new > other; mkdir d; echo in > d/f";
    farm.ok(&["run", "--outputs", "**", "--", "sh", "-c", script]);
    write(&farm, &[("got/same", "same\n"), ("got/other", "mine"), ("got/mine", "mine"), ("got/d/f", "in\n")]);
    let changed = |name: &str| farm.work().join(name).metadata().unwrap().modified().unwrap();
    let before = changed("got/same");
    let error = farm.fails(1, &["job", "fetch", "1", "got"]);
    assert!(
        error.contains("got/other") && error.contains("--force") && !error.contains("got/same"),
        "{error}"
    );
    assert_eq!((read(&farm.work().join("got/other")), changed("got/same")), ("mine".to_owned(), before));
    let fetched = farm.json(&["job", "fetch", "1", "got", "--force"]);
    assert_eq!(
        (&fetched["files"], &fetched["written"], &fetched["kept_count"]),
        (&3.into(), &1.into(), &0.into())
    );
    assert_eq!((read(&farm.work().join("got/other")), changed("got/same")), ("new\n".to_owned(), before));
    assert_eq!(read(&farm.work().join("got/mine")), "mine", "what is not an output stays");
    // A directory that has just these outputs is known without a byte of them.
    farm.ok(&["job", "fetch", "1", "whole"]);
    let again = farm.json(&["job", "fetch", "1", "whole"]);
    assert_eq!(
        (&again["tasks"], &again["there"], &again["written"]),
        (&1.into(), &1.into(), &0.into()),
        "{again}"
    );
    let run = ["run", "--outputs", "other", "--fetch=got", "--", "sh", "-c", "echo newer > other"];
    assert!(farm.fails(1, &run).contains("--force"), "a run says it, too");
}
