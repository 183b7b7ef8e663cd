//! What tests of the scheduler share.

#![allow(dead_code)]

#[path = "../../../cuebot/tests/support/postgres.rs"]
pub mod postgres;
pub mod rqd;
