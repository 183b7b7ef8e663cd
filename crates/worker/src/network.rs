//! The links of this machine: what they receive and send, and how fast they are, as the kernel counts it. It is
//! reported as load ([`LinkLoad`]), and tasks that are marked as network-bound show by it how fast the worker's
//! network is.
//!
//! What counts as a link: network devices with hardware (or a virtual machine's stand-in for it), so that a bridge or a
//! container's device does not count the same bytes twice. In a container there is none; then it is the device of the
//! default route.
//!
//! Which seconds count as evidence of speed ([`FetchRun`]):
//!
//! - Only those in which a network-bound task runs. Other tasks may fetch now and then, at no hurry.
//! - Only windows that received something worth the name: [`WINDOW_BYTES_MIN`], and a twentieth of the link's speed
//!   where that is known. A task that hardly fetches says nothing of the network.
//! - Of each run only windows at least half as fast as its fastest. A task that fetches and then computes was as fast
//!   as while it fetched.
//! - None of a run in which a task said by itself what it fetched: the lines are better evidence, of the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use windlass_core::score::speed::Speed;

/// Links that are counted. A machine with more has them for its containers.
const LINKS_MAX: usize = 64;
/// Bytes of a window that is evidence.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
/// Part of the link's speed from which a window is evidence.
const WINDOW_PART_MIN: f64 = 0.05;
/// The shortest window: below it, what was received before counts as received in it.
const WINDOW_NS_MIN: u64 = 100_000_000;
/// Part of the speed of the fastest window that others of the run must have.
const NEARLY_FASTEST: f64 = 0.5;
/// Windows of a run that are compared. After these it is as if the run ended and another began.
const WINDOWS_MAX: usize = 60;
/// Nanoseconds over which the use of links is averaged, as the kernel averages pressure. A burst of a second does not
/// keep work away.
const MEAN_NS: f64 = 10e9;
/// Bits of a byte, and of a megabit.
const BITS: f64 = 8.0;
const MEGABIT: f64 = 1e6;

/// Reads the kernel's counters.
pub struct Links {
    /// `/`, or in tests a directory with files of the same names.
    root: PathBuf,
}

/// The counters of a link since the machine started.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counters {
    /// Bytes received since the link came up.
    received: u64,
    /// Bytes sent since the link came up.
    sent: u64,
    /// Bytes per second that it can carry each way; `None` where the device does not say.
    speed: Option<f64>,
}

/// The counters of all links at a moment.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkReading {
    at_ns: u64,
    links: BTreeMap<String, Counters>,
}

impl Default for Links {
    fn default() -> Links {
        Links { root: PathBuf::from("/") }
    }
}

impl Links {
    #[cfg(test)]
    pub fn below(root: PathBuf) -> Links {
        Links { root }
    }

