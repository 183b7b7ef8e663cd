//! The machines of Nix's setting `builders`.

use super::files::read_bounded;
use crate::wire::{MACHINES_MAX, Machine, host};
use std::path::Path;

/// Bytes of a file of machines.
const FILE_BYTES_MAX: usize = 1 << 20;
/// The depth to which files of machines may name other files.
const DEPTH_MAX: u32 = 8;

/// A machine, with the keys that its client needs to reach it.
#[derive(Clone, PartialEq, Debug)]
pub struct Builder {
    /// The machine as the server knows it.
    pub machine: Machine,
    /// The file with the client's key for it, or `-`.
    key: String,
    /// The machine's public host key, or `-`.
    host_key: String,
}

impl Builder {
    /// True if the machine has this address.
    fn is_at(&self, uri: &str) -> bool {
        host(&self.machine.uri) == host(uri)
    }
}

/// Why a machine gets no line. Nix's own hook may run as root, so it is told a machine's address and nothing else that
/// comes from the server.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadLine {
    #[error(
        "the server names the machine {0:?}, and only ssh://[USER@]HOST[:PORT] and ssh-ng://[USER@]HOST[:PORT] \
         are taken from it; what else a machine needs belongs into 'builders'"
    )]
    Address(String),
    #[error("{0:?} cannot be the name of a system or feature in 'builders'")]
    Word(String),
}

/// The line of `builders` by which Nix's own hook builds one derivation on the machine with this URI. It is the
/// client's own line if it has one for the host. The server counts the slots, and has checked that the machine fits.
pub fn line_for(
    builders: &[Builder],
    uri: &str,
    system: &str,
    features: &[String],
) -> Result<String, BadLine> {
    check_words(system, features)?;
    let own = builders.iter().find(|builder| builder.machine.uri == uri);
    let (uri, key, host_key) = match own.or_else(|| builders.iter().find(|builder| builder.is_at(uri))) {
        Some(own) => (own.machine.uri.as_str(), own.key.as_str(), own.host_key.as_str()),
        None if is_ssh(uri) => (uri, "-", "-"),
        None => return Err(BadLine::Address(uri.chars().take(200).collect())),
    };
    let features = if features.is_empty() { "-".to_owned() } else { features.join(",") };
    Ok(format!("{uri} {system} {key} 64 1 {features} - {host_key}"))
}

/// Checks that a line can name this system and these features.
///
/// # Errors
///
/// Names the first word that a line cannot contain.
pub fn check_words(system: &str, features: &[String]) -> Result<(), BadLine> {
    for word in std::iter::once(system).chain(features.iter().map(String::as_str)) {
        let is_plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b));
        if word.is_empty() || word == "-" || !is_plain {
            return Err(BadLine::Word(word.chars().take(200).collect()));
        }
    }
    Ok(())
}

/// True for `ssh://[USER@]HOST[:PORT]`, also with `ssh-ng`, in plain characters. Neither user nor host begins with a
/// dash, because ssh would take such a word for an option.
pub fn is_ssh(uri: &str) -> bool {
    let Some(place) = uri.strip_prefix("ssh://").or_else(|| uri.strip_prefix("ssh-ng://")) else {
        return false;
    };
    let (user, place) = place.split_once('@').map_or((None, place), |(user, place)| (Some(user), place));
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with('-')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0) && !port.starts_with('+');
    let is_v6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
    let is_host = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => is_v6(host),
        Some((host, port)) => is_v6(host) && port.strip_prefix(':').is_some_and(is_port),
        None => match place.split_once(':') {
            Some((host, port)) => is_name(host) && is_port(port),
            None => is_name(place),
        },
    };
    is_host && user.is_none_or(is_name)
}

/// Reads the setting; `system` is the client's own. Lines that cannot be read are left out, because Nix's own hook
/// refuses them with a better message.
pub fn read(setting: &str, system: &str) -> Vec<Builder> {
    let mut builders = Vec::new();
    add(setting, system, DEPTH_MAX, &mut builders);
    builders
}

fn add(text: &str, system: &str, depth: u32, builders: &mut Vec<Builder>) {
    for line in text.split(['\n', ';']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if builders.len() >= MACHINES_MAX {
            return;
        }
        match line.strip_prefix('@') {
            Some(file) if depth > 0 => {
                let read = read_bounded(Path::new(file.trim()), FILE_BYTES_MAX);
                let read = read.ok().and_then(|bytes| String::from_utf8(bytes).ok());
                add(&read.unwrap_or_default(), system, depth - 1, builders);
            }
            Some(_) => {}
            None => builders.extend(one(line, system)),
        }
    }
}

