//! Strict bands: `vip` before all others, `idle` a slot when nothing higher fits.

/// The band of a queue by its name: `vip` 9, `idle` 1, every other 3.
pub fn band_of(name: &str) -> u8 {
    match name {
        "vip" => 9,
        "idle" => 1,
        _ => 3,
    }
}

/// The band of all users inside a queue: a queue has no bands inside.
pub(super) const USERS_BAND: u8 = 0;
