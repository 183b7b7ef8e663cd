//! Packages: the files for the file store and the archives of test programs that a submission brings.

use crate::files::{DISK_FREE_BYTES, FileError, Files, InnerPath, LabDir};
use crate::format::{BadJob, Fields, bad_field, md5_of, scalar, text_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Files of the file store that one job may name.
const NEEDED_MAX: usize = 1_000;
/// Files, or archives, that one submission brings.
const PACKAGES_MAX: usize = 64;
/// The directory of packages that Compass CI's own server would build.
const BUILT: &str = "ss/pkgbuild/";

/// Why the packages of a submission are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    #[error(transparent)]
    Bad(#[from] BadJob),
    #[error("the file store lacks {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("the contents of {} are not here", .0.join(", "))]
    Retry(Vec<String>),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the disk of the server's directory of files is full")]
    DiskFull,
}

impl PackageError {
    /// The answer to clients, which then submit the job with the files that it names.
    pub fn body(&self) -> Value {
        match self {
            PackageError::Missing(paths) => {
                json!([{"error": "no_file_store", "no_file_store": paths, "message": self.to_string()}])
            }
            // Clients read the names from the text.
            PackageError::Retry(names) => {
                json!([{"message": json!(names).to_string(), "errcode": "RETRY_UPLOAD"}])
            }
            error => json!([{"job_id": "0", "job_state": "submit", "message": error.to_string()}]),
        }
    }

    /// True if the fault is the server's and not the job's.
    pub fn is_server_fault(&self) -> bool {
        matches!(self, PackageError::File(_) | PackageError::DiskFull)
    }
}

impl Files {
    /// Stores a submission's packages, removes them from the fields, and checks that no needed file is missing. A
    /// `trusted` submitter may store files that other users' machines boot.
    pub fn take_packages(&self, fields: &mut Fields, trusted: bool) -> Result<(), PackageError> {
        let trusted = trusted || self.options.shared_uploads;
        let needed = needed_files(fields)?;
        let brought = fields.remove("upload_file_store");
        let brought = brought.as_ref().and_then(Value::as_object);
        let archives = fields.get("pkg_data").and_then(Value::as_object);
        for (name, all) in [("upload_file_store", brought), ("pkg_data", archives)] {
            if all.is_some_and(|all| all.len() > PACKAGES_MAX) {
                let why =
                    format!("has more than {PACKAGES_MAX} entries; send the files in several submissions");
                return Err(bad_field(name, why).into());
            }
        }
        for (path, content) in brought.into_iter().flatten() {
            self.store(path, content, trusted)?;
        }
        self.take_archives(fields)?;
        let Some(dir) = self.dir() else {
            return match needed.first() {
                None => Ok(()),
                Some(_) => Err(no_directory("need_file_store")),
            };
        };
        let missing: Vec<String> =
            needed.into_iter().filter(|path| !dir.has(&format!("file-store/{path}"))).collect();
        check_built(fields, &missing)?;
        if missing.is_empty() { Ok(()) } else { Err(PackageError::Missing(missing)) }
    }

    /// Refuses a job that names no kernel if the server has no directory of files.
    pub fn check_kernel(&self, fields: &Fields) -> Result<(), BadJob> {
        let container = text_of(fields, "os_mount").as_deref() == Some("container");
        if container || self.dir().is_some() || text_of(fields, "kernel_uri").is_some() {
            return Ok(());
        }
        let why = "is missing, and this server has no directory of files with kernels; give it, or set srv of \
                   [compass] in the server's settings";
        Err(BadJob::Field { field: "kernel_uri".to_owned(), why: why.to_owned() })
    }

    /// Stores a file of the file store. Any submitter may bring a file that is named by its MD5 sum, because the sum
    /// proves its content.
    fn store(&self, path: &str, content: &Value, trusted: bool) -> Result<(), PackageError> {
        let name = format!("upload_file_store: {path}");
        let inner = file_of_store(path).ok_or_else(|| bad_field(&name, "is not a path of the file store"))?;
        let bytes = content.as_str().map(|text| STANDARD.decode(text.replace(['\n', '\r'], "")));
        let bytes = match bytes {
            Some(Ok(bytes)) => bytes,
            _ => return Err(bad_field(&name, "must be the file's content in base64").into()),
        };
        match sum_in(path) {
            Some(sum) if sum != md5_of(&bytes) => {
                return Err(bad_field(&name, "has another MD5 sum than its name says").into());
            }
            None if !trusted => {
                let why = "is not named by its MD5 sum (NAME-SUM.cgz), and other users' machines may boot it: an \
                           administrator puts it there, or sets shared_uploads of [compass]";
                return Err(bad_field(&name, why).into());
            }
            _ => {}
        }
        let Some(dir) = self.dir() else { return Err(no_directory("upload_file_store")) };
        put(dir, &inner, &bytes)
    }

    /// Stores the archives of `pkg_data` under their MD5 sums.
    fn take_archives(&self, fields: &mut Fields) -> Result<(), PackageError> {
        let newer = fields.contains_key("need_file_store");
        let Some(packages) = fields.get_mut("pkg_data").and_then(Value::as_object_mut) else { return Ok(()) };
        let mut lacking = Vec::new();
        for (repo, package) in packages {
            let Some(package) = package.as_object_mut() else { continue };
            let content = package.remove("content");
            if newer {
                continue;
            }
            let name = format!("pkg_data.{repo}");
            let sum = match (text_of(package, "md5"), &content) {
                (Some(sum), _) => sum,
                // The tag names an archive that an administrator stored.
                (None, None) => continue,
                (None, Some(_)) => return Err(bad_field(&name, "has a content and no md5").into()),
            };
            let hexadecimal = sum.len() == 32 && sum.bytes().all(|b| b.is_ascii_hexdigit());
            let path = hexadecimal.then(|| format!("scheduler/upload-files/{repo}/{}/{sum}.cgz", &sum[..2]));
            let inner = path.as_deref().filter(|_| !repo.contains('/')).and_then(InnerPath::parse);
            let (Some(inner), Some(path)) = (inner, path) else {
                return Err(bad_field(&name, "must have a plain name and an MD5 sum in hexadecimal").into());
            };
            let Some(dir) = self.dir() else { return Err(no_directory("pkg_data")) };
            match content.as_ref().and_then(Value::as_str) {
                Some(text) => {
                    let bytes = STANDARD.decode(text.replace(['\n', '\r'], ""));
                    let bytes = bytes.map_err(|_| bad_field(&name, "must have its content in base64"))?;
                    if md5_of(&bytes) != sum.to_ascii_lowercase() {
                        return Err(bad_field(&name, "has another MD5 sum than it says").into());
                    }
                    put(dir, &inner, &bytes)?;
                }
                None if dir.has(&path) => {}
                None => lacking.push(repo.clone()),
            }
        }
        if lacking.is_empty() { Ok(()) } else { Err(PackageError::Retry(lacking)) }
    }
}

/// Writes a file unless it exists.
fn put(dir: &LabDir, path: &InnerPath, bytes: &[u8]) -> Result<(), PackageError> {
    if dir.is_full(DISK_FREE_BYTES) {
        return Err(PackageError::DiskFull);
    }
    match dir.write(path, bytes) {
        Ok(()) | Err(FileError::Exists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The files of the file store that a job names.
fn needed_files(fields: &Fields) -> Result<Vec<String>, BadJob> {
    let all = fields.get("need_file_store").and_then(Value::as_array);
    let all: Vec<String> = all.into_iter().flatten().filter_map(scalar).collect();
    if all.len() > NEEDED_MAX {
        return Err(bad_field(
            "need_file_store",
            format!("has {} entries, more than {NEEDED_MAX}", all.len()),
        ));
    }
    match all.iter().find(|path| file_of_store(path).is_none()) {
        Some(path) => Err(bad_field("need_file_store", format!("'{path}' is not a path of the file store"))),
        None => Ok(all),
    }
}

/// Refuses a job whose packages would have to be built, because this server does not build packages.
fn check_built(fields: &Fields, missing: &[String]) -> Result<(), BadJob> {
    for package in fields.get("ss").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name) {
        if let Some(path) = missing.iter().find(|path| path.starts_with(&format!("{BUILT}{package}/"))) {
            let why = format!(
                "{path} is not in the file store, and this server does not build packages (pkgbuild); build it, and \
                 put it into file-store of the server's directory of files"
            );
            return Err(bad_field(&format!("ss.{package}"), why));
        }
    }
    Ok(())
}

/// A path of the file store, beneath the directory. Its characters are safe in a boot script.
fn file_of_store(path: &str) -> Option<InnerPath> {
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./@+=,:~-".contains(&b));
    InnerPath::parse(&format!("file-store/{path}")).filter(|_| plain)
}

/// The MD5 sum in a file's name.
fn sum_in(path: &str) -> Option<&str> {
    let (_, sum) = path.strip_suffix(".cgz")?.rsplit_once('-')?;
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (sum.len() == 32 && sum.bytes().all(lower)).then_some(sum)
}

fn no_directory(name: &str) -> PackageError {
    bad_field(
        name,
        "needs a directory of files, and this server has none: set srv of [compass] in its settings",
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CompassOptions;
    use proptest::prelude::*;

    fn files(dir: &std::path::Path) -> Files {
        Files::open(CompassOptions { srv: Some(dir.to_owned()), ..CompassOptions::new(dir.join("key")) })
            .unwrap()
    }

    fn taken(files: &Files, job: Value, trusted: bool) -> Result<Fields, PackageError> {
        let mut fields = job.as_object().unwrap().clone();
        files.take_packages(&mut fields, trusted).map(|()| fields)
    }

    #[test]
    fn a_client_is_told_what_to_send_and_sends_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let path = format!("lkp_src/delta/2025-02-28/abc-{}.cgz", md5_of(b"delta"));
        let job = json!({"need_file_store": [path, "boot2os/x/vmlinuz"]});
        let error = taken(&files, job.clone(), false).unwrap_err();
        assert_eq!(error.body()[0]["no_file_store"], job["need_file_store"]);
        let send = |path: &str, content: &str, trusted| {
            let more =
                json!({"need_file_store": [path], "upload_file_store": {path: STANDARD.encode(content)}});
            taken(&files, more, trusted)
        };
        assert!(send(&path, "other", true).unwrap_err().to_string().contains("another MD5 sum"));
        assert!(send("boot2os/x/vmlinuz", "evil", false).unwrap_err().to_string().contains("administrator"));
        for bad in ["../x", "a/../../x", "/etc/x", "a b", "a\nb"] {
            let error = send(bad, "x", true).unwrap_err().to_string();
            assert!(error.contains("is not a path"), "{bad}: {error}");
        }
        let fields = send(&path, "delta", false).unwrap();
        assert!(fields.get("upload_file_store").is_none());
        send("boot2os/x/vmlinuz", "kernel", true).unwrap();
        send("boot2os/x/vmlinuz", "other", true).unwrap();
        assert_eq!(files.dir().unwrap().text("file-store/boot2os/x/vmlinuz", 99).as_deref(), Some("kernel"));
        taken(&files, job, false).unwrap();
    }

    #[test]
    fn archives_are_kept_by_their_sums() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let sum = md5_of(b"lkp");
        let job = |more: Value| {
            let mut package = json!({"tag": "v1", "md5": sum});
            package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"pkg_data": {"lkp-tests": package}})
        };
        let error = taken(&files, job(json!({})), false).unwrap_err();
        assert_eq!(error.body(), json!([{"message": "[\"lkp-tests\"]", "errcode": "RETRY_UPLOAD"}]));
        assert!(taken(&files, job(json!({"content": STANDARD.encode("x")})), false).is_err());
        assert!(taken(&files, job(json!({"md5": "../../../x"})), false).is_err());
        let fields = taken(&files, job(json!({"content": STANDARD.encode("lkp")})), false).unwrap();
        assert_eq!(fields["pkg_data"]["lkp-tests"], json!({"tag": "v1", "md5": sum}));
        taken(&files, job(json!({})), false).unwrap();
    }

    #[test]
    fn missing_built_packages_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let job = json!({"ss": {"linux": {"config": "defconfig"}}, "need_file_store": ["ss/pkgbuild/linux/x/vmlinuz"]});
        let error = taken(&files(dir.path()), job, true).unwrap_err().to_string();
        assert!(error.contains("ss.linux") && error.contains("does not build packages"), "{error}");
        let without = Files::open(CompassOptions::new(dir.path().join("key"))).unwrap();
        for (job, why) in [
            (json!({"kernel_uri": "k", "need_file_store": ["x"]}), "set srv of [compass]"),
            (json!({"upload_file_store": {"a": "eA=="}}), "set srv of [compass]"),
        ] {
            let error = taken(&without, job, true).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let kernel = |job: Value| without.check_kernel(job.as_object().unwrap());
        assert!(kernel(json!({"os_mount": "container"})).is_ok());
        assert!(
            kernel(json!({"os_mount": "nfs"})).unwrap_err().to_string().contains("kernel_uri: is missing")
        );
    }

    proptest! {
        #[test]
        fn any_package_is_taken_or_refused(path in "[a-z./ -]{0,16}", content in ".{0,16}", sum in "[0-9a-f./]{0,33}") {
            let dir = tempfile::tempdir().unwrap();
            let inner = dir.path().join("srv");
            std::fs::create_dir(&inner).unwrap();
            let job = json!({"upload_file_store": {path.clone(): content.clone()},
                "pkg_data": {path: {"md5": sum, "content": content}}});
            _ = taken(&files(&inner), job, true);
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing beside the directory");
        }
    }
}
