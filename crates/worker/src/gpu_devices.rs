//! The GPUs that a worker may use: those that nvidia-smi shows and that work, or those of them that an operator or
//! `CUDA_VISIBLE_DEVICES` leaves to the worker. `detect` asks nvidia-smi, the agent tells the keeper the names, and the
//! keeper hands them out. Nothing here does I/O.

/// The variable by which CUDA knows its devices: a worker's own, and that of its tasks.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable by which CUDA numbers devices, and its value for tasks: as nvidia-smi does. By default 0 is the fastest one.
pub const ORDER: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
/// Value of [`VISIBLE`] for tasks without GPUs. Some programs take an empty value for one that is not set.
pub const NO_DEVICE: &str = "-1";
/// Arguments with which nvidia-smi prints what [`parse`] reads.
pub const QUERY: [&str; 2] = ["--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"];
/// Most GPUs that a worker may declare: more than any machine has.
const GPUS_MAX: u32 = 4_096;
/// Beginnings of names of a whole GPU and of a part of one.
const UUID: &str = "GPU-";
const MIG: &str = "MIG-";
/// Words of nvidia-smi in the place of a value, of a device that does not work. `[N/A]` and `[Not Supported]` are of devices
/// that do.
const FAULTS: [&str; 4] = ["is lost", "requires reset", "Unknown Error", "ERR!"];

/// A GPU that tasks may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuDevice {
    /// Its name in `CUDA_VISIBLE_DEVICES`: an index, a UUID, or that of a part.
    pub name: String,
    /// Its memory; 0 if unknown.
    pub memory_bytes: u64,
}

/// A device as nvidia-smi shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownDevice {
    /// Its place on the bus among all devices.
    pub index: u32,
    /// Its name on any machine, such as `GPU-8f6…`.
    pub uuid: String,
    /// Its memory; 0 if unknown.
    pub memory_bytes: u64,
    /// What nvidia-smi says of a device that does not work.
    pub fault: Option<String>,
}

/// What limits the GPUs of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AskedGpus {
    /// How many it has, as its operator says; `None` for all.
    pub count: Option<u32>,
    /// Which ones, as its operator says: names with commas between them.
    pub listed: Option<String>,
    /// `CUDA_VISIBLE_DEVICES` of the worker itself, which counts unless the operator lists some.
    pub visible: Option<String>,
}

impl AskedGpus {
    /// The operator's words, and this process's variable.
    pub fn here(count: Option<u32>, listed: Option<String>) -> Self {
        AskedGpus { count, listed, visible: std::env::var(VISIBLE).ok() }
    }
}

/// Why the operator's words cannot be followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors show what each field is")]
pub enum BadGpuDevices {
    #[error("gpu_devices names '{name}', and nvidia-smi shows {shown}; name one of these")]
    Unknown { name: String, shown: String },
    #[error("gpu_devices names '{name}', which does not work: nvidia-smi says '{fault}'; leave it out")]
    Faulty { name: String, fault: String },
    #[error("gpu_devices names '{name}' twice; name it once")]
    Twice { name: String },
    #[error(
        "{count} gpus are more than the {are} that {by} leaves this worker; declare fewer, or correct it"
    )]
    TooMany { count: u32, are: usize, by: &'static str },
    #[error("{0} gpus are more than any machine has; declare {GPUS_MAX} at most")]
    Absurd(u32),
}

/// The devices in nvidia-smi's answer to [`QUERY`]. Lines that are about something else are passed over.
pub fn parse(text: &str) -> Vec<ShownDevice> {
    let devices = text.lines().filter_map(|line| {
        let mut fields = line.split(',').map(str::trim);
        let index = fields.next()?.parse().ok()?;
        let (uuid, memory) = (fields.next()?, fields.next()?);
        let fault = [uuid, memory].into_iter().find(|field| FAULTS.iter().any(|fault| field.contains(fault)));
        Some(ShownDevice {
            index,
            uuid: uuid.to_owned(),
            memory_bytes: memory.parse::<u64>().unwrap_or(0) << 20,
            fault: fault.map(str::to_owned),
        })
    });
    devices.collect()
}

