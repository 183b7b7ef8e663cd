//! Limits.

use windlass_api::Limit;
use windlass_core::engine::Engine;
use windlass_core::licences;

/// The limit of that name; `None` if there is none.
pub fn limit(engine: &Engine, name: &str) -> Option<Limit> {
    let licences::Limit { max, per_worker, busy } = engine.licences().limits().get(name)?.clone();
    let (exits, back_off_ms) = busy.map(|busy| (busy.exits, busy.back_off_ms)).unzip();
    Some(Limit {
        name: name.to_owned(),
        max,
        used: engine.licences().taken().get(name).copied().unwrap_or(0),
        per_worker,
        busy_exits: exits.into_iter().flatten().collect(),
        back_off_ms,
        backing_off: engine.licences().backing_off(name),
    })
}
