//! What tests of the scheduler share.

#![allow(dead_code)]

pub mod postgres;
pub mod rqd;
