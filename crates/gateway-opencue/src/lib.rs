//! OpenCue's interface. So far it reads what OpenCue's clients submit: the job spec, an XML document.

pub mod cuebot;
