//! Names of testboxes. `vm-2p8g` is a virtual machine of two processors and 8 GiB, `dc-8g` a container,
//! `taishan200-2280-2s64p-256g--a61` the machine `a61` of the group before the dashes: two sockets, 64 cores,
//! 256 GiB.

use super::quantity::parse_memory;
use std::fmt;
use windlass_core::bounds::NAME_BYTES_MAX;

/// The largest number of cores in a name.
const CPUS_MAX: u32 = 65_536;

/// The kind of machine that a job asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TboxType {
    /// A whole bare-metal machine.
    Hw,
    /// A virtual machine on a provider's host.
    Vm,
    /// A container on a provider's host.
    Dc,
}

impl TboxType {
    /// The kind by the beginning of a name: everything but `vm` and `dc` is bare metal.
    pub fn of(name: &str) -> TboxType {
        match name {
            name if name.starts_with("vm") => TboxType::Vm,
            name if name.starts_with("dc") => TboxType::Dc,
            _ => TboxType::Hw,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TboxType::Hw => "hw",
            TboxType::Vm => "vm",
            TboxType::Dc => "dc",
        }
    }
}

impl fmt::Display for TboxType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A testbox, read from its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Testbox {
    /// The whole name of the testbox.
    pub name: String,
    /// The kind of machine.
    pub kind: TboxType,
    /// The name without the part that distinguishes machines of a group; the kind itself if any machine will do.
    pub group: String,
    /// The machine that it must be, or on which the guest must run; `None` is any of the group.
    pub machine: Option<String>,
    /// Cores that a guest gets or a bare-metal machine has; `None` if the name does not tell.
    pub cpus: Option<u32>,
    /// Bytes of memory that a guest gets or a bare-metal machine has; `None` if the name does not tell.
    pub memory: Option<u64>,
}

/// Why the name of a testbox is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadTestbox {
    #[error(
        "invalid testbox '{}': give up to {NAME_BYTES_MAX} letters, digits, dots, dashes, underscores or pluses",
        .0.chars().take(64).collect::<String>()
    )]
    Name(String),
    #[error("testbox '{name}': invalid size '{part}': give one such as 2p8g")]
    Size { name: String, part: String },
}

impl Testbox {
    /// Reads the name of a testbox.
    pub fn parse(name: &str) -> Result<Testbox, BadTestbox> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
            return Err(BadTestbox::Name(name.to_owned()));
        }
        let kind = TboxType::of(name);
        let bad = |part: &str| BadTestbox::Size { name: name.to_owned(), part: part.to_owned() };
        if kind == TboxType::Hw {
            let group = group_of(name);
            let (cpus, memory) = match group.rsplit_once('-') {
                Some((model, size)) if is_memory(size) => {
                    let sockets = model.rsplit_once('-').map_or(model, |(_, last)| last);
                    let cores = sockets.split_once('s').filter(|(n, _)| is_number(n));
                    let cores = cores.and_then(|(_, rest)| rest.strip_suffix('p')).filter(|n| is_number(n));
                    let cpus = cores.map(|cores| cpus(cores).ok_or_else(|| bad(cores))).transpose()?;
                    (cpus, Some(memory(size).ok_or_else(|| bad(size))?))
                }
                _ => (None, None),
            };
            let one = name != group;
            let (name, group, machine) = (name.to_owned(), group.to_owned(), one.then(|| name.to_owned()));
            return Ok(Testbox { name, kind, group, machine, cpus, memory });
        }
        // A guest may be named with its number and its host: vm-2p8g-1.taishan200--a61.
        let (guest, host) = name.split_once('.').map_or((name, None), |(guest, host)| (guest, Some(host)));
        let mut parts = guest.split('-');
        let sort = parts.next().unwrap_or_default();
        let Some(size) = parts.next().filter(|size| size.starts_with(|c: char| c.is_ascii_digit())) else {
            let machine = host.map(str::to_owned);
            let (name, group) = (name.to_owned(), guest.to_owned());
            return Ok(Testbox { name, kind, group, machine, cpus: None, memory: None });
        };
        let (cores, rest) = match size.split_once('p') {
            Some((cores, rest)) => (Some(cpus(cores).ok_or_else(|| bad(size))?), rest),
            None => (None, size),
        };
        let memory = match rest {
            "" if cores.is_some() => None,
            rest if is_memory(rest) => Some(memory(rest).ok_or_else(|| bad(size))?),
            _ => return Err(bad(size)),
        };
        Ok(Testbox {
            name: name.to_owned(),
            kind,
            group: format!("{sort}-{size}"),
            machine: host.map(str::to_owned),
            cpus: cores,
            memory,
        })
    }

    /// True if any machine of its kind will do.
    pub fn is_any(&self) -> bool {
        self.machine.is_none() && (self.kind != TboxType::Hw || self.name == "hw")
    }
}

