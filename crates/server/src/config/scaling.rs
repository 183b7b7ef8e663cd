//! The settings by which it is told how many workers are wanted.

use super::setting::{Setting, SettingType, Unit, settings};
use serde::Deserialize;
use std::collections::BTreeMap;
use windlass_api::Resources;
use windlass_core::bounds::{NAME_BYTES_MAX, WORKERS_MAX};
use windlass_core::scaling::{DeclaredClass, MACHINE_CLASSES_MAX, NO_CLASS, OTHER_CLASS, ScalingSettings};
use windlass_core::tags::Attributes;

settings! {
    /// [How many workers are wanted](../scaling.md), for programs that start and stop them.
    pub struct ScalingConfig {
        /// Time within which all tasks that wait should have started.
        target_wait_s: f64 = 300.0, unit Seconds, within 1.0..=1e6;
        /// Classes of machines that can be started, by name, with the fields of [a machine
        /// class](../scaling.md#machine-classes). By default those of the workers that there are.
        classes: BTreeMap<String, MachineClassConfig> = BTreeMap::new();
    }
}

/// One class of machines that can be started.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineClassConfig {
    /// Cpus that one worker declares.
    pub cpus: f64,
    /// Bytes of memory that one worker declares.
    #[serde(default)]
    pub memory: u64,
    /// Gpus that one worker declares.
    #[serde(default)]
    pub gpus: u32,
    /// Bytes of gpu memory that one worker declares.
    #[serde(default)]
    pub gpu_memory: u64,
    /// Other amounts that one worker declares, by name.
    #[serde(default)]
    pub custom: BTreeMap<String, u64>,
    /// Tags that tasks may ask for, `key` or `key=value`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Workers that are wanted although nothing waits.
    #[serde(default)]
    pub min: u32,
    /// Workers that are wanted at most; absent is any number.
    pub max: Option<u32>,
}

/// Only the file declares classes: a text for `--set` has no room for their fields.
impl SettingType for BTreeMap<String, MachineClassConfig> {
    fn list(&self, at: Setting, settings: &mut Vec<Setting>) {
        settings.push(Setting { path: at.inside("NAME"), ..at });
    }

    fn assign(&mut self, _: &str, _: &str, _: Unit) -> Result<(), String> {
        Err("only the file declares classes of machines".to_owned())
    }
}

impl ScalingConfig {
    /// The settings as the core has them.
    pub fn settings(&self) -> ScalingSettings {
        let declared = self.classes.iter().filter_map(|(name, class)| class.declared(name));
        ScalingSettings {
            target_wait_ms: (self.target_wait_s * 1000.0).round() as u64,
            declared: declared.collect(),
        }
    }

    /// Says which setting makes no sense, beyond bounds.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.classes.len() > MACHINE_CLASSES_MAX {
            return Err(format!("scaling.classes has more than {MACHINE_CLASSES_MAX} classes"));
        }
        for (name, class) in &self.classes {
            class.check(name).map_err(|why| format!("scaling.classes.{name}: {why}"))?;
        }
        Ok(())
    }
}

impl MachineClassConfig {
    fn check(&self, name: &str) -> Result<(), String> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || [NO_CLASS, OTHER_CLASS].contains(&name) {
            return Err(format!(
                "a class has a name of 1 to {NAME_BYTES_MAX} bytes, and '{NO_CLASS}' and '{OTHER_CLASS}' mean something \
                 else"
            ));
        }
        if let Some(max) = self.max.filter(|max| *max < self.min) {
            return Err(format!("max is {max}, less than min, which is {}", self.min));
        }
        match self.declared(name) {
            Some(class) if class.capacity.cpu > 0 => Ok(()),
            _ => Err(format!("cpus must be a number of at least 0.01, not {}", self.cpus)),
        }
    }

    /// `None` if the number of cpus makes no sense.
    fn declared(&self, name: &str) -> Option<DeclaredClass> {
        let MachineClassConfig { cpus, memory, gpus, gpu_memory, ref custom, .. } = *self;
        let amounts = Resources { cpus, memory, gpus, gpu_memory, custom: custom.clone() };
        let mut attributes = Attributes::new();
        for tag in &self.tags {
            let (key, value) =
                tag.split_once('=').map_or((tag.as_str(), None), |(key, value)| (key, Some(value)));
            attributes.entry(key.to_owned()).or_default().extend(value.map(str::to_owned));
        }
        let most = WORKERS_MAX as u32;
        Some(DeclaredClass {
            name: name.to_owned(),
            capacity: amounts.to_core()?,
            attributes,
            min: self.min.min(most),
            max: self.max.unwrap_or(most).min(most),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use std::collections::BTreeSet;
    use windlass_core::Resources;
    use windlass_core::scaling::{DeclaredClass, ScalingSettings};
    use windlass_core::tags::Attributes;

    #[test]
    fn every_setting_reaches_the_core() {
        let settings = |text: &str| Config::parse(text).unwrap().scaling.settings();
        assert_eq!(settings(""), ScalingSettings::default());
        let set = settings(
            "[scaling]\ntarget_wait_s = 1.5\n[scaling.classes.small]\ncpus = 4\n[scaling.classes.big]\ncpus = 64\n\
             memory = 9\ngpus = 2\ngpu_memory = 8\ncustom = { scratch = 7 }\ntags = ['ssd', 'zone=a', 'zone=b']\n\
             min = 1\nmax = 5",
        );
        assert_eq!(set.target_wait_ms, 1_500);
        let [big, small] = &set.declared[..] else { panic!("{set:?}") };
        let capacity = Resources {
            cpu: 6_400,
            memory: 9,
            gpus: 2,
            gpu_memory: 8,
            custom: [("scratch".to_owned(), 7)].into(),
        };
        assert_eq!((&*big.name, &big.capacity, big.min, big.max), ("big", &capacity, 1, 5));
        let zones = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let tags = Attributes::from([("ssd".to_owned(), BTreeSet::new()), ("zone".to_owned(), zones)]);
        assert_eq!(big.attributes, tags);
        let plain = DeclaredClass {
            name: "small".to_owned(),
            capacity: Resources::new(400, 0),
            ..Default::default()
        };
        assert_eq!(*small, plain);
    }

    #[test]
    fn mistakes_are_named() {
        let many: String = (0..33).map(|n| format!("[scaling.classes.c{n}]\ncpus = 1\n")).collect();
        for (text, why) in [
            ("[scaling]\ntarget_wait_s = 0", "scaling.target_wait_s must be"),
            ("[scaling.classes.a]\ncpus = 0", "scaling.classes.a: cpus"),
            ("[scaling.classes.a]\ncpus = nan", "scaling.classes.a: cpus"),
            ("[scaling.classes.a]\nmemory = 1", "cpus"),
            ("[scaling.classes.a]\ncpus = 1\nmax = 1\nmin = 2", "scaling.classes.a: max is 1"),
            ("[scaling.classes.none]\ncpus = 1", "scaling.classes.none: a class has a name"),
            ("[scaling.classes.a]\ncpus = 1\nram = 1", "ram"),
            (many.as_str(), "more than 32 classes"),
        ] {
            let refused = Config::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
