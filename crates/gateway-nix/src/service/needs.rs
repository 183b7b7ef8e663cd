//! The requirements of derivations and the attributes of machines, in the terms of the engine.

use crate::wire::{BuildRequest, Machine, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::tags::{Attributes, CORE_SCORE, EXCLUSIVE, Need, SERVES};
use windlass_core::worker::{Origin, Worker};
use windlass_core::{Engine, Resources};

/// The name by which the engine knows this system.
pub const NIX: &str = "nix";
/// The attribute with the systems of a machine.
const SYSTEM: &str = "nix.system";
/// The attribute with the features that derivations may require.
const FEATURE: &str = "nix.feature";
/// The attribute with the features that derivations must require, as one text; see [`joined`].
const MANDATORY: &str = "nix.mandatory";
/// The attribute for the users that may build on a machine: [`OF_THE_FARM`] and its URI for a worker, and the name of
/// its worker for the machine of one user. An agent cannot report such a name.
const BUILDER: &str = "nix.builder";
/// The attribute with the identity of a worker's store; see [`store_id`](crate::store_id).
const STORE: &str = "nix.store";
/// The attribute with the URI of a worker's store.
const URI: &str = "nix.uri";
/// The value of [`BUILDER`] of workers with an agent.
const OF_THE_FARM: &str = "farm";
/// The value of [`MANDATORY`] for a machine without mandatory features.
const NONE: &str = "none";
/// The custom resource of which a machine has one for each build at a time.
pub const BUILDS: &str = "nix_builds";
/// Features of a derivation whose combinations are all considered. Further features count as mandatory nowhere.
const COMBINED_MAX: usize = 6;
/// The core score of a machine with Nix's speed factor 1, to compare machines of clients with workers that measure
/// their score.
const SCORE_OF_ONE: f64 = 1_000.0;
/// The largest number of cpus that a build may ask for.
const CORES_MAX: u32 = 1_024;

/// Mandatory features as one text, which does not depend on their order.
fn joined<'a>(features: impl IntoIterator<Item = &'a String>) -> String {
    let features: BTreeSet<&str> = features.into_iter().map(String::as_str).collect();
    if features.is_empty() {
        return NONE.to_owned();
    }
    features.into_iter().collect::<Vec<_>>().join("+")
}

/// The attributes of a worker that builds for Nix.
pub fn attributes(machine: &Machine) -> Attributes {
    let mut attributes = described(machine);
    attributes.insert(BUILDER.to_owned(), [machine.uri.clone(), OF_THE_FARM.to_owned()].into());
    attributes.insert(URI.to_owned(), [machine.uri.clone()].into());
    attributes.extend(crate::store_id().map(|id| (STORE.to_owned(), [id].into())));
    attributes
}

/// The attributes of a machine from the `builders` of one user. It runs nothing else, and is for that user alone.
pub fn attributes_of_clients(machine: &Machine, name: &str) -> Attributes {
    let mut attributes = described(machine);
    attributes.insert(BUILDER.to_owned(), [name.to_owned()].into());
    attributes.insert(EXCLUSIVE.to_owned(), [NIX.to_owned()].into());
    if machine.speed > 0.0 && machine.speed != 1.0 {
        let score = (machine.speed * SCORE_OF_ONE).round();
        attributes.insert(CORE_SCORE.to_owned(), [score.to_string()].into());
    }
    attributes
}

fn described(machine: &Machine) -> Attributes {
    let mut systems: BTreeSet<String> = machine.systems.iter().cloned().collect();
    systems.insert("builtin".to_owned());
    let mut attributes = Attributes::from([
        (SERVES.to_owned(), [NIX.to_owned()].into()),
        (SYSTEM.to_owned(), systems),
        (MANDATORY.to_owned(), [joined(&machine.mandatory)].into()),
    ]);
    let features: BTreeSet<String> = machine.supported.iter().chain(&machine.mandatory).cloned().collect();
    if !features.is_empty() {
        attributes.insert(FEATURE.to_owned(), features);
    }
    attributes
}

/// True if the attributes are those of a machine that builds for Nix.
pub fn takes_builds(attributes: &Attributes) -> bool {
    attributes.get(SERVES).is_some_and(|kinds| kinds.contains(NIX))
}

/// The URI of the store of a worker that builds for all users. A user's machine has no such attribute, because every
/// viewer sees attributes.
pub fn uri_of(attributes: &Attributes) -> Option<&str> {
    attributes.get(URI)?.first().map(String::as_str).filter(|_| takes_builds(attributes))
}

