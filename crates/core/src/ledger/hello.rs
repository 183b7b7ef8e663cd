//! What workers say: how they introduce themselves, what they hold, and which attempt a report is about.

use crate::bounds;
use crate::ids::{Epoch, TaskId, WorkerId};
use crate::resources::Resources;
use crate::tags::{Attributes, EXCLUSIVE, EXECUTOR, SERVES};
use crate::time::Time;
use crate::worker::Origin;

/// Systems whose outside clients a worker may serve. Attributes that begin with the word of one and a dot belong to it.
pub const SERVABLE: [&str; 2] = ["nix", "sccache"];

/// How a worker introduces itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Hello {
    /// Unique on the farm.
    pub name: String,
    /// The machine's own number, kept on it: another under the same name is another machine.
    pub identity: u64,
    /// The keeper's own number. Another number than before says that the earlier keeper and all that
    /// ran under it has ended, which the agent made sure of.
    pub incarnation: u64,
    /// Its keeper ends all tasks when its lease runs out.
    pub fences: bool,
    /// The worker's clock when it sent this, given back with the lease.
    pub sent: u64,
    /// Said over another connection than the name's last hello.
    pub new_link: bool,
    /// What it has.
    pub capacity: Resources,
    /// What it is.
    pub attributes: Attributes,
    /// What it holds.
    pub inventory: Inventory,
}

impl Hello {
    /// A machine of that number, with a keeper of the same number, over a new connection. It has no lease and no
    /// attributes, and runs nothing.
    pub fn new(name: &str, number: u64, capacity: Resources) -> Self {
        Hello {
            name: name.to_owned(),
            identity: number,
            incarnation: number,
            fences: false,
            sent: 0,
            new_link: true,
            capacity,
            attributes: Attributes::default(),
            inventory: Inventory::default(),
        }
    }
}

/// Which attempt a worker's report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Who says so.
    pub worker: WorkerId,
    /// The worker's epoch when the attempt was sent to it.
    pub epoch: Epoch,
    /// The task.
    pub task: TaskId,
    /// The attempt's number.
    pub attempt: u32,
}

/// What a worker holds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inventory {
    /// The largest number of a message that it has seen.
    pub seq: u64,
    /// The attempts that it knows of and that were not acknowledged.
    pub held: Vec<Held>,
}

/// An attempt as the worker knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The attempt's number.
    pub attempt: u32,
    /// How far it is.
    pub phase: HeldPhase,
}

/// How far an attempt is at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldPhase {
    /// Waits for room.
    Queued,
    /// Runs since then.
    Running(Time),
    /// Runs since then and has lent its cpus, and does not have them again.
    Lent(Time),
    /// Ended; the worker reports the result until it is acknowledged.
    Ended,
    /// In a phase that a later release added: it is there, and no more is known of it.
    Unknown,
}

/// A hello whose name, attributes and sizes are such as its origin may say: the only kind that a server takes in.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckedHello(Box<Hello>);

impl CheckedHello {
    /// The hello of an agent that may serve the outside clients of these systems, `nix` and `sccache`.
    ///
    /// # Errors
    ///
    /// It says what it may not, or more than the bounds.
    pub fn of_agent(hello: Hello, may_serve: &[&str]) -> Result<CheckedHello, BadHello> {
        CheckedHello::checked(hello, Origin::Agent, may_serve)
    }

    /// The hello of what a gateway calls `hello.name`; the worker's name is [`Origin::worker_name`].
    ///
    /// # Errors
    ///
    /// It says what this gateway's workers are not, or more than the bounds.
    pub fn of_gateway(origin: Origin, mut hello: Hello) -> Result<CheckedHello, BadHello> {
        let own = std::mem::take(&mut hello.name);
        if origin == Origin::Agent || !origin.may_name(&own) {
            return Err(BadHello::Name(beginning(&own)));
        }
        hello.name = origin.worker_name(&own);
        let serves = [origin.as_str()];
        CheckedHello::checked(hello, origin, if origin == Origin::Compass { &[] } else { &serves })
    }

    fn checked(hello: Hello, origin: Origin, may_serve: &[&str]) -> Result<CheckedHello, BadHello> {
        if !origin.own_name(&hello.name).is_some_and(|own| origin.may_name(own)) {
            return Err(BadHello::Name(beginning(&hello.name)));
        }
        if hello.capacity.cpu == 0 && origin == Origin::Agent {
            return Err(BadHello::NoCpus);
        }
        check_sizes(&hello)?;
        for (key, values) in &hello.attributes {
            let system = SERVABLE.into_iter().find(|system| is_of(key, system));
            let is_allowed = match key.as_str() {
                EXECUTOR => origin == Origin::Compass,
                EXCLUSIVE | SERVES => values.iter().all(|value| may_serve.contains(&value.as_str())),
                _ => system.is_none_or(|system| may_serve.contains(&system)),
            };
            // What only some of a system's clients may use is named so, by its gateway alone.
            let is_foreign =
                |value: &String| Origin::of(value) != Origin::Agent && Origin::of(value) != origin;
            if !is_allowed || (system.is_some() && values.iter().any(is_foreign)) {
                let named = || SERVABLE.into_iter().find(|system| values.contains(*system));
                let system = system.or_else(named).filter(|_| key != EXECUTOR);
                return Err(BadHello::Right { key: beginning(key), system });
            }
        }
        Ok(CheckedHello(Box::new(hello)))
    }

    /// What was checked.
    pub fn into_inner(self) -> Box<Hello> {
        self.0
    }

    /// What was checked, to look at.
    pub fn get(&self) -> &Hello {
        &self.0
    }

