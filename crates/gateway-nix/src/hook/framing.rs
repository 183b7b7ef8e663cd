//! The protocol between Nix and its build hook, as of every Nix from 2.8 on. Numbers have 64 bits, little endian. A
//! text is its length, its bytes, and zeros up to a multiple of 8. A list is a count and its items.

use std::io::{self, Read, Write};

/// Bytes of one text. Settings may contain long lists.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of everything that Nix sends a hook.
const ALL_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are read at a time, so that a false length costs no memory.
const CHUNK: u64 = 64 << 10;

/// Why Nix's input cannot be read.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum BadInput {
    /// The input ended. Nix ends it when it does not need the hook any more.
    #[error("the input has ended")]
    Ended,
    #[error("not Nix's hook protocol: {0}")]
    Form(&'static str),
    #[error("cannot read from Nix: {0}")]
    Read(io::Error),
}

/// Nix's question whether the hook accepts a derivation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Try {
    /// True if Nix has a free slot for a local build.
    pub is_willing: bool,
    /// The system of the derivation.
    pub system: String,
    /// The store path of the derivation.
    pub drv: String,
    /// The features that the derivation requires.
    pub features: Vec<String>,
}

/// A reader of Nix's input.
pub struct Reader<R> {
    from: R,
    left: u64,
}

impl<R: Read> Reader<R> {
    /// A reader that has read nothing yet.
    pub fn new(from: R) -> Self {
        Reader { from, left: ALL_BYTES_MAX }
    }

    fn exact(&mut self, into: &mut [u8]) -> Result<(), BadInput> {
        let bytes = into.len() as u64;
        self.left =
            self.left.checked_sub(bytes).ok_or(BadInput::Form("it is longer than any hook's input"))?;
        self.from.read_exact(into).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => BadInput::Ended,
            _ => BadInput::Read(e),
        })
    }

    fn number(&mut self) -> Result<u64, BadInput> {
        let mut bytes = [0; 8];
        self.exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, BadInput> {
        let length = self.number()?;
        if length > TEXT_BYTES_MAX {
            return Err(BadInput::Form("a text is too long"));
        }
        let mut text = Vec::new();
        while (text.len() as u64) < length {
            let start = text.len();
            text.resize(start + (length - start as u64).min(CHUNK) as usize, 0);
            self.exact(&mut text[start..])?;
        }
        let mut padding = [0; 8];
        let padded = (8 - length % 8) as usize % 8;
        self.exact(&mut padding[..padded])?;
        if padding != [0; 8] {
            return Err(BadInput::Form("a text is not followed by zeros"));
        }
        Ok(text)
    }

    fn text(&mut self) -> Result<String, BadInput> {
        String::from_utf8(self.bytes()?).map_err(|_| BadInput::Form("a text is not UTF-8"))
    }

    /// Reads a list of texts.
    pub fn texts(&mut self) -> Result<Vec<String>, BadInput> {
        let count = self.number()?;
        let mut texts = Vec::new();
        // Each text takes bytes, and their sum is bounded. So a false count ends with an error.
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    /// Reads all settings of Nix, including secrets. They are for Nix's own hook; this hook reads only a few.
    pub fn settings(&mut self) -> Result<Settings, BadInput> {
        let mut all = Vec::new();
        loop {
            match self.number()? {
                0 => return Ok(Settings(all)),
                1 => all.push((self.bytes()?, self.bytes()?)),
                _ => return Err(BadInput::Form("what follows a setting is neither a setting nor the end")),
            }
        }
    }

    /// Reads the next question.
    pub fn question(&mut self) -> Result<Try, BadInput> {
        let mut first = [0; 1];
        match self.from.read(&mut first) {
            Ok(0) => return Err(BadInput::Ended),
            Ok(_) => {}
            Err(e) => return Err(BadInput::Read(e)),
        }
        let mut rest = [0; 15];
        self.exact(&mut rest)?;
        if first[0] != 3 || rest != *b"\0\0\0\0\0\0\0try\0\0\0\0\0" {
            return Err(BadInput::Form("the question is not 'try'"));
        }
        let is_willing = self.number()? != 0;
        Ok(Try { is_willing, system: self.text()?, drv: self.text()?, features: self.texts()? })
    }
}

/// The settings of Nix. They are shown nowhere, and sent to Nix's own hook only.
#[derive(Clone, Default)]
pub struct Settings(Vec<(Vec<u8>, Vec<u8>)>);

/// The settings that this hook reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// `builders`: the client's machines.
    Builders,
    /// `system`: the client's own system.
    System,
    /// `cores`: cpus for each build.
    Cores,
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Builders => "builders",
            Setting::System => "system",
            Setting::Cores => "cores",
        }
    }
}

impl Settings {
    /// The value of a setting; `None` if Nix did not send it.
    pub fn get(&self, setting: Setting) -> Option<&str> {
        let mut found = self.0.iter().filter(|(name, _)| name == setting.name().as_bytes());
        found.next().and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Writes all settings, with `builders` in the place of Nix's own if it is given.
    pub fn write(&self, builders: Option<&str>, to: &mut impl Write) -> io::Result<()> {
        let mut is_written = false;
        for (name, value) in &self.0 {
            let own = name == Setting::Builders.name().as_bytes();
            is_written |= own;
            let value = builders.filter(|_| own).map_or(value.as_slice(), str::as_bytes);
            write_setting(name, value, to)?;
        }
        if let Some(builders) = builders.filter(|_| !is_written) {
            write_setting(Setting::Builders.name().as_bytes(), builders.as_bytes(), to)?;
        }
        number(0, to)
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} settings", self.0.len())
    }
}

fn write_setting(name: &[u8], value: &[u8], to: &mut impl Write) -> io::Result<()> {
    number(1, to)?;
    bytes(name, to)?;
    bytes(value, to)
}

fn number(n: u64, to: &mut impl Write) -> io::Result<()> {
    to.write_all(&n.to_le_bytes())
}

fn bytes(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    number(text.len() as u64, to)?;
    to.write_all(text)?;
    to.write_all(&[0; 8][..(8 - text.len() % 8) % 8])
}

/// Writes a list of texts in Nix's protocol.
pub fn texts(all: &[String], to: &mut impl Write) -> io::Result<()> {
    number(all.len() as u64, to)?;
    all.iter().try_for_each(|text| bytes(text.as_bytes(), to))
}

impl Try {
    /// Writes the question in Nix's protocol.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        bytes(b"try", to)?;
        number(self.is_willing.into(), to)?;
        bytes(self.system.as_bytes(), to)?;
        bytes(self.drv.as_bytes(), to)?;
        texts(&self.features, to)
    }
}
