//! Names that jobs and hosts share: fields, sections, attributes and resources.

/// The value of [`EXECUTOR`](windlass_core::tags::EXECUTOR) for hosts that run jobs of Compass CI.
pub const EXECUTOR_NAME: &str = "compass-ci";
/// The resource of which a bare-metal machine has 1, and each of its jobs takes 1.
pub const BOX: &str = "testbox";
/// The sections of a job that its machine runs, in their order.
pub const SECTIONS: [&str; 4] = ["setup", "daemon", "monitor", "program"];
/// The field in which the order of the sections' entries is kept.
pub const SECTION_ORDER: &str = "section_order";
/// The part of a job's own `cluster_spec` whose order is kept, too, because addresses are given in that order.
pub(super) const NODES: &str = "nodes";
/// The field of a job with its own specification of a cluster.
pub(crate) const CLUSTER_SPEC: &str = "cluster_spec";
/// The field in which each node's job keeps the roles of all nodes, in their order.
pub(crate) const CLUSTER_ROLES: &str = "cluster_roles";
/// The field in which a job's secrets are kept, sealed.
pub(crate) const SEALED_SECRETS: &str = "sealed_secrets";
