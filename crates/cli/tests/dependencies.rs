//! Checks licences, sources and bans of all crates in the build by `deny.toml`. The file is in the format of
//! cargo-deny, which reads more of it; this test needs no other program.

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
