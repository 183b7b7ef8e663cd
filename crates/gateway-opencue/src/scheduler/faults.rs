//! Whose fault a failed launch is. A host that takes nobody's frames is left out for a while, and so is a layer that no
//! host takes: neither may hold up the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A host or a layer at fault gets nothing for so long.
pub const HELD_TIME: Duration = Duration::from_secs(30);
/// A host that refused a frame, before it is known whose fault that is.
const SUSPECT_TIME: Duration = Duration::from_secs(2);
/// Refusals are remembered for so long.
const REMEMBERED_TIME: Duration = Duration::from_secs(60);
/// Hosts that refuse a layer make it the layer's fault, and layers that a host refuses the host's.
const WITNESSES: usize = 2;

/// Characters of what a host or PostgreSQL said, in a reason.
const SAID_CHARS_MAX: usize = 200;

/// A layer that is left out for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLayer {
    /// The layer's key.
    pub layer: String,
    /// Why, as a sentence without its end.
    pub reason: String,
    /// How much longer.
    pub left: Duration,
}

/// Until when a layer is left out, and why.
#[derive(Debug)]
struct Hold {
    until: Instant,
    reason: String,
}

/// Refusals by one side, and who was refused when.
type Refusals = BTreeMap<String, BTreeMap<String, Instant>>;

/// What is known of failed launches.
#[derive(Debug, Default)]
pub struct Faults {
    by_layer: Refusals,
    by_host: Refusals,
    held_hosts: BTreeMap<String, Instant>,
    held_layers: BTreeMap<String, Hold>,
}

impl Faults {
    /// A host did not answer: nothing is launched there for a while.
    pub fn unanswered(&mut self, host: &str, now: Instant) {
        self.prune(now);
        self.held_hosts.insert(host.to_owned(), now + HELD_TIME);
    }

    /// A frame of the layer could not be booked, whatever the host. `said` is what PostgreSQL said.
    pub fn unbookable(&mut self, layer: &str, said: &str, now: Instant) {
        self.prune(now);
        self.hold(layer, format!("the database refuses its frames: {}", shorten(said)), now);
    }

    /// A host answered that it will not run a frame of the layer; `said` is its answer. Returns why the layer is left out
    /// from now on, where it was not before.
    pub fn refused(&mut self, host: &str, layer: &str, said: &str, now: Instant) -> Option<String> {
        self.prune(now);
        note(&mut self.by_layer, layer, host, now);
        note(&mut self.by_host, host, layer, now);
        let hosts = self.by_layer[layer].len();
        let layers_fault = hosts >= WITNESSES;
        let mut began = None;
        if layers_fault {
            let reason = format!("{hosts} hosts refused its frames, the last one with: {}", shorten(said));
            began = (!self.held_layers.contains_key(layer)).then(|| reason.clone());
            self.hold(layer, reason, now);
        }
        // What no other host takes either says nothing of this one.
        let witnesses =
            self.by_host[host].keys().filter(|layer| !self.held_layers.contains_key(*layer)).count();
        let time = match (witnesses >= WITNESSES, layers_fault) {
            (true, _) => HELD_TIME,
            (false, true) => return began,
            (false, false) => SUSPECT_TIME,
        };
        self.held_hosts.insert(host.to_owned(), now + time);
        began
    }

    fn hold(&mut self, layer: &str, reason: String, now: Instant) {
        self.held_layers.insert(layer.to_owned(), Hold { until: now + HELD_TIME, reason });
    }

    /// The layers of which no frame is launched now.
    pub fn held_layers(&self, now: Instant) -> Vec<HeldLayer> {
        let held = self.held_layers.iter().filter(|(_, hold)| hold.until > now);
        held.map(|(layer, hold)| HeldLayer {
            layer: layer.clone(),
            reason: hold.reason.clone(),
            left: hold.until.duration_since(now),
        })
        .collect()
    }

    /// The hosts that get nothing now, by key, and how much longer.
    pub fn held_hosts(&self, now: Instant) -> Vec<(String, Duration)> {
        let held = self.held_hosts.iter().filter(|(_, until)| **until > now);
        held.map(|(host, until)| (host.clone(), until.duration_since(now))).collect()
    }

    /// True if the host gets nothing now.
    pub fn is_host_held(&self, host: &str, now: Instant) -> bool {
        self.held_hosts.get(host).is_some_and(|until| *until > now)
    }

