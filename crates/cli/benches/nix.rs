//! Nix with `windlass nix-hook` beside Nix with its own hook, in the same run: three builders with one place each, all on
//! this machine, with a stand-in for ssh. Runs as root, where Nix is installed.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::nix::{Worlds, builders, expression};
use support::{show, wait_until};
use windlass_gateway_nix::hook::framing::{Reader, Try};

/// Names of the build hosts.
const HOSTS: [&str; 3] = ["b1", "b2", "b3"];

fn main() {
    let Some(worlds) = Worlds::with_server("nix") else { return };
    let three = builders(&HOSTS, 1);
    start_of_a_hook(&worlds);
    answers_with_many_waiting(&worlds);
    // The stock hook takes five minutes.
    let hook_alone = std::env::args().any(|word| word == "--hook-only");
    for hook in [true, false].into_iter().filter(|hook| *hook || !hook_alone) {
        println!("\n{}", if hook { "windlass nix-hook" } else { "Nix's own hook" });
        let name = |what: &str| format!("{what}-{}", if hook { "w" } else { "s" });
        let wide = expression(&name("wide"), 50, "", "/bin/sleep 0.2;");
        worlds.time("wide, 50 x 0.2 s", &wide, &three, hook);
        worlds.time("dag, 10 x 10 x 0.05 s", &dag(&name("dag"), 10, "0.05"), &three, hook);
        worlds.time("slow dag, 5 x 10 x 0.5 s", &dag(&name("slow"), 5, "0.5"), &three, hook);
        fs::write(worlds.path("delay"), "0.3").unwrap();
        worlds.time("dag, connecting takes 0.3 s", &dag(&name("far"), 10, "0.05"), &three, hook);
        fs::remove_file(worlds.path("delay")).unwrap();
        large_input(&worlds, &name("large"), hook);
        dead_builder(&worlds, &name("dead"), hook);
    }
}

impl Worlds {
    /// Builds an expression and prints how long it took and how many builds each builder had.
    fn time(&self, what: &str, expression: &str, builders: &str, hook: bool) {
        let (derivations, before) = (self.derivations("client", expression), self.built());
        let clock = Instant::now();
        let output = self.realise("client", &derivations, builders, hook).output().unwrap();
        let took = clock.elapsed().as_secs_f64();
        let built = self.built();
        let built: Vec<String> = (0..3).map(|i| (built[i] - before[i]).to_string()).collect();
        let ended =
            if output.status.success() { String::new() } else { format!(" FAILED {}", show(&output)) };
        println!("  {what:32} {took:6.2} s   {}{ended}", built.join("/"));
    }
}

/// Layers of ten derivations, each of which reads three of the layer before.
fn dag(name: &str, layers: u32, sleep_s: &str) -> String {
    format!(
        r#"let
          width = 10;
          make = below: l: i: derivation {{
            name = "{name}-${{toString l}}-${{toString i}}"; system = "x86_64-linux"; builder = "/bin/sh";
            reads = if below == [] then [] else
              map (k: builtins.elemAt below (let x = i + k * 3; in x - (x / width) * width)) [ 0 1 2 ];
            args = [ "-c" ''
              echo $name >> /nix/var/builds; /bin/sleep {sleep_s}
              for path in $reads; do read line < $path; done
              {{ echo $name; /usr/bin/head -c 20000 /dev/zero; }} > $out'' ];
          }};
          go = l: below: if l == {layers} then below else go (l + 1) (builtins.genList (make below l) width);
        in go 0 []"#
    )
}

/// Ten dependants of 200 MB that one of three builders has: how many bytes are copied to builders.
fn large_input(worlds: &Worlds, name: &str, hook: bool) {
    let large = format!(
        r#"(derivation {{ name = "{name}"; system = "x86_64-linux"; builder = "/bin/sh";
            args = [ "-c" "/usr/bin/head -c 200000000 /dev/zero > $out" ]; }})"#
    );
    let derivations = worlds.derivations("client", &large);
    let output = worlds.realise("client", &derivations, &builders(&["b2"], 4), hook).output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    let dependants = expression(&format!("{name}-uses"), 10, &format!("input = {large};"), "/bin/sleep 0.5;");
    worlds.time("10 dependants of 200 MB on b2", &dependants, &builders(&HOSTS, 4), hook);
    let has = |world: &&&str| {
        let stored = fs::read_dir(worlds.path(world).join("nix/store")).unwrap().flatten();
        stored
            .filter_map(|entry| entry.file_name().into_string().ok())
            .any(|found| found.ends_with(&format!("-{name}")))
    };
    println!(
        "  {:32} {} of 2 other builders",
        "  copied to",
        HOSTS.iter().filter(has).count().saturating_sub(1)
    );
}

