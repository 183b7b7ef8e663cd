//! How many cores a frame gets on a host. All cores are hundredths of a core, and memory is in KiB, as in the tables.

use super::snapshot::{Host, Layer};

/// A host of this mode gives each threadable frame all its idle cores, and takes no others.
pub const THREADS_ALL: i32 = 1;
/// A host of this mode gives a threadable frame at least two cores.
pub const THREADS_VARIABLE: i32 = 2;
/// What a frame gets at least where the host's mode is variable.
const VARIABLE_CORES_MIN: i64 = 200;
/// Hundredths in one core.
const CORE: i64 = 100;

/// The operator's rules for cores beyond the minimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountRules {
    /// A frame that would leave at most this memory on a host gets all its idle cores, because no other frame could
    /// use them. In KiB.
    pub stranded_mem_kib: i64,
    /// Services whose frames get all idle cores of a host.
    pub selfish_services: Vec<String>,
}

/// The cores that a frame of the layer needs at least on a host of `host_cores`. Of `cores_min`, 0 asks for all of
/// them, and a negative number leaves that number. `None` where the host has too few.
pub fn least(layer: &Layer, host_cores: i64) -> Option<i64> {
    let cores = if layer.cores_min > 0 { layer.cores_min } else { host_cores + layer.cores_min };
    (cores > 0 && cores <= host_cores).then_some(cores)
}

/// The cores that a frame gets there, where `idle` and `idle_mem_kib` are left and the caps allow `allowed`. Never
/// fewer than `least`, which the caller has found to fit.
pub fn cores(
    layer: &Layer,
    host: &Host,
    least: i64,
    (idle, idle_mem_kib): (i64, i64),
    allowed: i64,
    rules: &AmountRules,
) -> i64 {
    if !layer.is_threadable {
        return least;
    }
    let is_selfish = layer.services.iter().any(|service| rules.selfish_services.contains(service));
    let strands = idle_mem_kib - layer.mem_min_kib <= rules.stranded_mem_kib;
    let wanted = match host.thread_mode {
        THREADS_ALL => idle,
        THREADS_VARIABLE if least <= VARIABLE_CORES_MIN => VARIABLE_CORES_MIN,
        _ if is_selfish || strands => idle,
        _ => by_memory(layer, host),
    };
    let max = if layer.cores_max > 0 { layer.cores_max } else { i64::MAX };
    let given = wanted.min(max).min(idle).min(allowed);
    // Beyond the minimum a frame gets whole cores.
    if given <= least { least } else { least.max(given / CORE * CORE) }
}

/// Cores in proportion to the part of the host's memory that the layer requests.
fn by_memory(layer: &Layer, host: &Host) -> i64 {
    let per_core_kib = host.size.mem_kib / (host.size.cores / CORE).max(1);
    layer.mem_min_kib / per_core_kib.max(1) * CORE
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cuebot::Amounts;

    fn layer(cores_min: i64, mem_min_kib: i64) -> Layer {
        Layer { cores_min, mem_min_kib, is_threadable: true, ..Layer::default() }
    }

    fn host(thread_mode: i32) -> Host {
        let size = Amounts { cores: 3_200, mem_kib: 128 << 20, ..Amounts::default() };
        Host { thread_mode, size, ..Host::default() }
    }

    fn rules() -> AmountRules {
        AmountRules { stranded_mem_kib: 2 << 20, selfish_services: vec!["katana".to_owned()] }
    }

    const IDLE: (i64, i64) = (3_200, 128 << 20);

    #[test]
    fn none_or_less_than_none_asks_for_the_host() {
        assert_eq!(least(&layer(100, 0), 3_200), Some(100));
        assert_eq!(least(&layer(10, 0), 3_200), Some(10), "a tenth of a core is that");
        assert_eq!(least(&layer(0, 0), 3_200), Some(3_200));
        assert_eq!(least(&layer(-200, 0), 3_200), Some(3_000));
        assert_eq!(least(&layer(-200, 0), 200), None);
        assert_eq!(least(&layer(400, 0), 200), None);
    }

    #[test]
    fn threads_follow_the_hosts_mode_and_the_layers_memory() {
        let cases = [
            // Mode, cores asked, memory asked, cores got.
            (0, 100, 4 << 20, 100),
            (0, 100, 16 << 20, 400),
            (0, 800, 16 << 20, 800),
            (0, 100, 127 << 20, 3_200),
            (THREADS_ALL, 100, 4 << 20, 3_200),
            (THREADS_VARIABLE, 100, 4 << 20, 200),
            (THREADS_VARIABLE, 400, 4 << 20, 400),
        ];
        for (mode, asked, mem, got) in cases {
            let cores = cores(&layer(asked, mem), &host(mode), asked, IDLE, i64::MAX, &rules());
            assert_eq!(cores, got, "mode {mode}, {asked} cores, {mem} KiB");
        }
    }

    #[test]
    fn caps_and_maxima_bound_what_is_beyond_the_minimum() {
        let all = host(THREADS_ALL);
        let capped = Layer { cores_max: 850, ..layer(100, 1) };
        assert_eq!(cores(&capped, &all, 100, IDLE, i64::MAX, &rules()), 800);
        assert_eq!(cores(&capped, &all, 100, IDLE, 350, &rules()), 300);
        assert_eq!(cores(&layer(50, 1), &all, 50, (75, 128 << 20), i64::MAX, &rules()), 50);
        let single = Layer { is_threadable: false, ..layer(150, 1) };
        assert_eq!(cores(&single, &host(0), 150, IDLE, i64::MAX, &rules()), 150);
        let selfish = Layer { services: vec!["katana".to_owned()], ..layer(100, 1) };
        assert_eq!(cores(&selfish, &host(0), 100, IDLE, i64::MAX, &rules()), 3_200);
    }
}