/// The devices that tasks may use; `None` if nothing is known of any.
///
/// # Errors
/// If the operator's words contradict each other or what is shown.
pub fn choose(shown: &[ShownDevice], asked: &AskedGpus) -> Result<Option<Vec<GpuDevice>>, BadGpuDevices> {
    let (usable, by) = match (&asked.listed, &asked.visible) {
        (Some(listed), _) => (Some(of_list(listed, shown)?), "gpu_devices"),
        // Without nvidia-smi the variable alone does not make a device.
        (None, Some(visible)) if !shown.is_empty() || asked.count.is_some() => {
            (Some(of_variable(visible, shown)), VISIBLE)
        }
        _ => {
            let working = shown.iter().filter(|device| device.fault.is_none());
            let working: Vec<GpuDevice> = working.map(|device| named(device, shown)).collect();
            ((!shown.is_empty()).then_some(working), "")
        }
    };
    let Some(count) = asked.count else { return Ok(usable) };
    let wanted = count as usize;
    match usable {
        Some(mut devices) if wanted <= devices.len() => {
            devices.truncate(wanted);
            Ok(Some(devices))
        }
        Some(devices) if !by.is_empty() => Err(BadGpuDevices::TooMany { count, are: devices.len(), by }),
        _ if count > GPUS_MAX => Err(BadGpuDevices::Absurd(count)),
        // The operator knows of more than nvidia-smi does. Each counts with the mean of the memory that is known.
        usable => {
            let known = usable.unwrap_or_default();
            let bytes: u64 = known.iter().map(|device| device.memory_bytes).sum();
            let memory_bytes = bytes.checked_div(known.len() as u64).unwrap_or(0);
            Ok(Some((0..count).map(|index| GpuDevice { name: index.to_string(), memory_bytes }).collect()))
        }
    }
}

/// The devices that an operator lists. Where nvidia-smi shows nothing the operator is believed.
fn of_list(listed: &str, shown: &[ShownDevice]) -> Result<Vec<GpuDevice>, BadGpuDevices> {
    let mut devices: Vec<GpuDevice> = Vec::new();
    let mut seen: Vec<u32> = Vec::new();
    for name in listed.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let device = match find(name, shown) {
            Some(device) => match &device.fault {
                Some(fault) => {
                    return Err(BadGpuDevices::Faulty { name: name.to_owned(), fault: fault.clone() });
                }
                None if seen.contains(&device.index) => {
                    return Err(BadGpuDevices::Twice { name: name.to_owned() });
                }
                None => {
                    seen.push(device.index);
                    as_listed(name, device, shown)
                }
            },
            None if shown.is_empty() || name.starts_with(MIG) => unseen(name),
            None => {
                let all: Vec<String> = shown.iter().map(|device| device.index.to_string()).collect();
                return Err(BadGpuDevices::Unknown { name: name.to_owned(), shown: all.join(", ") });
            }
        };
        if devices.contains(&device) {
            return Err(BadGpuDevices::Twice { name: name.to_owned() });
        }
        devices.push(device);
    }
    Ok(devices)
}

/// The devices of the worker's own variable. As in CUDA, what stands behind a name that means none is not seen.
fn of_variable(visible: &str, shown: &[ShownDevice]) -> Vec<GpuDevice> {
    let mut devices: Vec<GpuDevice> = Vec::new();
    for name in visible.split(',').map(str::trim) {
        let device = match find(name, shown) {
            Some(device) if device.fault.is_some() => continue,
            Some(device) => as_listed(name, device, shown),
            None if name.starts_with(MIG) => unseen(name),
            None if shown.is_empty() && (name.parse::<u32>().is_ok() || name.starts_with(UUID)) => {
                unseen(name)
            }
            None => break,
        };
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

/// A shown device by its index, or by its UUID or a beginning of that which only one has.
fn find<'a>(name: &str, shown: &'a [ShownDevice]) -> Option<&'a ShownDevice> {
    if let Ok(index) = name.parse::<u32>() {
        return shown.iter().find(|device| device.index == index);
    }
    let mut with_name = shown.iter().filter(|device| name.starts_with(UUID) && device.uuid.starts_with(name));
    with_name.next().filter(|_| with_name.next().is_none())
}

/// A device by the name that it was given, if that is not an index.
fn as_listed(name: &str, device: &ShownDevice, shown: &[ShownDevice]) -> GpuDevice {
    let named = named(device, shown);
    if name.starts_with(UUID) { GpuDevice { name: name.to_owned(), ..named } } else { named }
}

/// A device by its index; by its UUID where another one does not work, because CUDA may not count that one.
fn named(device: &ShownDevice, shown: &[ShownDevice]) -> GpuDevice {
    let counts_on = shown.iter().all(|device| device.fault.is_none()) || !device.uuid.starts_with(UUID);
    let name = if counts_on { device.index.to_string() } else { device.uuid.clone() };
    GpuDevice { name, memory_bytes: device.memory_bytes }
}

