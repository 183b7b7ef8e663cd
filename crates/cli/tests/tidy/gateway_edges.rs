//! Which modules of a gateway, and of a crate that one alone uses, may use each other.
//!
//! The rows are those of [`super::edges`].

/// The modules of Compass CI's gateway that each of its modules may use. There is no circle.
pub const COMPASS_EDGES: [(&str, &[&str]); 23] = [
    ("answer", &[]),
    ("caller", &[]),
    ("number", &[]),
    ("options", &[]),
    ("paths", &[]),
    ("time", &[]),
    ("format", &["number"]),
    ("max_run", &["format"]),
    ("parcel", &["format"]),
    ("record", &["format", "time"]),
    ("sealed", &["format"]),
    ("access", &["answer", "format", "record"]),
    ("files", &["options", "sealed"]),
    ("view", &["format", "number", "record", "time"]),
    ("fill", &["files", "format", "record", "time"]),
    ("packages", &["files", "format"]),
    ("waits", &["format", "number", "record", "view"]),
    ("boot", &["fill", "format", "record"]),
    ("lab", &["boot", "files", "fill", "format", "number", "record", "time"]),
    ("app", &["files", "lab", "max_run", "waits"]),
    (
        "http",
        &[
            "access", "answer", "app", "boot", "caller", "files", "fill", "format", "lab", "max_run",
            "number", "packages", "parcel", "paths", "record", "time", "view",
        ],
    ),
    ("gateway", &["app", "files", "http", "options", "paths"]),
    ("lib", &["gateway", "options"]),
];

/// The modules of Nix's gateway that each of its modules may use. There is no circle.
pub const NIX_EDGES: [(&str, &[&str]); 4] =
    [("wire", &[]), ("hook", &["wire"]), ("service", &["wire"]), ("lib", &["service"])];

/// The modules of sccache's scheduler that each of its modules may use. There is no circle.
pub const SCCACHE_EDGES: [(&str, &[&str]); 16] = [
    ("config", &[]),
    ("wire", &[]),
    ("assign", &["wire"]),
    ("farm", &["wire"]),
    ("probe", &["wire"]),
    ("tokens", &["wire"]),
    ("counts", &["farm", "wire"]),
    ("issuer", &["tokens"]),
    ("known", &["issuer", "tokens"]),
    ("clients", &["config", "issuer", "known", "tokens"]),
    ("state", &["counts", "farm", "wire"]),
    ("scheduler", &["assign", "clients", "config", "farm", "issuer", "state", "tokens", "wire"]),
    ("http", &["issuer", "scheduler", "tokens", "wire"]),
    ("loads", &["scheduler", "wire"]),
    ("servers", &["farm", "scheduler", "state", "wire"]),
    ("lib", &[]),
];

/// The modules of OpenCue's gateway that each of its modules may use. There is no circle.
pub const OPENCUE_EDGES: [(&str, &[&str]); 12] = [
    ("booking", &[]),
    ("dial", &[]),
    ("faults", &[]),
    ("finding", &[]),
    ("rqd", &[]),
    ("schema", &[]),
    ("workers", &["faults", "finding", "rqd"]),
    ("scheduler", &["booking", "dial", "faults", "rqd", "workers"]),
    ("board", &["scheduler"]),
    ("checkup", &["finding", "scheduler"]),
    ("service", &["board", "checkup", "dial", "finding", "scheduler", "schema", "workers"]),
    ("lib", &[]),
];

/// The modules of Cuebot's calls that each of its modules may use. There is no circle.
pub const CUEBOT_EDGES: [(&str, &[&str]); 24] = [
    ("attempts", &[]),
    ("frames", &[]),
    ("generated", &[]),
    ("hosts", &[]),
    ("locks", &[]),
    ("names", &[]),
    ("networks", &[]),
    ("schema", &[]),
    ("seldom", &[]),
    ("verdict", &[]),
    ("ended", &["names"]),
    ("kept", &["generated", "names"]),
    ("spec", &["frames", "generated", "names"]),
    ("trouble", &["frames", "names", "spec"]),
    ("cuebot", &["attempts", "ended", "hosts", "kept", "networks", "seldom", "trouble"]),
    ("depends", &["frames", "generated", "locks", "spec", "trouble"]),
    ("procs", &["trouble"]),
    ("launch", &["cuebot", "depends", "generated", "locks", "spec", "trouble"]),
    ("routes", &["cuebot", "spec", "trouble"]),
    (
        "report",
        &[
            "attempts",
            "cuebot",
            "depends",
            "ended",
            "generated",
            "hosts",
            "kept",
            "locks",
            "names",
            "procs",
            "routes",
            "trouble",
            "verdict",
        ],
    ),
    (
        "calls",
        &[
            "cuebot",
            "depends",
            "frames",
            "generated",
            "hosts",
            "launch",
            "locks",
            "names",
            "report",
            "routes",
            "spec",
            "trouble",
        ],
    ),
    ("server", &["calls", "cuebot", "report", "routes"]),
    ("upkeep", &["cuebot", "hosts", "report", "trouble", "verdict"]),
    ("lib", &[]),
];