/// The capacity of a machine whose number of cpus is not known: `max_jobs` builds, each with `cores` cpus.
pub fn capacity(max_jobs: u32, cores: u32) -> Resources {
    let cpu = max_jobs.saturating_mul(cores.max(1)).saturating_mul(100);
    Resources { custom: BTreeMap::from([(BUILDS.to_owned(), max_jobs.into())]), ..Resources::new(cpu, 0) }
}

/// The resources of one build: the cpus that the user set, or one.
pub fn amounts(cores: Option<u32>) -> Resources {
    capacity(1, cores.unwrap_or(1).min(CORES_MAX))
}

/// The machines that a client may use.
#[derive(Debug, Default)]
pub struct FarmView {
    /// The names of the workers for the client's own machines.
    named: Vec<String>,
    /// The URIs of all workers; empty if none is left out.
    uris: BTreeSet<String>,
    /// The workers whose store is the client's own. Nix locks the outputs there while the hook works, so a build there
    /// would wait for itself.
    own: BTreeSet<String>,
    /// The workers that the user could not connect recently.
    suspects: BTreeSet<String>,
}

impl FarmView {
    /// The machines that the engine has for a client with this store.
    pub fn of(engine: &Engine, store: &str, named: Vec<String>, suspects: BTreeSet<String>) -> FarmView {
        let uri_of =
            |worker: &Worker| worker.record.attributes.get(URI).and_then(|uris| uris.first().cloned());
        let has_store =
            |worker: &&Worker| worker.record.attributes.get(STORE).is_some_and(|ids| ids.contains(store));
        let workers = engine.workers();
        let own: BTreeSet<String> = workers.present().filter(has_store).filter_map(uri_of).collect();
        if own.is_empty() && suspects.is_empty() {
            return FarmView { named, ..FarmView::default() };
        }
        let of_farm = workers.present().filter(|worker| Origin::of(&worker.record.name) == Origin::Agent);
        FarmView { named, uris: of_farm.filter_map(uri_of).collect(), own, suspects }
    }
}

/// The requirements for a machine.
pub fn needs(wanted: &Wanted, farm: &FarmView) -> Vec<Need> {
    let need = |key: &str, any_of: BTreeSet<String>| Need { key: key.to_owned(), any_of };
    let mut features: Vec<&String> = wanted.features.iter().collect();
    features.sort();
    features.dedup();
    let mut needs = vec![
        need(SERVES, [NIX.to_owned()].into()),
        need(SYSTEM, [wanted.system.clone()].into()),
        need(MANDATORY, combinations(&features[..features.len().min(COMBINED_MAX)])),
        need(BUILDER, builders(farm)),
    ];
    needs.extend(features.into_iter().map(|feature| need(FEATURE, [feature.clone()].into())));
    needs
}

/// Every set of mandatory features that these features satisfy.
fn combinations(features: &[&String]) -> BTreeSet<String> {
    (0..1_u32 << features.len())
        .map(|chosen| {
            joined(
                features
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| chosen & (1 << i) != 0)
                    .map(|(_, feature)| *feature),
            )
        })
        .collect()
}

fn builders(farm: &FarmView) -> BTreeSet<String> {
    let named = farm.named.iter().cloned();
    if farm.own.is_empty() && farm.suspects.is_empty() {
        return named.chain([OF_THE_FARM.to_owned()]).collect();
    }
    // Leaves room for clients' machines. Of a larger farm a part of the workers is enough.
    let others = farm.uris.difference(&farm.own).cloned().collect::<BTreeSet<String>>();
    let mut left: BTreeSet<String> = named.chain(others.difference(&farm.suspects).cloned()).collect();
    if left.is_empty() {
        // If all are suspect, none is left out.
        left = others;
    }
    if left.is_empty() {
        left.insert(NONE.to_owned());
    }
    left.into_iter().take(windlass_core::bounds::VALUES_PER_NEED_MAX).collect()
}

/// The cache key of a store path.
pub fn cache_key(name: &str) -> String {
    format!("{NIX}/{name}")
}

