//! Who should run it: policies made of rules, and what they judge by.

pub mod history;