/// A device that nvidia-smi does not show, such as a part of one.
fn unseen(name: &str) -> GpuDevice {
    GpuDevice { name: name.to_owned(), memory_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: &str = "0, GPU-aa10, 1024\n1, GPU-aa20, 2048\n2, GPU-bb30, 4096\n3, GPU-cc40, [N/A]\n";

    fn names(text: &str, asked: &AskedGpus) -> Result<Option<String>, BadGpuDevices> {
        let devices = choose(&parse(text), asked)?;
        Ok(devices.map(|all| all.into_iter().map(|device| device.name).collect::<Vec<_>>().join(" ")))
    }

    fn visible(value: &str) -> AskedGpus {
        AskedGpus { visible: Some(value.to_owned()), ..AskedGpus::default() }
    }

    fn listed(value: &str) -> AskedGpus {
        // An operator's list goes over the variable.
        AskedGpus { listed: Some(value.to_owned()), ..visible("3") }
    }

    fn is(names: &str) -> Result<Option<String>, BadGpuDevices> {
        Ok(Some(names.to_owned()))
    }

    #[test]
    fn all_devices_that_work_are_used_with_their_memory() {
        let all = choose(&parse(FOUR), &AskedGpus::default()).unwrap().unwrap();
        let mib: Vec<u64> = all.iter().map(|device| device.memory_bytes >> 20).collect();
        assert_eq!(mib, [1024, 2048, 4096, 0]);
        assert_eq!(names(FOUR, &AskedGpus::default()), is("0 1 2 3"));
        assert_eq!(names("No devices were found\n\n", &AskedGpus::default()), Ok(None));
    }

    #[test]
    fn a_device_that_does_not_work_is_left_out_and_the_others_keep_their_names() {
        for first in [
            "0, [GPU is lost], [GPU is lost]",
            "0, GPU-aa10, [Unknown Error]",
            "0, GPU-aa10, [GPU requires reset]",
        ] {
            let text = format!(
                "Unable to determine the device handle for GPU 0000:01:00.0\n{first}\n1, GPU-aa20, 2048\n"
            );
            assert_eq!(names(&text, &AskedGpus::default()), is("GPU-aa20"), "{first}");
            assert_eq!(names(&text, &visible("0,1")), is("GPU-aa20"), "{first}");
            let refused = names(&text, &listed("0,1")).unwrap_err();
            assert!(matches!(&refused, BadGpuDevices::Faulty { name, .. } if name == "0"), "{refused}");
        }
    }

    #[test]
    fn the_workers_own_variable_is_read_as_cuda_reads_it() {
        for (value, left) in [
            ("2,3", "2 3"),
            (" 3 , 0", "3 0"),
            ("", ""),
            ("-1", ""),
            ("1,-1,2", "1"),
            ("1,9,2", "1"),
            ("NoDevFiles", ""),
            ("GPU-bb30", "GPU-bb30"),
            ("GPU-b,GPU-c", "GPU-b GPU-c"),
            ("GPU-aa", ""),
            ("MIG-GPU-aa10/1/0,MIG-77", "MIG-GPU-aa10/1/0 MIG-77"),
            ("2,2", "2"),
        ] {
            assert_eq!(names(FOUR, &visible(value)), is(left), "{value}");
        }
        assert_eq!(names("", &visible("0,1")), Ok(None), "there are none");
        let told = AskedGpus { count: Some(2), ..visible("2,3") };
        assert_eq!(names("", &told), is("2 3"), "the operator says that there are");
    }

    #[test]
    fn an_operators_list_is_followed_or_refused() {
        assert_eq!(names(FOUR, &listed("2, 0")), is("2 0"));
        assert_eq!(names(FOUR, &listed("")), is(""));
        assert_eq!(names(FOUR, &listed("GPU-cc40,MIG-5")), is("GPU-cc40 MIG-5"));
        assert_eq!(names("", &listed("0,5")), is("0 5"), "nvidia-smi is not there");
        assert!(names(FOUR, &listed("4")).unwrap_err().to_string().contains("shows 0, 1, 2, 3"));
        for twice in ["1,1", "1,GPU-aa20", "MIG-5,MIG-5"] {
            assert!(matches!(names(FOUR, &listed(twice)), Err(BadGpuDevices::Twice { .. })), "{twice}");
        }
    }

    #[test]
    fn a_number_takes_the_first_ones() {
        let count = |count, asked| AskedGpus { count: Some(count), ..asked };
        assert_eq!(names(FOUR, &count(2, listed("3,1,0"))), is("3 1"));
        assert_eq!(names(FOUR, &count(1, visible("2,3"))), is("2"));
        assert_eq!(names(FOUR, &count(0, AskedGpus::default())), is(""));
        assert_eq!(names("", &count(2, AskedGpus::default())), is("0 1"));
        let more = choose(&parse("0, GPU-a, 1024\n1, GPU-b, 3072\n"), &count(3, AskedGpus::default()));
        let bytes: u64 = more.unwrap().unwrap().iter().map(|device| device.memory_bytes).sum();
        assert_eq!(bytes, 3 * (2 << 30));
        assert_eq!(names("", &count(u32::MAX, AskedGpus::default())), Err(BadGpuDevices::Absurd(u32::MAX)));
        let refused = names(FOUR, &count(3, visible("2,3"))).unwrap_err().to_string();
        assert!(refused.contains("3 gpus are more than the 2 that CUDA_VISIBLE_DEVICES leaves"), "{refused}");
    }
}
