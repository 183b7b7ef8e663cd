//! Messages and calls of the Remote Execution API, generated from `proto/`: its part that a cache and trees of files need.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated code has names of the protocol alone"
)]

/// The packages, nested as their names are, because generated code names those of others by their paths.
#[rustfmt::skip]
mod packages {
    pub mod build {
        pub mod bazel {
            pub mod remote {
                pub mod execution {
                    pub mod v2 {
                        include!("generated/build.bazel.remote.execution.v2.rs");
                    }
                }
            }
            pub mod semver {
                include!("generated/build.bazel.semver.rs");
            }
        }
    }
    pub mod google {
        pub mod bytestream {
            include!("generated/google.bytestream.rs");
        }
        pub mod rpc {
            include!("generated/google.rpc.rs");
        }
    }
}

pub use packages::build::bazel::remote::execution::v2 as re;
pub use packages::build::bazel::semver;
pub use packages::google::{bytestream, rpc};