    /// The worker's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// True if an attribute belongs to a system.
fn is_of(key: &str, system: &str) -> bool {
    key.strip_prefix(system).is_some_and(|rest| rest.starts_with('.'))
}

fn check_sizes(hello: &Hello) -> Result<(), BadHello> {
    let within = |what, is, max| if is > max { Err(BadHello::TooMany { what, is, max }) } else { Ok(()) };
    let (attributes, custom) = (&hello.attributes, &hello.capacity.custom);
    let values = || attributes.values().flatten();
    within("attributes", attributes.len(), bounds::ATTRIBUTES_MAX)?;
    within("values of attributes", values().count(), bounds::ATTRIBUTE_VALUES_MAX)?;
    within("named amounts", custom.len(), bounds::WORKER_AMOUNTS_MAX)?;
    within("attempts", hello.inventory.held.len(), bounds::HELD_MAX)?;
    let names = || attributes.keys().chain(custom.keys());
    let longest = names().map(String::len).max().unwrap_or(0);
    within("bytes of the name of an attribute or amount", longest, bounds::NAME_BYTES_MAX)?;
    let bytes = names().chain(values()).map(String::len).sum();
    within("bytes of attributes", bytes, bounds::ATTRIBUTE_BYTES_MAX)?;
    if let Some(text) = names().chain(values()).find(|text| text.chars().any(char::is_control)) {
        return Err(BadHello::Control(beginning(text)));
    }
    Ok(())
}

/// Why a worker may not declare an attribute, and what to do.
fn right_for(system: Option<&str>) -> String {
    match system {
        Some(system) => format!(
            "its token does not allow this; create one that does with 'windlass token create --role worker --worker NAME --{system}'"
        ),
        None => "only gateways make such workers; leave it out".to_owned(),
    }
}

/// Enough of a text to recognise it.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Why a worker's hello is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names and types of the fields say it all")]
pub enum BadHello {
    /// A name that is empty, too long, or has other characters than names may have.
    #[error("'{0}' cannot name a worker: a name has 1 to {max} letters, digits, dots, dashes or underscores", max = bounds::NAME_BYTES_MAX)]
    Name(String),
    /// A machine without cpus, which could run nothing.
    #[error("the worker declares no cpus; start it with --cpus 1 or more")]
    NoCpus,
    /// More of something than the limit.
    #[error("{what}: {is} is more than the limit of {max}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        is: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A text with line breaks or other control characters.
    #[error("the attribute or value {0:?} contains control characters")]
    Control(String),
    /// An attribute that gives the worker a part in another system's work.
    #[error("this worker may not declare the attribute '{key}': {}", right_for(*system))]
    Right {
        key: String,
        /// The system whose clients it would serve; `None` where no token gives a right.
        system: Option<&'static str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, values: &[&str]) -> Hello {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Hello {
            attributes: [(key.to_owned(), values)].into(),
            ..Hello::new("box1", 1, Resources::new(100, 0))
        }
    }

    #[test]
    fn what_gives_a_right_comes_from_the_token_or_from_a_gateway() {
        let agent = |hello, serves: &[&str]| CheckedHello::of_agent(hello, serves).is_ok();
        for (key, value) in
            [(SERVES, "nix"), (EXCLUSIVE, "nix"), ("nix.uri", "ssh://b1"), ("nix.builder", "farm")]
        {
            assert!(!agent(with(key, &[value]), &[]) && !agent(with(key, &[value]), &["sccache"]), "{key}");
            assert!(agent(with(key, &[value]), &["nix"]), "{key}");
            assert!(CheckedHello::of_gateway(Origin::Nix, with(key, &[value])).is_ok(), "{key}");
            assert!(CheckedHello::of_gateway(Origin::Compass, with(key, &[value])).is_err(), "{key}");
        }
        assert!(!agent(with(EXECUTOR, &["compass-ci"]), &["nix", "sccache"]));
        assert!(CheckedHello::of_gateway(Origin::Compass, with(EXECUTOR, &["compass-ci"])).is_ok());
        assert!(!agent(with("nix.builder", &["farm", "nix:0123"]), &["nix"]), "that is one client's machine");
        assert!(agent(with("nixos", &["24.05"]), &[]) && agent(with("gpu", &[]), &[]));
    }

    #[test]
    fn a_gateway_s_worker_has_a_name_that_no_agent_may_have() {
        let named = |name: &str| Hello { name: name.to_owned(), ..with("gpu", &[]) };
        for origin in [Origin::Compass, Origin::Sccache, Origin::Nix] {
            let hello = CheckedHello::of_gateway(origin, named("box1")).unwrap();
            assert_eq!(hello.name(), format!("{}:box1", origin.as_str()));
            assert!(CheckedHello::of_agent(*hello.into_inner(), &["nix", "sccache"]).is_err());
            for bad in ["", "a b", "a\nb", "a/b", &"a".repeat(256)] {
                assert!(CheckedHello::of_gateway(origin, named(bad)).is_err(), "{bad:?}");
            }
        }
        assert!(CheckedHello::of_gateway(Origin::Agent, named("box1")).is_err());
    }

    #[test]
    fn sizes_are_bounded_whoever_speaks() {
        let long = "x".repeat(bounds::ATTRIBUTE_BYTES_MAX);
        let many: Vec<String> = (0..=bounds::ATTRIBUTE_VALUES_MAX).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cases =
            [with("gpu", &[&long]), with(&long[..300], &[]), with("gpu", &many), with("gpu", &["a\nb"])];
        for hello in cases {
            assert!(CheckedHello::of_agent(hello.clone(), &[]).is_err());
            assert!(CheckedHello::of_gateway(Origin::Compass, hello).is_err());
        }
    }
}
