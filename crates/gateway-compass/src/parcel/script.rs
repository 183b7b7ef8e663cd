//! `job.sh`: the shell script by which a machine reads a job's fields and runs its programs. It runs in every POSIX
//! shell, such as the ones of Debian and busybox.

use crate::format::{Fields, SECTIONS, entries_of, is_variable, runs_here, scalar, texts};
use serde_json::Value;
use std::collections::BTreeMap;

/// Keys of an entry that its program does not get as variables.
const NO_VARIABLES: [&str; 5] = ["if", "if-role", "depends-on", "pre-script", "post-script"];
/// Lists of lines that older clients make themselves, in their order in the script.
const OLD_LISTS: [&str; 4] = ["run_job", "extract_stats", "define_files", "on_fail"];
/// Fields that do not become variables.
const HIDDEN: [&str; 4] = ["my_email", "my_name", "my_token", "sealed_secrets"];

/// The script of a job with these fields.
pub fn job_script(fields: &Fields) -> String {
    let variables = variables(fields);
    let old = fields.get("job2sh").and_then(Value::as_object);
    let mut text = String::from("#!/bin/sh\n\n");
    text.push_str(SET_VARIABLE);
    text.push_str("read_job_vars()\n{\n\tjob_vars_wanted=\" $* \"\n");
    for (name, value) in &variables {
        text.push_str(&format!("\tset_job_var {name} {value}\n"));
    }
    text.push_str("}\n\n");
    text.push_str(&export_function(&variables));
    match old {
        Some(old) => OLD_LISTS.iter().for_each(|list| put_lines(&mut text, old.get(*list))),
        None => text.push_str(&run_function(fields)),
    }
    text.push_str("\n\"$@\"\n");
    text
}

/// A function that sets a variable if all variables are wanted, or this one.
const SET_VARIABLE: &str = "set_job_var()\n{\n\tcase \"$job_vars_wanted\" in\n\t'  '|*\" $1 \"*) eval \"$1=\\$2\" ;;\n\
                            \tesac\n}\n\n";

/// A function that the scripts of older clients call.
fn export_function(variables: &BTreeMap<String, String>) -> String {
    let names: Vec<&str> = variables.keys().map(String::as_str).collect();
    let mut text = String::from("export_top_env()\n{\n\tread_job_vars\n");
    if !names.is_empty() {
        text.push_str(&format!("\texport {}\n", names.join(" ")));
    }
    text.push_str("\t[ -n \"$LKP_SRC\" ] || export LKP_SRC=\"/lkp/${user:-lkp}/src\"\n}\n\n");
    text
}

