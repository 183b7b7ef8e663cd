//! What made a worker. The name says it: a worker that a gateway makes is named `ORIGIN:NAME`, and a name that an agent may
//! have contains no `:`. So no origin can take over another's worker.

use crate::bounds::NAME_BYTES_MAX;

/// What made a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// An agent, by its token or inside the server.
    Agent,
    /// A host of a Compass CI lab.
    Compass,
    /// A build server of sccache.
    Sccache,
    /// A machine that a client of Nix names in its `builders`.
    Nix,
}

impl Origin {
    /// The origins, in the order of the enum.
    pub const ALL: [Origin; 4] = [Origin::Agent, Origin::Compass, Origin::Sccache, Origin::Nix];

    /// Its word, which begins the names of the workers that it makes.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Agent => "agent",
            Origin::Compass => "compass",
            Origin::Sccache => "sccache",
            Origin::Nix => "nix",
        }
    }

    /// The origin of the worker with this name.
    pub fn of(worker: &str) -> Origin {
        let word = worker.split_once(':').map(|(word, _)| word);
        let gateways = Origin::ALL.into_iter().filter(|origin| *origin != Origin::Agent);
        gateways.into_iter().find(|origin| word == Some(origin.as_str())).unwrap_or(Origin::Agent)
    }

    /// The worker's name of what the origin itself calls `name`.
    pub fn worker_name(self, name: &str) -> String {
        match self {
            Origin::Agent => name.to_owned(),
            origin => format!("{}:{name}", origin.as_str()),
        }
    }

    /// What the origin itself calls the worker with this name; `None` if the worker is of another origin.
    pub fn own_name(self, worker: &str) -> Option<&str> {
        match self {
            Origin::Agent => (Origin::of(worker) == Origin::Agent).then_some(worker),
            origin => worker.strip_prefix(origin.as_str())?.strip_prefix(':'),
        }
    }

    /// True if the origin may call a worker so: 1 to [`NAME_BYTES_MAX`] letters, digits, dots, dashes and underscores. What
    /// gateways name may also have pluses, and colons and brackets, as addresses do.
    pub fn may_name(self, name: &str) -> bool {
        let others: &[u8] = if self == Origin::Agent { b".-_" } else { b".-_+:[]" };
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
        fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_says_whose_it_is(name in "[a-z0-9:.\\[\\]/_-]{0,20}") {
            for origin in Origin::ALL {
                let worker = origin.worker_name(&name);
                if origin.may_name(&name) {
                    prop_assert_eq!(Origin::of(&worker), origin);
                    prop_assert_eq!(origin.own_name(&worker), Some(name.as_str()));
                    let others = Origin::ALL.into_iter().filter(|other| *other != origin);
                    prop_assert!(others.into_iter().all(|other| other.own_name(&worker).is_none()));
                }
            }
        }

        #[test]
        fn a_gateway_makes_no_name_that_an_agent_may_have(name in "[ -~]{0,20}") {
            for origin in [Origin::Compass, Origin::Sccache, Origin::Nix] {
                prop_assert!(!Origin::Agent.may_name(&origin.worker_name(&name)));
            }
        }
    }
}