    /// The counters now; `None` where there are none. `now_ns` is of a monotonic clock.
    pub fn read(&self, now_ns: u64) -> Option<LinkReading> {
        let devices = self.root.join("sys/class/net");
        let mut names: Vec<String> = fs::read_dir(&devices)
            .ok()?
            .flatten()
            .filter(|entry| entry.path().join("device").exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        if names.is_empty() {
            names = self.default_routes();
        }
        names.sort();
        names.truncate(LINKS_MAX);
        let links: BTreeMap<String, Counters> = names
            .into_iter()
            .filter_map(|name| {
                let counters = Counters::read(&devices.join(&name))?;
                Some((name, counters))
            })
            .collect();
        (!links.is_empty()).then_some(LinkReading { at_ns: now_ns, links })
    }

    /// The devices that have a default route.
    fn default_routes(&self) -> Vec<String> {
        let routes = fs::read_to_string(self.root.join("proc/net/route")).unwrap_or_default();
        let mut names: Vec<String> = routes
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                let name = fields.next()?;
                (fields.next()? == "00000000").then(|| name.to_owned())
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Counters {
    fn read(device: &Path) -> Option<Counters> {
        let text = |name: &str| fs::read_to_string(device.join(name)).ok();
        let bytes = |name: &str| text(name)?.trim().parse::<u64>().ok();
        // A device that does not know says -1, or cannot be read.
        let mbit_s =
            text("speed").and_then(|text| text.trim().parse::<f64>().ok()).filter(|speed| *speed > 0.0);
        Some(Counters {
            received: bytes("statistics/rx_bytes")?,
            sent: bytes("statistics/tx_bytes")?,
            speed: mbit_s.map(|mbit_s| mbit_s * MEGABIT / BITS),
        })
    }
}

/// How much the links carry.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkRates {
    /// Received by all, in Mbit/s.
    pub in_mbit_s: f64,
    /// Sent by all, in Mbit/s.
    pub out_mbit_s: f64,
    /// Percent of its speed in use on the busiest link, mean of about 10 seconds; `None` where no link tells its speed.
    pub percent: Option<f64>,
}

/// The load of the links, from reading to reading.
#[derive(Default)]
pub struct LinkLoad {
    last: Option<LinkReading>,
    /// Part of the speed in use on each link, mean of about 10 seconds.
    used: BTreeMap<String, f64>,
}

impl LinkLoad {
    /// Bytes that the links carried since the last reading; `None` at the first reading, and without links.
    pub fn update(&mut self, now: Option<LinkReading>) -> Option<LinkRates> {
        let last = std::mem::replace(&mut self.last, now);
        let (now, last) = (self.last.as_ref()?, last?);
        let took_ns = now.at_ns.checked_sub(last.at_ns).filter(|took_ns| *took_ns > 0)? as f64;
        let seconds = took_ns / 1e9;
        let weight = 1.0 - (-took_ns / MEAN_NS).exp();
        let mut rates = LinkRates::default();
        self.used.retain(|name, _| now.links.contains_key(name));
        for (name, link) in &now.links {
            let Some(before) = last.links.get(name) else { continue };
            let rate = |is: u64, was: u64| is.saturating_sub(was) as f64 / seconds;
            let (received, sent) = (rate(link.received, before.received), rate(link.sent, before.sent));
            rates.in_mbit_s += received * BITS / MEGABIT;
            rates.out_mbit_s += sent * BITS / MEGABIT;
            let Some(speed) = link.speed else { continue };
            // A link carries its speed each way.
            let part = (received.max(sent) / speed).min(1.0);
            let mean = self.used.entry(name.clone()).or_default();
            *mean += (part - *mean) * weight;
            rates.percent = Some(rates.percent.unwrap_or(0.0).max(*mean * 100.0));
        }
        Some(rates)
    }
}

impl LinkReading {
    /// Bytes received since an earlier reading, by links that are in both readings and were not reset.
    fn received_since(&self, earlier: &LinkReading) -> Window {
        let both = self.links.iter().filter_map(|(name, now)| Some((now, earlier.links.get(name)?)));
        let bytes = both.filter_map(|(now, before)| now.received.checked_sub(before.received)).sum();
        Window { bytes, took_ns: self.at_ns.saturating_sub(earlier.at_ns) }
    }

    /// Bytes per second of the fastest link whose speed is known.
    fn speed(&self) -> Option<f64> {
        self.links.values().filter_map(|link| link.speed).reduce(f64::max)
    }
}

/// Bytes received between two readings.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Window {
    bytes: u64,
    took_ns: u64,
}

impl Window {
    /// Mean rate of the window in bytes per second.
    fn rate(self) -> f64 {
        self.bytes as f64 / (self.took_ns as f64 / 1e9)
    }
}

/// A time in which network-bound tasks run, from the start of the first to the end of the last.
pub struct FetchRun {
    last: LinkReading,
    windows: Vec<Window>,
    /// A task said what it fetched.
    is_told: bool,
}

impl FetchRun {
    /// A run that begins with this reading.
    pub fn new(first: LinkReading) -> FetchRun {
        FetchRun { last: first, windows: Vec::new(), is_told: false }
    }

    /// A task says itself what it fetched.
    pub fn told(&mut self) {
        self.is_told = true;
    }

    /// Takes another reading in. After [`WINDOWS_MAX`] windows their evidence is counted.
    pub fn look(&mut self, now: LinkReading, speed: &mut Speed) {
        let window = now.received_since(&self.last);
        if window.took_ns < WINDOW_NS_MIN {
            return;
        }
        self.windows.push(window);
        self.last = now;
        if self.windows.len() >= WINDOWS_MAX {
            self.count(speed);
        }
    }

