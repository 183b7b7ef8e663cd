//! Directories besides its results to which a job uploads, by its programs. Other jobs boot from there, so an
//! administrator has to allow such uploads for the whole laboratory.

use crate::format::{Fields, text_of};
use serde_json::Value;

/// Programs that build packages.
const BUILDERS: [&str; 6] = ["makepkg", "cci-makepkg", "cci-depends", "build-pkg", "pkgbuild", "rpmbuild"];
/// Directories of jobs that have this field.
const BY_FIELD: [(&str, &str); 5] = [
    ("sysbench-mysql", "initrd/build-pkg"),
    ("benchmark-sql", "initrd/build-pkg"),
    ("hpc-build", "kunpeng"),
    ("gather-profile", "cci/profile"),
    ("rpm2vmlinuz", "kernel"),
];

/// The directories beneath `/srv` to which a job with these fields uploads, besides its results.
pub(crate) fn upload_dirs(fields: &Fields) -> Vec<String> {
    let by_field = BY_FIELD.iter().filter(|(field, _)| fields.contains_key(*field));
    let mut dirs: Vec<String> = by_field.map(|(_, dir)| (*dir).to_owned()).collect();
    let pp = fields.get("pp").and_then(Value::as_object);
    let Some((name, params)) = BUILDERS.iter().find_map(|name| Some((*name, pp?.get(*name)?.as_object()?)))
    else {
        return dirs;
    };
    let word = |key: &str| text_of(params, key).or_else(|| text_of(fields, key)).unwrap_or_default();
    let mount = if word("os_mount") == "cifs" { "nfs".to_owned() } else { word("os_mount") };
    let place = format!("{mount}/{}/{}/{}", word("os"), word("os_arch"), word("os_version"));
    match name {
        "makepkg" => dirs.push("file-store/ss".to_owned()),
        "cci-makepkg" => dirs.push(format!("initrd/pkg/{place}/{}", word("benchmark"))),
        "cci-depends" => dirs.push(format!("initrd/deps/{place}/{}", word("benchmark"))),
        "rpmbuild" => dirs.push(format!("rpm/upload/{}-{}", word("os"), word("os_version"))),
        _ => {
            let repository = word("upstream_repo");
            let package = repository.rsplit('/').next().unwrap_or_default();
            if !package.is_empty() {
                dirs.push(format!("initrd/build-pkg/{place}/{package}"));
            }
        }
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_that_build_have_their_directories() {
        let dirs = |pp: Value| {
            let job = json!({"os": "debian", "os_version": "12", "os_arch": "x86_64", "os_mount": "cifs", "pp": pp});
            upload_dirs(job.as_object().unwrap())
        };
        assert!(dirs(json!({"iperf": {"runtime": 1}})).is_empty());
        assert_eq!(dirs(json!({"makepkg": {"project": "x"}})), ["file-store/ss"]);
        let built = dirs(json!({"cci-makepkg": {"benchmark": "iperf"}}));
        assert_eq!(built, ["initrd/pkg/nfs/debian/x86_64/12/iperf"]);
        let built = dirs(json!({"build-pkg": {"upstream_repo": "l/linux/linux"}}));
        assert_eq!(built, ["initrd/build-pkg/nfs/debian/x86_64/12/linux"]);
    }
}