fn one(line: &str, system: &str) -> Option<Builder> {
    let mut fields = line.split_ascii_whitespace();
    let uri = fields.next()?;
    let mut field = || fields.next().filter(|field| *field != "-");
    let list = |text: Option<&str>| -> Vec<String> {
        text.into_iter()
            .flat_map(|text| text.split(','))
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let systems = list(Some(field().unwrap_or(system)));
    let key = field().unwrap_or("-").to_owned();
    let max_jobs = field().map_or(Some(1), |n| n.parse().ok())?;
    let speed = field().map_or(Some(1.0), |n| n.parse().ok())?;
    let machine = Machine {
        uri: full_uri(uri),
        systems,
        max_jobs,
        speed: if speed > 0.0 && speed < 1e9 { speed } else { 1.0 },
        supported: list(field()),
        mandatory: list(field()),
    };
    Some(Builder { machine, key, host_key: field().unwrap_or("-").to_owned() })
}

/// The URI of a machine. A bare host is reached by ssh.
fn full_uri(uri: &str) -> String {
    let is_store = ["local", "remote", "auto", "daemon"]
        .iter()
        .any(|kind| uri.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('?')));
    if uri.contains("://") || uri.contains('/') || is_store { uri.to_owned() } else { format!("ssh://{uri}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write as _;

    #[test]
    fn lines_are_read_as_nix_reads_them() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            file,
            "# a farm\nssh-ng://u@b2:22?compress=true i686-linux,x86_64-linux /k 4 2.5 kvm,perf perf AAAA"
        )
        .unwrap();
        let text = format!("b1; ssh://b3 - - 0\n@{}\nssh://b4 x y not-a-number", file.path().display());
        let all = read(&text, "x86_64-linux");
        let uris: Vec<&str> = all.iter().map(|b| b.machine.uri.as_str()).collect();
        assert_eq!(uris, ["ssh://b1", "ssh://b3", "ssh-ng://u@b2:22?compress=true"]);
        assert_eq!((all[0].machine.max_jobs, all[1].machine.max_jobs), (1, 0));
        assert_eq!(all[0].machine.systems, ["x86_64-linux"]);
        let b2 = &all[2].machine;
        assert_eq!((b2.max_jobs, b2.speed, b2.systems.len()), (4, 2.5, 2));
        assert_eq!(
            (b2.supported.as_slice(), b2.mandatory.as_slice()),
            (&["kvm".to_owned(), "perf".to_owned()][..], &["perf".to_owned()][..])
        );
        let kvm = ["kvm".to_owned()];
        let line = line_for(&all, "ssh-ng://b2", "x86_64-linux", &kvm).unwrap();
        assert_eq!(line, "ssh-ng://u@b2:22?compress=true x86_64-linux /k 64 1 kvm - AAAA");
        let line = line_for(&all, "ssh-ng://b9", "i686-linux", &[]).unwrap();
        assert_eq!(line, "ssh-ng://b9 i686-linux - 64 1 - - -");
    }

    #[test]
    fn a_server_names_machines_and_nothing_else() {
        for good in [
            "ssh://b1",
            "ssh-ng://nix@b1.example:2222",
            "ssh://10.0.0.1",
            "ssh-ng://[::1]:22",
            "ssh://[fe80::1]",
        ] {
            assert!(is_ssh(good), "{good}");
        }
        let bad = [
            "farm",
            "farm?x=1",
            "local",
            "daemon",
            "unix:///tmp/x.sock",
            "file:///tmp/x",
            "auto",
            "b1",
            "",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-u@b1",
            "ssh://b1?remote-program=x",
            "ssh://b1 x",
            "ssh://b1\nx",
            "ssh://b1;x",
            "ssh://b1#x",
            "ssh://b1/x",
            "ssh://a@b@c",
            "ssh://b1:0",
            "ssh://b1:+1",
            "ssh://b1:99999",
            "ssh://[b1]",
            "ssh://[::1]x",
            "ssh://@b1",
            "ssh://b1,b2",
            "ssh-ng://b1?base64-ssh-public-host-key=AAAA",
        ];
        for bad in bad {
            let line = line_for(&[], bad, "x86_64-linux", &[]);
            assert!(matches!(line, Err(BadLine::Address(_))), "{bad:?}");
        }
        let word = |word: &str| line_for(&[], "ssh://b1", word, &[]).is_err();
        assert!(["", "-", "a b", "a\nb", "a,b", "a;b", "#", "@/etc"].into_iter().all(word));
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[@#;\\n a-z0-9,:/?-]{0,200}") {
            let all = read(&text, "x86_64-linux");
            prop_assert!(all.len() <= MACHINES_MAX && all.iter().all(|b| !b.machine.uri.is_empty()));
        }

        /// Nix splits `builders` at line breaks and semicolons, a line at white space, and reads the file behind an `@`.
        #[test]
        fn a_line_is_eight_fields_whatever_the_server_says(
            setting in "[@#;\\n a-z0-9,:/?-]{0,80}",
            uri in prop_oneof![".{0,40}", "ssh(-ng)?://[-@:;#?=\\n a-z0-9\\[\\]]{0,20}"],
            system in prop_oneof![Just("x86_64-linux".to_owned()), ".{0,10}"],
            features in prop::collection::vec(prop_oneof![Just("kvm".to_owned()), ".{0,6}"], 0..3),
        ) {
            let own = read(&setting, "x86_64-linux");
            let Ok(line) = line_for(&own, &uri, &system, &features) else { return Ok(()) };
            prop_assert!(!line.contains(['\n', ';', '#', '\r', '\t']), "{line:?}");
            let fields: Vec<&str> = line.split(' ').collect();
            prop_assert!(fields.len() == 8 && fields.iter().all(|field| !field.is_empty()), "{line:?}");
            prop_assert!(!fields[0].starts_with('@'), "{line:?}");
            let is_own = own.iter().any(|builder| builder.machine.uri == fields[0]);
            prop_assert!(is_own || (is_ssh(fields[0]) && fields[2] == "-" && fields[7] == "-"), "{line:?}");
        }
    }
}
