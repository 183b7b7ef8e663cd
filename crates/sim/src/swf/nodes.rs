//! Node specifications of jobs in the syntax of Torque and PBS, such as `2:ppn=8:x86_64:^node7#excl`. Some
//! traces have them in an extra field, which `read` parses with this module. Whether a machine meets one is
//! decided in `workload`.

/// The machines that a job asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSpec {
    /// Number of machines of this kind.
    pub nodes: u32,
    /// Hundredths of a core on each; `None` if not specified.
    pub cpu: Option<u32>,
    /// Tags that each must have, or names of machines.
    pub tags: Vec<String>,
    /// Tags that none may have, or names of machines to avoid.
    pub without: Vec<String>,
    /// Whether no other job may be on the machines meanwhile.
    pub exclusive: bool,
}

/// The reason why a specification is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum BadNodes {
    #[error("asks for more than {KINDS_MAX} kinds of machines ('+')")]
    Kinds,
    #[error("asks for no machine or too many")]
    Nodes,
    #[error("ppn is not a number of cores")]
    Cpu,
}

/// Machines, and cores of each, that one job may ask for.
const NODES_MAX: u32 = 100_000;
/// Kinds of machines that one job may ask for.
const KINDS_MAX: usize = 64;

impl NodeSpec {
    /// Parses a specification: one part for each kind of machine, separated by `+`. What follows `#` is for all parts.
    ///
    /// # Errors
    ///
    /// Numbers out of range, and too many parts.
    pub fn parse(text: &str) -> Result<Vec<NodeSpec>, BadNodes> {
        let (text, flags) = text.split_once('#').unwrap_or((text, ""));
        let exclusive = flags.split('#').any(|flag| flag == "excl");
        if text.split('+').count() > KINDS_MAX {
            return Err(BadNodes::Kinds);
        }
        text.split('+').map(|part| NodeSpec::parse_part(part, exclusive)).collect()
    }

    fn parse_part(text: &str, exclusive: bool) -> Result<NodeSpec, BadNodes> {
        let mut spec = NodeSpec { nodes: 1, exclusive, ..NodeSpec::default() };
        for (place, item) in text.split(':').filter(|item| !item.is_empty()).enumerate() {
            if place == 0 && item.bytes().all(|byte| byte.is_ascii_digit()) {
                spec.nodes =
                    item.parse().ok().filter(|n| (1..=NODES_MAX).contains(n)).ok_or(BadNodes::Nodes)?;
            } else if let Some(cpus) = item.strip_prefix("ppn=") {
                spec.cpu = Some(hundredths(cpus).ok_or(BadNodes::Cpu)?);
            } else if let Some(unwanted) = item.strip_prefix('^') {
                spec.without.push(unwanted.to_owned());
            } else {
                spec.tags.push(item.strip_prefix("host=").unwrap_or(item).to_owned());
            }
        }
        spec.tags.sort();
        spec.tags.dedup();
        Ok(spec)
    }
}

fn hundredths(cpus: &str) -> Option<u32> {
    let cpus = cpus.parse::<f64>().ok().filter(|cpus| *cpus > 0.0 && *cpus <= f64::from(NODES_MAX))?;
    Some(((cpus * 100.0).round() as u32).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(of: &[&str]) -> Vec<String> {
        of.iter().map(|tag| (*tag).to_owned()).collect()
    }

    fn one(text: &str) -> NodeSpec {
        let mut parts = NodeSpec::parse(text).unwrap();
        assert_eq!(parts.len(), 1, "{text}");
        parts.remove(0)
    }

    #[test]
    fn kinds_of_machines_are_parts() {
        let parts = NodeSpec::parse("2:ppn=1:a+3:ppn=2#excl").unwrap();
        let of = |part: &NodeSpec| (part.nodes, part.cpu, part.tags.len(), part.exclusive);
        assert_eq!(
            parts.iter().map(of).collect::<Vec<_>>(),
            [(2, Some(100), 1, true), (3, Some(200), 0, true)]
        );
    }

    #[test]
    fn all_that_a_specification_can_say() {
        let spec = one("4:ppn=8:x86_64:brno:^zewura12.cerit-sc.cz#excl");
        assert_eq!((spec.nodes, spec.cpu, spec.exclusive), (4, Some(800), true));
        assert_eq!((spec.tags, spec.without), (tags(&["brno", "x86_64"]), tags(&["zewura12.cerit-sc.cz"])));
    }

    #[test]
    fn what_is_not_said_is_one_machine() {
        assert_eq!(one("1"), NodeSpec { nodes: 1, ..NodeSpec::default() });
        let named = one("zewura19.cerit-sc.cz:ppn=1.5:a:a");
        assert_eq!((named.nodes, named.cpu), (1, Some(150)));
        assert_eq!(named.tags, tags(&["a", "zewura19.cerit-sc.cz"]));
        assert_eq!(one("1:ppn=5:host=w10").tags, tags(&["w10"]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(NodeSpec::parse(&"1+".repeat(KINDS_MAX)), Err(BadNodes::Kinds));
        assert_eq!(NodeSpec::parse("1:ppn=2+0:ppn=4"), Err(BadNodes::Nodes));
        assert_eq!(NodeSpec::parse("0:ppn=2"), Err(BadNodes::Nodes));
        assert_eq!(NodeSpec::parse("99999999999"), Err(BadNodes::Nodes));
        for cpus in ["0", "-1", "x", "", "nan", "inf", "1e9"] {
            assert_eq!(NodeSpec::parse(&format!("1:ppn={cpus}")), Err(BadNodes::Cpu), "{cpus}");
        }
    }
}
