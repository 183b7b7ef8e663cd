//! Empty environment variables, which count as unset.

/// A task's own value, which may be empty and which this program does not read. Tasks of a nested run may.
const OF_TASKS: &str = "WINDLASS_VALUE";

/// Removes Windlass's empty variables from the environment of this process and of the processes that it starts. So an
/// empty variable is an unset one for each place that reads it, and none has to think of it.
///
/// # Safety
///
/// No other thread may run.
pub unsafe fn forget_empty() {
    let is_forgotten = |name: &str| name.starts_with("WINDLASS_") && name != OF_TASKS;
    let empty = std::env::vars_os().filter(|(_, value)| value.is_empty()).map(|(name, _)| name);
    let names: Vec<_> = empty.filter(|name| name.to_str().is_some_and(is_forgotten)).collect();
    for name in names {
        // SAFETY: no other thread reads or writes the environment.
        unsafe { std::env::remove_var(name) };
    }
}