/// Four builds on two builders, the first of which does not answer: ssh gives up after 30 s.
fn dead_builder(worlds: &Worlds, name: &str, hook: bool) {
    fs::write(worlds.path("dead-b1"), "30").unwrap();
    let four = expression(name, 4, "", "/bin/sleep 0.2;");
    worlds.time("first of two builders dead, 4", &four, &builders(&["b1", "b2"], 1), hook);
    fs::remove_file(worlds.path("dead-b1")).unwrap();
}

/// How long the hook takes from its start to its answer, and the memory that it takes while it waits.
fn start_of_a_hook(worlds: &Worlds) {
    let sent = sent();
    let mut took: Vec<Duration> = (0..50).map(|_| answer(worlds, &sent).0).collect();
    took.sort();
    let ms = |at: usize| took[at].as_secs_f64() * 1e3;
    println!("start of a hook to its answer: p50 {:.1} ms, p98 {:.1} ms", ms(25), ms(49));
}

/// What Nix sends to a hook: the settings of a recording, with other machines, and a question.
fn sent() -> Vec<u8> {
    let recorded = include_bytes!("../../gateway-nix/tests/golden/stdin_c.bin");
    let settings = Reader::new(&recorded[..]).settings().unwrap();
    let mut sent = Vec::new();
    settings.write(Some(&builders(&["b1"], 1)), &mut sent).unwrap();
    let drv = "/nix/store/00000000000000000000000000000000-asked.drv".to_owned();
    Try { is_willing: false, system: "x86_64-linux".to_owned(), drv, features: Vec::new() }
        .write(&mut sent)
        .unwrap();
    sent
}

/// Starts a hook and asks it once. Returns how long the answer took and its first line.
fn answer(worlds: &Worlds, sent: &[u8]) -> (Duration, String) {
    use std::io::{BufRead as _, BufReader};
    let hook = worlds.path("bin/windlass-nix-hook").display().to_string();
    let mut command = worlds.farm.command(&[]);
    let environment: Vec<_> =
        command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    command = Command::new(hook);
    for (name, value) in environment.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    command.env("WINDLASS_SERVER", format!("unix:{}", worlds.farm.socket().display()));
    let clock = Instant::now();
    let mut hook = command.arg("0").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = hook.stdin.take().unwrap();
    stdin.write_all(sent).unwrap();
    let mut line = String::new();
    BufReader::new(hook.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let took = clock.elapsed();
    hook.kill().unwrap();
    hook.wait().unwrap();
    (took, line)
}

/// The answers to further questions while 200 builds wait, and what the hooks of these take.
fn answers_with_many_waiting(worlds: &Worlds) {
    let script = format!("while ! [ -e {} ]; do /bin/sleep 0.1; done;", worlds.path("go").display());
    let many = expression("many", 200, "", &script);
    let derivations = worlds.derivations("client", &many);
    let nix = worlds.realise("client", &derivations, &builders(&["b1"], 1), true);
    // Nix has several files open for each build.
    let mut nix = Command::new("sh")
        .args(["-c", "ulimit -n 8192; exec \"$@\"", "sh"])
        .arg(nix.get_program())
        .args(nix.get_args())
        .envs(nix.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(nix.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let clock = Instant::now();
    wait_until("200 builds wait or run", || worlds.metric("windlass_nix_builds") == 200.0);
    println!("200 builds accepted in {:.2} s", clock.elapsed().as_secs_f64());
    let sent = sent();
    let mut took: Vec<Duration> = (0..200)
        .map(|_| {
            let (took, line) = answer(worlds, &sent);
            assert!(line.starts_with("# accept"), "{line}");
            took
        })
        .collect();
    took.sort();
    let ms = |at: usize| took[at].as_secs_f64() * 1e3;
    println!(
        "answers with 200 waiting, start of the hook included: p50 {:.1} ms, p99 {:.1} ms",
        ms(100),
        ms(197)
    );
    let hooks: Vec<u64> = memory_of_hooks();
    let mean = hooks.iter().sum::<u64>() / hooks.len().max(1) as u64;
    println!("{} hooks wait, {mean} KiB each (proportional set size)", hooks.len());
    fs::write(worlds.path("go"), "").unwrap();
    nix.wait().unwrap();
}

/// The proportional set size of each hook, in KiB.
fn memory_of_hooks() -> Vec<u64> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let hooks = pids.filter(|pid| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
        program.ends_with(b"windlass-nix-hook")
    });
    let size = |pid: String| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().to_owned();
        line.trim_end_matches("kB").trim().parse().ok()
    };
    hooks.filter_map(size).collect()
}
