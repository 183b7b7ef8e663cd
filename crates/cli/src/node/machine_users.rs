//! The server's side of one server for all users of a machine: who may open its socket, who administers it, and as whom
//! tasks run.

use crate::ui::message::message;
use anyhow::Context as _;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;
use windlass_server::{AccountLookup, MachineConfig, MachineUsers};
use windlass_worker::{UserEntry, UserMap, group_number, name_of_user, peer_groups};

/// The users whom the server's socket lets in.
pub fn known_users(machine: &MachineConfig) -> anyhow::Result<Arc<MachineUsers>> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "a server with [machine] has to be root, because it runs the tasks of each user with that user's rights; \
         'windlass server install --machine' sets it up"
    );
    let admins = number_of(&machine.admins)?;
    if admins.is_none() {
        message!("note: there is no group '{}': only root administers this server", machine.admins);
    }
    let lookup = AccountLookup { name_of: name_of_user, groups_of: peer_groups };
    Ok(Arc::new(MachineUsers::new(admins, lookup)))
}

/// Lets the members of the server's group connect to its socket, which only root can until then.
pub fn open_socket(address: &str, machine: &MachineConfig) -> anyhow::Result<()> {
    let name = &machine.group;
    let group = number_of(name)?.with_context(|| {
        format!("there is no group '{name}' for the socket; 'groupadd --system {name}' makes it")
    })?;
    let path = Path::new(address.strip_prefix("unix:").unwrap_or(address));
    chown(path, None, Some(group))
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o660)))
        .with_context(|| format!("cannot give {} to the group '{name}'", path.display()))
}

/// As whom tasks run: as the users who submit them, and accounts of the system only where that is set.
pub fn user_map(machine: &MachineConfig) -> anyhow::Result<UserMap> {
    let mut entries = vec![UserEntry::new("*", "*")];
    for text in &machine.map_users {
        let entry: Result<UserEntry, String> = text.parse();
        entries.push(entry.map_err(anyhow::Error::msg).context("map_users of [machine]")?);
    }
    Ok(UserMap::new(entries)?)
}

fn number_of(group: &str) -> anyhow::Result<Option<u32>> {
    group_number(group).with_context(|| format!("cannot look up the group '{group}'"))
}
