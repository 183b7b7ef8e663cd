//! Compass CI's interface, by clients, providers and machines written against its description alone, over
//! real connections to a real server.

mod ambiguities;
mod boots;
mod clusters;
mod farm;
mod flow;
mod lab;
mod losses;
mod matching;
mod refusals;
mod uploads;