/// The group of a machine: its name up to the double dash before the laboratory's number, or up to a dot.
pub(crate) fn group_of(machine: &str) -> &str {
    let end = [machine.find("--"), machine.find('.')].into_iter().flatten().min();
    &machine[..end.filter(|end| *end > 0).unwrap_or(machine.len())]
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_memory(text: &str) -> bool {
    text.strip_suffix(['g', 'G']).is_some_and(is_number)
}

fn cpus(text: &str) -> Option<u32> {
    is_number(text).then(|| text.parse().ok()).flatten().filter(|n| (1..=CPUS_MAX).contains(n))
}

fn memory(text: &str) -> Option<u64> {
    parse_memory(text).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(name: &str) -> (TboxType, String, Option<String>, Option<u32>, Option<u64>) {
        let Testbox { kind, group, machine, cpus, memory, .. } = Testbox::parse(name).unwrap();
        (kind, group, machine, cpus, memory.map(|bytes| bytes >> 30))
    }

    #[test]
    fn sizes_are_in_the_names() {
        let none = || None::<String>;
        assert_eq!(parts("vm-2p8g"), (TboxType::Vm, "vm-2p8g".into(), none(), Some(2), Some(8)));
        assert_eq!(parts("vm-8g"), (TboxType::Vm, "vm-8g".into(), none(), None, Some(8)));
        assert_eq!(parts("dc-8g"), (TboxType::Dc, "dc-8g".into(), none(), None, Some(8)));
        assert_eq!(parts("dc-4p16g"), (TboxType::Dc, "dc-4p16g".into(), none(), Some(4), Some(16)));
        assert_eq!(parts("vm"), (TboxType::Vm, "vm".into(), none(), None, None));
        assert_eq!(parts("hw"), (TboxType::Hw, "hw".into(), none(), None, None));
        let group = "taishan200-2280-2s64p-256g";
        assert_eq!(parts(group), (TboxType::Hw, group.into(), none(), Some(64), Some(256)));
        let machine = "taishan200-2280-2s64p-256g--a61";
        assert_eq!(parts(machine), (TboxType::Hw, group.into(), Some(machine.into()), Some(64), Some(256)));
        let guest = "vm-2p8g-3.taishan200-2280-2s64p-256g--a101";
        let host = Some("taishan200-2280-2s64p-256g--a101".to_owned());
        assert_eq!(parts(guest), (TboxType::Vm, "vm-2p8g".into(), host, Some(2), Some(8)));
    }

    #[test]
    fn what_will_do_is_told_apart() {
        for any in ["hw", "vm", "dc", "vm-8g", "dc-2p4g"] {
            assert!(Testbox::parse(any).unwrap().is_any(), "{any}");
        }
        for some in ["taishan200-2280-2s64p-256g", "taishan200--a61", "vm-8g.host1"] {
            assert!(!Testbox::parse(some).unwrap().is_any(), "{some}");
        }
    }

    #[test]
    fn bad_names_are_refused_with_the_part_that_is_bad() {
        for bad in ["", "vm 2p", "a/b", "vm-2p8g\n", &"x".repeat(256), "vm-\u{e9}"] {
            assert!(matches!(Testbox::parse(bad), Err(BadTestbox::Name(_))), "{bad}");
        }
        for bad in ["vm-0p8g", "dc-0g", "vm-99999999p8g", "vm-2p99999999999g", "vm-2x", "x-2s0p-8g"] {
            let error = Testbox::parse(bad).unwrap_err();
            assert!(matches!(&error, BadTestbox::Size { .. }), "{bad}: {error:?}");
            assert!(error.to_string().contains(bad), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_testbox_or_an_error(name in ".*") {
            if let Ok(read) = Testbox::parse(&name) {
                prop_assert!(!read.group.is_empty() && read.name == name);
            }
        }

        #[test]
        fn near_names_are_too(name in "(vm|dc|hw|tai)?[-.]{0,3}[0-9]{0,12}[psg]?[0-9]{0,12}[psg]?(--|\\.)?[a-z0-9]{0,4}") {
            if let Ok(read) = Testbox::parse(&name) {
                prop_assert!(read.cpus != Some(0) && read.memory != Some(0));
            }
        }
    }
}
