//! The page of metrics.

use super::{MADE, compare, text};
use crate::support::Farm;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

/// A metric as its registration says it.
#[derive(PartialEq, Debug)]
struct Family {
    kind: String,
    help: String,
}

/// The metrics that files of the server register, by their names in the text.
fn registered() -> BTreeMap<String, Family> {
    let mut found = BTreeMap::new();
    let mut sources = vec!["crates/server/src/metrics.rs".to_owned()];
    let beside = super::file("crates/server/src/metrics");
    for entry in std::fs::read_dir(beside).into_iter().flatten().flatten() {
        sources.push(format!("crates/server/src/metrics/{}", entry.file_name().to_string_lossy()));
    }
    let sources: Vec<String> = sources.iter().map(|path| text(path)).collect();
    let all = sources.concat();
    for source in &sources {
        for (at, _) in source.match_indices(".register") {
            let call = &source[at..];
            let with_unit = call.starts_with(".register_with_unit(");
            // Groups of metrics register themselves with the registry that they are given.
            let of_a_group = call.starts_with(".register(r)");
            if of_a_group || (!with_unit && !call.starts_with(".register(")) {
                continue;
            }
            let mut parts = call.splitn(3, '"');
            let (opening, name) = (parts.next().unwrap(), parts.next().unwrap());
            assert!(opening.trim_end().ends_with('('), "a name that is no literal: {:.60}", call);
            let rest = parts.next().unwrap();
            let arguments = rest[..rest.find(");").unwrap()].trim_start_matches(',').trim();
            let help = match arguments.strip_prefix('"') {
                Some(literal) => literal.split('"').next().unwrap(),
                // The one that was bound to a name just before.
                None => source[..at].rsplit("let help = \"").next().unwrap().split('"').next().unwrap(),
            };
            let field = arguments.rsplit("self.").next().unwrap().split('.').next().unwrap();
            let kind = kind(&all, field);
            let unit = match () {
                () if !with_unit => "",
                () if arguments.contains("Bytes") => "_bytes",
                () => "_seconds",
            };
            let total = if kind == "counter" { "_total" } else { "" };
            let family = Family { kind: kind.to_owned(), help: help.to_owned() };
            found.insert(format!("windlass_{name}{unit}{total}"), family);
        }
    }
    found.extend(of_workers());
    found
}

/// Those of each worker, which are gauges and stand in a table of names and help texts.
fn of_workers() -> BTreeMap<String, Family> {
    let source = text("crates/server/src/figures/worker_metrics.rs");
    let table = source.split("#[cfg(test)]").next().unwrap().split("\"windlass_worker_").skip(1);
    let families = table.filter_map(|rest| {
        let mut parts = rest.split('"');
        let (name, between, help) = (parts.next()?, parts.next()?, parts.next()?);
        let family = Family { kind: "gauge".to_owned(), help: help.to_owned() };
        (between.trim() == ",").then(|| (format!("windlass_worker_{name}"), family))
    });
    families.collect()
}

/// What a field of the metrics is, by its type.
fn kind(source: &str, field: &str) -> &'static str {
    let declared = source.split(&format!(" {field}: ")).nth(1).unwrap_or_else(|| panic!("no field {field}"));
    let mut kind = declared.lines().next().unwrap().trim_end_matches(',').to_owned();
    if let Some(alias) = source.split(&format!("type {kind} = ")).nth(1) {
        kind = alias.split(";\n").next().unwrap().to_owned();
    }
    ["Counter", "Histogram", "Gauge"]
        .into_iter()
        .find(|word| kind.contains(word))
        .map(|word| match word {
            "Counter" => "counter",
            "Histogram" => "histogram",
            _ => "gauge",
        })
        .unwrap_or_else(|| panic!("{field} is a {kind}"))
}

#[test]
fn the_page_of_metrics_is_the_server_s() {
    let mut page = format!("{MADE}\n# Metrics\n\n");
    page.push_str(
        "`GET /metrics` answers with these, as OpenMetrics text, to everyone who may read. A metric that has no value has no\n\
         line. [Monitoring](../board.md#metrics) explains labels and what to look at. The gateways of [Nix](../nix.md) and\n\
         [sccache](../sccache.md) add metrics of their own, `windlass_nix_…` and `windlass_sccache_…`.\n\n\
         | metric | type | meaning |\n|---|---|---|\n",
    );
    let families = registered();
    assert!(families.len() > 25, "{families:?}");
    for (name, Family { kind, help }) in &families {
        _ = writeln!(page, "| `{name}` | {kind} | {} |", super::cell(help));
    }
    compare("metrics.md", &page);
}

/// What a running server says is what the page says, as far as there are values.
#[test]
fn a_server_s_metrics_are_on_the_page() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["run", "--", "true"]);
    let mut stream = std::os::unix::net::UnixStream::connect(farm.socket()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (known, mut seen) = (registered(), 0);
    for line in answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        // Gateways' metrics are on the pages of the gateways.
        if let Some((gateway, _)) = name.trim_start_matches("windlass_").split_once('_')
            && ["nix", "sccache"].contains(&gateway)
        {
            assert!(text(&format!("docs/src/{gateway}.md")).contains(name), "{name}");
            continue;
        }
        let total = if kind == "counter" { "_total" } else { "" };
        let family = known.get(&format!("{name}{total}")).unwrap_or_else(|| panic!("{name} is not listed"));
        assert_eq!(family.kind, kind, "{name}");
        assert!(answer.contains(&format!("# HELP {name} {}", family.help)), "{name}: {family:?}");
        seen += 1;
    }
    assert!(seen > 15, "{seen}: {answer}");
}