    /// True if no frame of the layer is launched now.
    pub fn is_layer_held(&self, layer: &str, now: Instant) -> bool {
        self.held_layers.get(layer).is_some_and(|hold| hold.until > now)
    }

    fn prune(&mut self, now: Instant) {
        for refusals in [&mut self.by_layer, &mut self.by_host] {
            refusals.retain(|_, seen| {
                seen.retain(|_, at| now.duration_since(*at) < REMEMBERED_TIME);
                !seen.is_empty()
            });
        }
        self.held_hosts.retain(|_, until| *until > now);
        self.held_layers.retain(|_, hold| hold.until > now);
    }
}

/// A message of another program, as a part of a line.
fn shorten(said: &str) -> String {
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS_MAX).collect()
}

fn note(refusals: &mut Refusals, who: &str, whom: &str, now: Instant) {
    refusals.entry(who.to_owned()).or_default().insert(whom.to_owned(), now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_hosts_refuse_is_held_and_they_are_not() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        for host in ["a", "b", "c", "d"] {
            faults.refused(host, "poison", "no", now);
        }
        assert!(faults.is_layer_held("poison", now));
        let held = faults.held_layers(now + Duration::from_secs(10));
        assert_eq!((held[0].layer.as_str(), held[0].left), ("poison", HELD_TIME - Duration::from_secs(10)));
        assert_eq!(held[0].reason, "4 hosts refused its frames, the last one with: no");
        assert_eq!(faults.held_layers(now + HELD_TIME), []);
        let soon = now + SUSPECT_TIME;
        assert!(["a", "b", "c", "d"].iter().all(|host| !faults.is_host_held(host, soon)), "{faults:?}");
        assert!(!faults.is_layer_held("poison", now + HELD_TIME));
    }

    #[test]
    fn a_host_that_refuses_several_layers_is_held_and_they_are_not() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        faults.refused("a", "x", "no", now);
        assert!(faults.is_host_held("a", now) && !faults.is_host_held("a", now + SUSPECT_TIME));
        faults.refused("a", "y", "no", now);
        assert!(faults.is_host_held("a", now + SUSPECT_TIME));
        assert!(!faults.is_layer_held("x", now) && !faults.is_layer_held("y", now));
        assert!(!faults.is_host_held("a", now + HELD_TIME));
    }

    #[test]
    fn a_host_is_not_held_for_layers_that_nobody_takes() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        for layer in ["poison", "venom"] {
            for host in ["a", "b", "c"] {
                faults.refused(host, layer, "no", now);
            }
        }
        let soon = now + SUSPECT_TIME;
        assert!(["a", "b", "c"].iter().all(|host| !faults.is_host_held(host, soon)), "{faults:?}");
        faults.unanswered("a", now);
        assert!(faults.is_host_held("a", soon));
        assert_eq!(faults.held_hosts(soon), [("a".to_owned(), HELD_TIME - SUSPECT_TIME)]);
        assert_eq!(faults.held_hosts(now + HELD_TIME), []);
    }

    #[test]
    fn that_a_layer_is_left_out_is_told_once() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        assert_eq!(faults.refused("a", "x", "no", now), None);
        let told = faults.refused("b", "x", &"long\n".repeat(100), now);
        assert!(told.is_some_and(|reason| reason.len() < 300 && !reason.contains('\n')));
        assert_eq!(faults.refused("c", "x", "no", now), None);
        faults.unbookable("y", "no", now);
        assert!(
            faults.held_layers(now).iter().any(|held| held.reason == "the database refuses its frames: no")
        );
    }

    #[test]
    fn ever_new_hosts_and_layers_leave_nothing_when_their_time_is_over() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        for number in 0..1_000 {
            faults.unanswered(&format!("host{number}"), now);
            faults.unbookable(&format!("layer{number}"), "no", now);
        }
        faults.unbookable("last", "no", now + HELD_TIME);
        assert_eq!((faults.held_hosts.len(), faults.held_layers.len()), (0, 1));
        faults.unanswered("last", now + 2 * HELD_TIME);
        assert_eq!((faults.held_hosts.len(), faults.held_layers.len()), (1, 0));
    }

    #[test]
    fn refusals_are_forgotten() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        faults.refused("a", "x", "no", now);
        faults.refused("b", "x", "no", now + REMEMBERED_TIME);
        assert!(!faults.is_layer_held("x", now + REMEMBERED_TIME));
    }
}
