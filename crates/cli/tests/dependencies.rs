//! Checks licences, sources and bans of all crates in the build by `deny.toml`, and their versions by `advisories.toml`.
//! The first file is in the format of cargo-deny, which reads more of it; this test needs no other program.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn names(list: &toml::Value) -> BTreeSet<&str> {
    let name = |entry: &'static str, item| -> Option<&str> { toml::Value::get(item, entry)?.as_str() };
    let items = list.as_array().unwrap().iter();
    items.filter_map(|item| item.as_str().or(name("name", item)).or(name("crate", item))).collect()
}

/// What is wrong with one crate.
fn complaint(package: &Value, deny: &toml::Value) -> Option<String> {
    let name = package["name"].as_str().unwrap();
    for banned in deny["bans"]["deny"].as_array().unwrap() {
        // What has wrappers is for these alone.
        let is_wrapped = banned.get("wrappers").is_some();
        let banned_name = banned["name"].as_str().unwrap();
        if banned_name == name && !is_wrapped {
            return Some(format!("{name} is banned"));
        }
        let wrappers = banned.get("wrappers").map(names).unwrap_or_default();
        // Of other crates it may be one that nothing here switches on.
        let mut dependencies = package["dependencies"].as_array().into_iter().flatten();
        if package["source"].is_null()
            && is_wrapped
            && !wrappers.contains(name)
            && dependencies.any(|on| on["name"] == banned_name)
        {
            return Some(format!("{name} must not use {banned_name}"));
        }
    }
    // The workspace's own crates have none.
    let source = package["source"].as_str()?;
    let registries = names(&deny["sources"]["allow-registry"]);
    if !source.strip_prefix("registry+").is_some_and(|registry| registries.contains(registry)) {
        return Some(format!("{name} comes from {source}"));
    }
    let mut allowed = names(&deny["licenses"]["allow"]);
    for exception in deny["licenses"]["exceptions"].as_array().unwrap() {
        if exception["crate"].as_str() == Some(name) {
            allowed.extend(names(&exception["allow"]));
        }
    }
    let Some(licence) = package["license"].as_str() else { return Some(format!("{name} names no licence")) };
    let parsed = match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let fine = parsed.evaluate(|one| allowed.contains(one.to_string().as_str()));
    (!fine).then(|| format!("{name} is licensed as {licence}"))
}

#[test]
fn all_crates_have_allowed_licences_and_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let deny: toml::Value =
        toml::from_str(&std::fs::read_to_string(root.join("deny.toml")).unwrap()).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{} crates", packages.len());
    let complaints: Vec<String> = packages.iter().filter_map(|package| complaint(package, &deny)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_licence_a_source_or_a_name_that_is_not_allowed_is_found() {
    let deny: toml::Value = toml::from_str(
        r#"
        [licenses]
        allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
        exceptions = [{ allow = ["Zlib"], crate = "small" }]
        [bans]
        deny = [{ name = "banned", reason = "none" }]
        [sources]
        allow-registry = ["https://crates"]
        "#,
    )
    .unwrap();
    let said = |name: &str, licence: &str, source: &str| {
        let package = serde_json::json!({"name": name, "license": licence, "source": source});
        complaint(&package, &deny)
    };
    let here = "registry+https://crates";
    for fine in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "MIT/Apache-2.0",
        "MIT AND (MIT OR Zlib)",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert_eq!(said("any", fine, here), None, "{fine}");
    }
    assert_eq!(said("small", "Zlib", here), None);
    for refused in ["Zlib", "GPL-3.0-only", "MIT AND Zlib", "Apache-2.0", "our own"] {
        assert!(said("any", refused, here).is_some(), "{refused}");
    }
    assert!(said("banned", "MIT", here).is_some());
    assert!(said("any", "MIT", "git+https://crates").is_some());
    assert!(said("any", "MIT", "registry+https://elsewhere").is_some());
}

/// The three numbers of a version, without what follows them.
fn version(text: &str) -> [u64; 3] {
    let mut numbers = text.split(['-', '+']).next().unwrap().split('.').map(|number| number.parse().unwrap());
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// Whether a version is within the bounds, such as `>=1.0.0, <1.2.3`.
fn is_affected(at: &str, bounds: &str) -> bool {
    let at = version(at);
    bounds.split(',').map(str::trim).all(|bound| {
        match bound.split_at(bound.find(char::is_numeric).unwrap()) {
            ("<", than) => at < version(than),
            ("<=", than) => at <= version(than),
            (">=", than) => at >= version(than),
            (">", than) => at > version(than),
            ("=", than) => at == version(than),
            (other, _) => panic!("'{other}' compares nothing"),
        }
    })
}

/// What an advisory means for the crates of a lock file.
fn affected(advisory: &toml::Value, lock: &toml::Value) -> Vec<String> {
    let text = |key: &str| advisory[key].as_str().unwrap().to_owned();
    let (name, bounds) = (text("crate"), text("affected"));
    let packages = lock["package"].as_array().unwrap().iter();
    let versions = packages.filter(|package| package["name"].as_str() == Some(&name));
    let versions = versions.map(|package| package["version"].as_str().unwrap());
    versions.filter(|at| is_affected(at, &bounds)).map(|at| format!("{name} {at}: {}", text("id"))).collect()
}

#[test]
fn no_crate_has_a_known_advisory_without_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| -> toml::Value {
        toml::from_str(&std::fs::read_to_string(root.join(file)).unwrap()).unwrap()
    };
    let (known, lock, deny) = (read("advisories.toml"), read("Cargo.lock"), read("deny.toml"));
    let mut ignored: BTreeSet<&str> =
        deny["advisories"]["ignore"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    for advisory in known["advisory"].as_array().unwrap() {
        let found = affected(advisory, &lock);
        let id = advisory["id"].as_str().unwrap();
        match advisory.get("because") {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(_) => assert!(!found.is_empty(), "{id} concerns no crate any more: remove it"),
        }
        let is_ignored = ignored.remove(id);
        assert!(!is_ignored || advisory.get("because").is_some(), "{id} is ignored without a reason");
    }
    assert!(ignored.is_empty(), "deny.toml ignores what advisories.toml does not explain: {ignored:?}");
}

#[test]
fn an_advisory_concerns_the_versions_that_it_names() {
    for (at, bounds, expected) in [
        ("0.4.20", "<0.4.4", false),
        ("0.4.3", "<0.4.4", true),
        ("0.4.3-rc.1+x", "<0.4.4", true),
        ("1.3.3", ">=1.0.0", true),
        ("1.10.0", ">=1.2.0, <1.9.9", false),
        ("1.2.0", ">=1.2.0, <1.9.9", true),
        ("9.3.1", "<=9.3.1", true),
        ("9.3.1", ">9.3.1", false),
        ("2.0.0", "=2", true),
    ] {
        assert_eq!(is_affected(at, bounds), expected, "{at} {bounds}");
    }
}
