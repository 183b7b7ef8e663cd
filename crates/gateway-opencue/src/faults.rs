//! Failed launches, and whose fault they are. A host that refuses all frames is left out for a while, and so is a
//! layer that all hosts refuse. Neither may hold up the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a host or a layer at fault is left out.
pub const HELD_TIME: Duration = Duration::from_secs(30);
/// How long a host that refused a frame is left out before it is known whose fault that is.
const SUSPECT_TIME: Duration = Duration::from_secs(2);
/// How long refusals are remembered.
const REMEMBERED_TIME: Duration = Duration::from_secs(60);
/// Number of hosts whose refusals make it the layer's fault, and of layers whose refusals make it the host's.
const WITNESSES: usize = 2;

/// Characters of an answer of a host or of PostgreSQL in a reason.
const SAID_CHARS_MAX: usize = 200;

/// A layer that is left out for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLayer {
    /// The key of the layer.
    pub layer: String,
    /// The reason, as a sentence without its full stop.
    pub reason: String,
    /// How much longer it is left out.
    pub left: Duration,
}

/// The end of the time in which a layer is left out, and the reason.
#[derive(Debug)]
struct Hold {
    until: Instant,
    reason: String,
}

/// Refusals by hosts or of layers: the other side of each, and when.
type Refusals = BTreeMap<String, BTreeMap<String, Instant>>;

/// The record of failed launches.
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
        // A layer that no other host takes either says nothing about this one.
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

    /// True if the host is left out now.
    pub fn is_host_held(&self, host: &str, now: Instant) -> bool {
        self.held_hosts.get(host).is_some_and(|until| *until > now)
    }

    /// True if the layer is left out now.
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
    fn a_host_is_not_held_for_layers_that_no_host_takes() {
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
