//! The page of the server's settings, from their definitions.

use super::{MADE, cell, compare};
use std::fmt::Write as _;
use windlass_server::Config;

#[test]
fn the_page_of_settings_is_the_server_s() {
    let mut page = format!("{MADE}\n# Settings of the server\n\n");
    page.push_str(
        "`server.toml` has these settings; all of them may be left out. A service reads `/etc/windlass/server.toml`, and\n\
         `windlass server start --config FILE` any other. `windlass server start --set load.max_cpu_pressure=70` sets one for\n\
         this start, and may be repeated. Every setting but those of queues and of machine classes has a variable, its path in capitals:\n\
         `WINDLASS_LOAD_MAX_CPU_PRESSURE=70`. Variables go over the file, [flags](commands.md#windlass-server-start) over\n\
         variables, and `--set` over all. In variables and in `--set` sizes and durations may have a unit, as in `2GiB` and\n\
         `12h`; lists have commas between their parts, and are added to those of the file. A setting that is not known\n\
         here, or makes no sense, keeps the server from starting, with the reason. [The server](../server.md) explains\n\
         most of them.\n",
    );
    let mut in_table = false;
    for setting in Config::default().settings() {
        let meaning = cell(setting.meaning);
        if setting.is_table() {
            if !setting.path.is_empty() {
                _ = write!(page, "\n## \\[{}\\]\n\n{meaning}\n", setting.path);
            }
            in_table = false;
            continue;
        }
        if !in_table {
            page.push_str("\n| setting | value | default | meaning |\n|---|---|---|---|\n");
        }
        in_table = true;
        let name = setting.path.rsplit('.').next().unwrap_or_default();
        let range = setting.range().map(|range| format!(" {range}")).unwrap_or_default();
        let default = setting.value.as_ref().map(|value| format!("`{value}`")).unwrap_or_default();
        _ = writeln!(page, "| `{name}` | {}{range} | {default} | {meaning} |", setting.kind);
    }
    for expected in [
        "| `keep_days` | days from 0 to 36500 | `14` |",
        "| `\"time\"` |",
        "## \\[queues.NAME\\]",
        "| `lease` | `\"never\"`, or seconds from 1 to 10000000 | `300` |",
    ] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    compare("settings.md", &page);
}
