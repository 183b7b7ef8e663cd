//! A laboratory's files about hosts. People write them by hand, so they are read leniently into a host's registered
//! fields.

use super::fields::{Fields, scalar, texts};
use super::host::HostRequest;
use serde_json::Value;

/// Fields with a list, which files also write as one value.
const LISTS: [&str; 7] =
    ["mac_addr", "rootfs_disk", "hdd_partitions", "ssd_partitions", "tags", "devices", "ip"];
/// Fields about switching a machine on and off, which this server does not do.
const LEFT_OUT: [&str; 4] = ["id", "ipmi_ip", "ipmi_user", "ipmi_password"];
/// The beginning of a line that includes another file.
const INCLUDES: &str = "<<:";

/// The fields of the host `name` in a file, and the names of the files that it includes, as they are written:
/// `hosts/OTHER`.
pub fn host_of_file(name: &str, text: &str) -> Result<(Fields, Vec<String>), String> {
    let (mut included, mut own) = (Vec::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix(INCLUDES).map(str::trim) {
            Some(file) if !file.starts_with(['*', '{', '[']) => included.push(file.to_owned()),
            _ => {
                own.push_str(line);
                own.push('\n');
            }
        }
    }
    let read = serde_json::from_str(&own).ok();
    let read: Result<Option<Value>, _> = match read {
        Some(json) => Ok(Some(json)),
        None => serde_saphyr::from_str(&own),
    };
    let mut fields = match read {
        Ok(Some(Value::Object(fields))) => fields,
        Ok(Some(Value::Null) | None) => Fields::new(),
        Ok(Some(_)) => return Err("it is not a mapping of fields to values".to_owned()),
        Err(error) => {
            return Err(format!("it is not YAML: {}", error.to_string().lines().next().unwrap_or_default()));
        }
    };
    fields.retain(|key, value| !value.is_null() && !LEFT_OUT.contains(&key.as_str()));
    for key in LISTS {
        let Some(value) = fields.get(key) else { continue };
        match texts(value).or_else(|| scalar(value).map(|one| vec![one])) {
            Some(all) => _ = fields.insert(key.to_owned(), all.into()),
            None => return Err(format!("{key} is not a list of words")),
        }
    }
    fields.insert("hostname".to_owned(), name.into());
    HostRequest::bare_metal(name, &fields).map_err(|bad| bad.to_string())?;
    Ok((fields, included))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn files_are_read_as_people_write_them() {
        let text = "<<: hosts/base\nnr_cpu: 64\nmemory: 256G\nmac_addr: 84:46:fe:73:b4:19\nhdd_partitions:\n\
                    rootfs_disk: [/dev/sda]\nipmi_ip: 1.2.3.4\nmodel_name: Kunpeng 920\n";
        let (fields, included) = host_of_file("box1", text).unwrap();
        let expected = json!({"hostname": "box1", "nr_cpu": 64, "memory": "256G", "mac_addr": ["84:46:fe:73:b4:19"],
            "rootfs_disk": ["/dev/sda"], "model_name": "Kunpeng 920"});
        assert_eq!((Value::Object(fields), included), (expected, vec!["hosts/base".to_owned()]));
        assert_eq!(host_of_file("vm-2p8g", "memory: 8\n").unwrap().0["memory"], 8);
        assert_eq!(host_of_file("empty", "# nothing\n").unwrap().0.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("- a\n- b\n", "not a mapping"),
            ("a: [b\n", "not YAML"),
            ("memory: lots\n", "memory must be an amount"),
            ("mac_addr: {a: 1}\n", "mac_addr is not a list"),
        ] {
            let error = host_of_file("box1", text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in "(<<: )?[a-z_: \\[\\]{}\\n0-9&*-]{0,60}") {
            _ = host_of_file("box1", &text);
        }
    }
}
