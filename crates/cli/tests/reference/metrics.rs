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

/// The calls by which the server names metrics: the kind of what each makes, and what it puts around the name.
const CALLS: [(&str, &str, &str, &str); 5] = [
    ("counter(", "counter", "windlass_", "_total"),
    ("seconds(", "histogram", "windlass_", "_seconds"),
    ("counts(", "histogram", "windlass_", ""),
    ("errors(", "histogram", "windlass_", ""),
    // Gauges stand in tables too, by their whole names.
    ("(", "gauge", "", ""),
];

/// The server's metrics by their names in the text.
fn registered() -> BTreeMap<String, Family> {
    let mut found = BTreeMap::new();
    for file in ["metrics.rs", "figures/worker_metrics.rs"] {
        let source = text(&format!("crates/server/src/{file}"));
        for (call, kind, before, after) in CALLS {
            for (at, _) in source.match_indices(call) {
                let parts: Vec<&str> = source[at + call.len()..].splitn(5, '"').collect();
                let [opening, name, between, help, _] = parts[..] else { continue };
                // Definitions and other calls have no two literals.
                let is_gauge = kind == "gauge";
                if !["", "r,"].contains(&opening.trim())
                    || between.trim() != ","
                    || (is_gauge && !name.starts_with("windlass_"))
                {
                    continue;
                }
                let family = Family { kind: kind.to_owned(), help: help.to_owned() };
                found.insert(format!("{before}{name}{after}"), family);
            }
        }
    }
    found
}

#[test]
fn the_page_of_metrics_is_the_server_s() {
    let mut page = format!("{MADE}\n# Metrics\n\n");
    page.push_str(
        "`GET /metrics` answers with these, as OpenMetrics text, to everyone who may read. A metric that has no value has no\n\
         line. [Monitoring](../board.md#metrics) explains labels and what to look at. The gateways of [Nix](../nix.md) and\n\
         [sccache](../sccache.md) and [the remote cache](../cache.md#metrics) add metrics of their own, `windlass_nix_…`,\n\
         `windlass_sccache_…` and `windlass_cas_…`.\n\n\
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
        let page = match name.trim_start_matches("windlass_").split_once('_') {
            Some(("nix", _)) => Some("nix"),
            Some(("sccache", _)) => Some("sccache"),
            Some(("cas", _)) => Some("cache"),
            _ => None,
        };
        if let Some(page) = page {
            assert!(text(&format!("docs/src/{page}.md")).contains(name), "{name}");
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