/// The variables with their values in the script: plain fields, overridden by those of `hw` and `services`.
fn variables(fields: &Fields) -> BTreeMap<String, String> {
    let inner = |key: &str| fields.get(key).and_then(Value::as_object).into_iter().flatten();
    let mut all = BTreeMap::new();
    for (name, value) in fields.iter().chain(inner("hw")).chain(inner("services")) {
        let text = match value {
            Value::Array(_) if name == "cache_dirs" => texts(value).map(|dirs| dirs.join(" ")),
            value => scalar(value),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        if is_variable(name) && !HIDDEN.contains(&name.as_str()) {
            all.insert(name.clone(), value_text(&text));
        }
    }
    all
}

/// The function that runs the job's sections one after the other.
fn run_function(fields: &Fields) -> String {
    let mut text = String::from("run_job()\n{\n\techo $$ > \"$TMP/run-job.pid\"\n\n");
    for file in ["http.sh", "job.sh", "env.sh"] {
        text.push_str(&format!("\t. \"$LKP_SRC/lib/{file}\"\n"));
    }
    text.push('\n');
    for section in SECTIONS {
        for (name, config) in entries_of(fields, section) {
            if runs_here(fields, config.as_object()) {
                put_entry(&mut text, section, name, config.as_object());
            }
        }
    }
    text.push_str("}\n");
    text
}

fn put_entry(text: &mut String, section: &str, name: &str, config: Option<&Fields>) {
    let script = |key: &str| config.and_then(|config| config.get(key));
    let command = match section {
        "setup" => "run_setup",
        "daemon" => "start_daemon",
        "monitor" => "run_monitor",
        _ => "run_program",
    };
    put_lines(text, script("pre-script"));
    let condition =
        script("if").and_then(scalar).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if let Some(condition) = &condition {
        text.push_str(&format!("\tif {condition}\n\tthen\n"));
    }
    text.push('\t');
    for (key, value) in settings(config) {
        text.push_str(&format!("{}={} ", variable_of(&key), value_text(&value)));
    }
    text.push_str(&format!("{command} {}\n", quoted(name)));
    if condition.is_some() {
        text.push_str("\tfi\n");
    }
    put_lines(text, script("post-script"));
}

/// An entry's variables, including those of hashes in it.
fn settings(config: Option<&Fields>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in config.into_iter().flatten().filter(|(key, _)| !NO_VARIABLES.contains(&key.as_str()))
    {
        let inner: Vec<(&String, &Value)> = match value {
            Value::Object(inner) => inner.iter().collect(),
            _ => vec![(key, value)],
        };
        for (key, value) in inner {
            let text = match value {
                Value::Null => Some(String::new()),
                Value::Array(_) => texts(value).map(|all| all.join("\n")),
                value => scalar(value),
            };
            all.extend(text.map(|text| (key.clone(), text)));
        }
    }
    all
}

/// Adds lines of the job's author, from a text or a nested list of texts.
fn put_lines(text: &mut String, lines: Option<&Value>) {
    match lines {
        Some(Value::Array(all)) => all.iter().for_each(|inner| put_lines(text, Some(inner))),
        Some(Value::String(lines)) => {
            text.push_str(lines);
            text.push('\n');
        }
        _ => {}
    }
}

/// A key as the name of a variable: every other character becomes `_CODE_`.
fn variable_of(key: &str) -> String {
    let one = |c: char| match c.is_ascii_alphanumeric() || c == '_' {
        true => c.to_string(),
        false => format!("_{}_", c as u32),
    };
    let name: String = key.chars().map(one).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// A value in the script. A text in which each `$` begins the name of a variable is expanded on the machine, as authors
/// of jobs expect. Any other text stands for itself.
fn value_text(text: &str) -> String {
    if !text.contains('$') || !names_variables(text) {
        return quoted(text);
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if "\"\\`".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// True if each `$` begins `$NAME` or `${NAME}`.
fn names_variables(text: &str) -> bool {
    text.split('$').skip(1).all(|rest| match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}').is_some_and(|(name, _)| is_variable(name)),
        None => rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'),
    })
}

/// A text in quotes, which the shell does not expand.
fn quoted(text: &str) -> String {
    // Shells cannot store a byte 0 in a variable.
    format!("'{}'", text.replace('\0', "").replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Runs the script with arguments after some lines; returns its output, or what is wrong with it.
    fn run(script: &str, before: &str, args: &[&str]) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir.path().join("lib");
        std::fs::create_dir(&lib).unwrap();
        for file in ["http.sh", "job.sh"] {
            std::fs::write(lib.join(file), "").unwrap();
        }
        let stub = "for f in run_setup start_daemon run_monitor run_program; do\n\
                    eval \"$f() { printf '$f [%s] v=[%s] w=[%s]\\\\n' \\\"\\$1\\\" \\\"\\$v\\\" \\\"\\$w\\\"; v=; w=; }\"\ndone\n";
        std::fs::write(lib.join("env.sh"), stub).unwrap();
        let mut shell = Command::new("sh");
        shell.arg("-s").args(args).env("LKP_SRC", dir.path()).env("TMP", dir.path());
        let mut shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(format!("{before}{script}").as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() && output.stderr.is_empty() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    fn script(value: Value) -> String {
        job_script(value.as_object().unwrap())
    }

    #[test]
    fn a_machine_runs_the_sections_in_order() {
        let text = script(json!({
            "suite": "x", "setup": {"disk": {"v": "1 2"}}, "monitor": {"vmstat": null},
            "daemon": {"sshd": {"if": "[ \"$suite\" = never ]", "v": 1}, "nfs": {"if": "true", "if-role": "server"}},
            "program": {"zeta": {"v": "it's", "x": {"w": "${none}a b"}}, "alpha": {"v": "$suite/$(id)"},
                "one": {"pre-script": "echo before", "post-script": ["echo after", "echo all"], "v": "$suite"}},
            "section_order": {"program": ["zeta", "alpha", "one"]},
        }));
        let out = run(&text, "", &["run_job"]).unwrap();
        let expected = [
            "run_setup [disk] v=[1 2] w=[]",
            "start_daemon [nfs] v=[] w=[]",
            "run_monitor [vmstat] v=[] w=[]",
            "run_program [zeta] v=[it's] w=[a b]",
            "run_program [alpha] v=[$suite/$(id)] w=[]",
            "before",
            "run_program [one] v=[] w=[]",
            "after",
            "all",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn variables_are_those_that_are_asked_for() {
        let text = script(json!({
            "suite": "a'b\"c", "n": 5, "empty": "", "list": ["x"], "map": {"x": 1}, "9bad": 1, "my_token": "t",
            "hw": {"nr_cpu": "4", "n": "6"}, "services": {"sched_host": "h"}, "cache_dirs": ["1-a/b", "1-c"],
            "who": "$suite!",
        }));
        let show = "show() { echo \"[$suite] [$n] [$list] [$my_token] [$nr_cpu] [$sched_host] [$cache_dirs] [$who]\"; }\n";
        let all = |words: &str| format!("{show}both() {{ read_job_vars {words}; show; }}\n");
        let out = run(&text, &all(""), &["both"]).unwrap();
        assert_eq!(out, "[a'b\"c] [6] [] [] [4] [h] [1-a/b 1-c] [a'b\"c!]\n");
        assert_eq!(run(&text, &all("n nr_cpu"), &["both"]).unwrap(), "[] [6] [] [] [4] [] [] []\n");
        let exported = "child() { export_top_env; sh -c 'echo $n $LKP_SRC'; }\nLKP_SRC=/x\n";
        assert_eq!(run(&text, exported, &["child"]).unwrap(), "6 /x\n");
    }

    #[test]
    fn an_old_client_brings_its_own_functions() {
        let lines = json!({"run_job": ["run_job()", "{", ["\texport_top_env", "\techo old $suite"], "}"],
            "extract_stats": ["extract_stats()", "{", "\t:", "}"], "on_fail": null});
        let text = script(json!({"suite": "s", "job2sh": lines, "program": {"x": null}}));
        assert_eq!(run(&text, "", &["run_job"]).unwrap(), "old s\n", "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn no_value_is_anything_but_a_value(value in "[ -~\n\t]{0,24}", key in "[ -~]{1,6}", name in "[ -~]{1,8}") {
            let fields = json!({"v0": value.clone(), "program": {name.clone(): {key: value.clone()}}});
            let text = script(fields);
            let show = "show() { read_job_vars; printf '%s' \"$v0\"; }\n";
            let shown = run(&text, show, &["show"]);
            prop_assert!(shown.is_ok(), "{text}\n{shown:?}");
            if !value.contains('$') {
                prop_assert_eq!(shown.unwrap(), value);
            }
            let ran = run(&text, "", &["run_job"]);
            let expected = format!("run_program [{name}]");
            prop_assert!(ran.as_ref().is_ok_and(|out| out.starts_with(&expected)), "{text}\n{ran:?}");
        }
    }
}