    /// Counts what the windows are evidence of, and forgets them.
    pub fn count(&mut self, speed: &mut Speed) {
        let windows = std::mem::take(&mut self.windows);
        if std::mem::take(&mut self.is_told) {
            return;
        }
        let least = self.last.speed().map_or(0.0, |link| link * WINDOW_PART_MIN);
        let fastest = windows.iter().map(|window| window.rate()).fold(0.0, f64::max);
        for window in windows {
            let rate = window.rate();
            if window.bytes >= WINDOW_BYTES_MIN && rate >= least && rate >= fastest * NEARLY_FASTEST {
                speed.add(self.last.at_ns, window.bytes, window.took_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const MB: u64 = 1_000_000;

    /// A machine of files.
    struct Machine {
        dir: tempfile::TempDir,
        links: Links,
    }

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let links = Links::below(dir.path().to_owned());
            Machine { dir, links }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn device(&self, name: &str, is_physical: bool, received: u64, speed: Option<&str>) {
            let file = |file: &str| format!("sys/class/net/{name}/{file}");
            self.write(&file("statistics/rx_bytes"), &format!("{received}\n"));
            self.write(&file("statistics/tx_bytes"), &format!("{}\n", received / 10));
            if is_physical {
                fs::create_dir_all(self.dir.path().join(file("device"))).unwrap();
            }
            if let Some(speed) = speed {
                self.write(&file("speed"), speed);
            }
        }

        fn read(&self, at_s: u64) -> LinkReading {
            self.links.read(at_s * SECOND_NS).unwrap()
        }
    }

    /// One link with this number of received bytes and this speed in Mbit/s.
    fn at(at_ms: u64, received: u64, speed: Option<f64>) -> LinkReading {
        let counters =
            Counters { received, sent: received / 10, speed: speed.map(|mbit_s| mbit_s * 1e6 / 8.0) };
        LinkReading { at_ns: at_ms * 1_000_000, links: [("eth0".to_owned(), counters)].into() }
    }

    /// The speed in MB/s after windows of one second that received these MB.
    fn evidence(link: Option<f64>, windows: &[u64]) -> Option<f64> {
        let mut speed = Speed::default();
        let mut run = FetchRun::new(at(0, 0, link));
        let (mut received, mut ms) = (0, 0);
        for mb in windows {
            (received, ms) = (received + mb * MB, ms + 1_000);
            run.look(at(ms, received, link), &mut speed);
        }
        run.count(&mut speed);
        speed.rate(ms * 1_000_000).map(|bytes_s| (bytes_s / 1e4).round() / 100.0)
    }

    #[test]
    fn bridges_and_containers_do_not_count_the_same_bytes_again() {
        let machine = Machine::new();
        machine.device("eth0", true, 100, Some("1000\n"));
        machine.device("lo", false, 70, None);
        machine.device("docker0", false, 80, Some("10000\n"));
        machine.device("veth12", false, 80, Some("10000\n"));
        let first = machine.read(1);
        assert_eq!(first.links.keys().collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(first.speed(), Some(125e6));
        machine.device("eth0", true, 350, Some("1000\n"));
        machine.device("docker0", false, 900, None);
        assert_eq!(machine.read(3).received_since(&first), Window { bytes: 250, took_ns: 2 * SECOND_NS });
    }

    #[test]
    fn in_a_container_the_device_of_the_default_route_counts() {
        let machine = Machine::new();
        machine.device("eth0", false, 100, Some("10000\n"));
        machine.device("lo", false, 5, None);
        assert_eq!(machine.links.read(1), None, "there is no route");
        machine.write(
            "proc/net/route",
            "Iface\tDestination\tGateway\neth0\t00000000\t010011AC\neth0\t000011AC\t00000000\nlo\t0000007F\t0\n",
        );
        assert_eq!(machine.read(1).links.keys().collect::<Vec<_>>(), ["eth0"]);
        assert_eq!(Machine::new().links.read(1), None, "nor are there devices");
    }

    #[test]
    fn a_device_that_does_not_know_its_speed_leaves_it_unknown() {
        let machine = Machine::new();
        for speed in ["-1\n", "0", "fast", ""] {
            machine.device("eth0", true, 100, Some(speed));
            assert_eq!(machine.read(1).speed(), None, "{speed}");
        }
    }

    #[test]
    fn a_counter_that_began_again_counts_nothing() {
        let machine = Machine::new();
        machine.device("eth0", true, 1_000, None);
        machine.device("eth1", true, 50, None);
        let first = machine.read(1);
        machine.device("eth0", true, 10, None);
        machine.device("eth1", true, 57, None);
        machine.device("eth2", true, 1 << 40, None);
        assert_eq!(machine.read(2).received_since(&first).bytes, 7);
    }

    #[test]
    fn the_use_of_a_link_is_averaged_and_unknown_where_it_tells_no_speed() {
        let mut load = LinkLoad::default();
        assert_eq!(load.update(Some(at(0, 0, Some(1_000.0)))), None, "there is nothing to compare with");
        let second = load.update(Some(at(1_000, 125 * MB, Some(1_000.0)))).unwrap();
        assert_eq!((second.in_mbit_s, second.out_mbit_s), (1_000.0, 100.0));
        assert!((9.0..10.0).contains(&second.percent.unwrap()), "a burst of a second is little: {second:?}");
        let mut last = second;
        for n in 2..=40 {
            last = load.update(Some(at(n * 1_000, n * 125 * MB, Some(1_000.0)))).unwrap();
        }
        assert!((97.0..=100.0).contains(&last.percent.unwrap()), "{last:?}");
        assert_eq!(load.update(None), None);
        assert_eq!(load.update(Some(at(50_000, 0, None))), None);
        let unknown = load.update(Some(at(51_000, MB, None))).unwrap();
        assert_eq!((unknown.in_mbit_s, unknown.percent), (8.0, None));
        let again = load.update(Some(at(52_000, 0, None))).unwrap();
        assert_eq!(again.in_mbit_s, 0.0, "a counter that began again");
        assert_eq!(load.update(Some(at(52_000, MB, None))), None, "no time has passed");
    }

    #[test]
    fn only_the_busiest_seconds_of_a_run_count() {
        assert_eq!(evidence(None, &[0, 100, 100, 0, 0, 3, 0]), Some(100.0), "it fetched, and then computed");
        assert_eq!(
            evidence(None, &[100, 50, 49]),
            Some(83.33),
            "weighed by bytes, from half of the fastest on"
        );
        assert_eq!(evidence(None, &[]), None);
    }

    #[test]
    fn a_task_that_hardly_fetches_says_nothing_of_the_network() {
        assert_eq!(evidence(None, &[0, 1, 0, 1]), None, "less than a MiB");
        assert_eq!(evidence(Some(1_000.0), &[5, 6, 2]), None, "less than a twentieth of 125 MB/s");
        assert_eq!(evidence(Some(1_000.0), &[7, 1]), Some(7.0));
    }

    #[test]
    fn what_a_task_says_itself_is_preferred() {
        let mut speed = Speed::default();
        let mut run = FetchRun::new(at(0, 0, None));
        run.look(at(1_000, 100 * MB, None), &mut speed);
        run.told();
        run.count(&mut speed);
        assert_eq!(speed.rate(0), None);
        run.look(at(2_000, 300 * MB, None), &mut speed);
        run.count(&mut speed);
        assert_eq!(speed.rate(2 * SECOND_NS), Some(2e8), "later windows count again");
    }

    #[test]
    fn windows_are_bounded_in_length_and_number() {
        let mut speed = Speed::default();
        let mut run = FetchRun::new(at(0, 0, None));
        run.look(at(50, 50 * MB, None), &mut speed);
        assert!(run.windows.is_empty(), "the next one has these bytes too");
        run.look(at(500, 100 * MB, None), &mut speed);
        assert_eq!(run.windows, [Window { bytes: 100 * MB, took_ns: 500_000_000 }]);
        for n in 1..WINDOWS_MAX as u64 {
            assert_eq!(speed.rate(0), None);
            run.look(at(500 + n * 500, (1 + n) * 100 * MB, None), &mut speed);
        }
        assert!(run.windows.is_empty());
        assert_eq!(speed.rate(0), Some(2e8), "a run that does not end is counted by and by");
    }
}