/// The inputs of a build as cache keys.
pub fn reads(build: &BuildRequest) -> BTreeMap<String, Option<u64>> {
    let bounded = |bytes: u64| bytes.min(windlass_core::bounds::CACHE_BYTES_MAX);
    let inputs = build.inputs.iter().take(crate::wire::INPUTS_MAX);
    inputs.map(|(name, bytes)| (cache_key(name), bytes.map(bounded))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    fn machine(supported: &[&str], mandatory: &[&str]) -> Machine {
        Machine {
            uri: "ssh://b1".to_owned(),
            systems: texts(&["x86_64-linux"]),
            max_jobs: 2,
            speed: 1.0,
            supported: texts(supported),
            mandatory: texts(mandatory),
        }
    }

    fn wanted(system: &str, features: &[&str]) -> Wanted {
        let machines = vec![machine(&[], &[])];
        let (system, features) = (system.to_owned(), texts(features));
        Wanted { client: "c".to_owned(), system, features, machines, ..Wanted::default() }
    }

    fn fits(machine: &Machine, wanted: &Wanted) -> bool {
        let attributes = attributes_of_clients(machine, "nix:ann:b1:1");
        needs(wanted, &FarmView { named: vec!["nix:ann:b1:1".to_owned()], ..FarmView::default() })
            .iter()
            .all(|need| need.met_by(&attributes))
    }

    /// The rule of stock Nix: all required features are supported or mandatory, and all mandatory ones are required.
    #[test]
    fn machines_fit_as_stock_nix_has_it() {
        let linux = |features: &[&str]| wanted("x86_64-linux", features);
        assert!(fits(&machine(&[], &[]), &linux(&[])));
        assert!(!fits(&machine(&[], &[]), &linux(&["kvm"])));
        assert!(fits(&machine(&["kvm", "big-parallel"], &[]), &linux(&["kvm"])));
        assert!(fits(&machine(&["big-parallel"], &["kvm"]), &linux(&["kvm"])));
        assert!(!fits(&machine(&["big-parallel"], &["kvm"]), &linux(&["big-parallel"])));
        assert!(!fits(&machine(&[], &["kvm", "perf"]), &linux(&["kvm"])));
        assert!(fits(&machine(&[], &["kvm", "perf"]), &linux(&["perf", "kvm"])));
        assert!(!fits(&machine(&[], &[]), &wanted("aarch64-linux", &[])));
        assert!(fits(&machine(&[], &[]), &wanted("builtin", &[])));
    }

    #[test]
    fn a_machine_of_a_client_is_for_that_client() {
        let wanted = wanted("x86_64-linux", &[]);
        let set = |uris: &[&str]| texts(uris).into_iter().collect::<BTreeSet<String>>();
        let view = |named: &[&str], own: &[&str], suspects: &[&str]| FarmView {
            named: texts(named),
            uris: set(&["ssh://b1", "ssh://b2"]),
            own: set(own),
            suspects: set(suspects),
        };
        let fits = |machine: &Attributes, farm: &FarmView| {
            needs(&wanted, farm).iter().all(|need| need.met_by(machine))
        };
        let (foreign, own) =
            (attributes_of_clients(&machine(&[], &[]), "nix:ann:b1:1"), attributes(&machine(&[], &[])));
        let (names, b1, b2) = (["nix:ann:b1:1"], ["ssh://b1"], ["ssh://b2"]);
        assert!(fits(&foreign, &view(&names, &[], &[])) && !fits(&foreign, &view(&[], &[], &[])));
        assert!(fits(&own, &view(&names, &[], &[])) && fits(&own, &view(&[], &[], &[])));
        assert!(!fits(&own, &view(&[], &[], &b1)), "it is suspected, and b2 is not");
        assert!(fits(&own, &view(&[], &[], &b2)));
        assert!(fits(&own, &view(&[], &[], &["ssh://b1", "ssh://b2"])), "all are");
        assert!(fits(&foreign, &view(&names, &[], &b2)));
        assert!(!fits(&own, &view(&[], &b1, &[])), "it is the client's own");
        assert!(!fits(&own, &view(&[], &["ssh://b1", "ssh://b2"], &[])), "never, whatever is left");
        assert!(fits(&own, &view(&[], &b2, &b1)), "the only other one");
        assert!(!fits(&own, &view(&names, &b1, &[])), "though the client names it");
    }

    #[test]
    fn the_address_of_a_user_s_machine_is_not_shown() {
        let machine = machine(&["big-parallel", "kvm"], &["kvm"]);
        assert_eq!(uri_of(&attributes(&machine)), Some("ssh://b1"));
        let shown = format!("{:?}", attributes_of_clients(&machine, "nix:ann:b1:1"));
        assert!(!shown.contains("ssh://"), "{shown}");
    }

    #[test]
    fn a_build_takes_the_cpus_that_its_user_set() {
        assert_eq!((amounts(None).cpu, amounts(Some(4)).cpu), (100, 400));
        assert!(amounts(Some(4)).fits(&capacity(1, 4)) && !amounts(Some(4)).fits(&capacity(1, 1)));
        assert_eq!(amounts(Some(u32::MAX)).cpu, 102_400);
    }
}
