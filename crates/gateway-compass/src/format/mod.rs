//! Jobs and hosts of Compass CI in terms of its own interface: names of testboxes, fields of jobs, stages, wait
//! conditions, and requests of hosts. Pure functions from texts to values or errors.

mod bad_job;
mod cluster;
mod fields;
mod host;
mod job;
mod lab_file;
mod matrix;
mod names;
mod peers;
mod quantity;
mod result_root;
mod sections;
mod stage;
mod testbox;
mod wait;

pub(crate) use bad_job::bad_field;
pub use bad_job::{BadJob, JOB_BYTES_MAX};
pub use cluster::{CLUSTER_NODES_MAX, ClusterNode, ClusterSpec, check_cluster_name, cluster_name, nodes_of};
pub use fields::{Fields, text_of};
pub(crate) use fields::{has_name, is_variable, scalar, texts};
pub use host::{BadHost, HostRequest};
pub use job::{ANY, CompassJob, cluster_job, is_compass, public_fields};
pub use lab_file::host_of_file;
pub use matrix::{MATRIX_JOBS_MAX, jobs_of};
pub use names::{BOX, EXECUTOR_NAME, SECTION_ORDER, SECTIONS};
pub(crate) use names::{CLUSTER_ROLES, SEALED_SECRETS};
pub(crate) use peers::{add_scripts, cluster_jobs, runs_here};
pub use quantity::{parse_memory, parse_seconds};
pub(crate) use result_root::md5_of;
pub use result_root::{all_params_md5, result_root, rootfs};
pub use sections::{entries_of, section_order};
pub use stage::{Health, Readiness, Stage};
pub use testbox::{BadTestbox, TboxType, Testbox};
pub use wait::{Condition, WaitSpec, Waited};
