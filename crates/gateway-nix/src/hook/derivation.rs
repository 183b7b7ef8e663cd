//! The file of a derivation: `Derive([outputs],[inputs],[sources],"system","builder",[args],[env])`.

/// The depth of nested values. No derivation has deeper ones.
const DEPTH_MAX: u32 = 8;

/// The parts of a derivation that the hook uses. Unknown is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Derivation {
    /// The store paths of its outputs.
    pub outputs: Vec<String>,
    /// The package's name without its version, if the package gives it.
    pub pname: Option<String>,
    /// True if the build is short and best done where its inputs are.
    pub prefers_local: bool,
    /// True if the build only downloads, so that the hash of its output is known before.
    pub is_fixed_output: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Value {
    Text(Vec<u8>),
    List(Vec<Value>),
}

impl Value {
    fn list(&self) -> &[Value] {
        match self {
            Value::List(items) => items,
            Value::Text(_) => &[],
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            Value::List(_) => None,
        }
    }
}

/// Reads a derivation's file; `None` if it is not valid.
pub fn parse(file: &[u8]) -> Option<Derivation> {
    let mut parser = Parser { rest: file.strip_prefix(b"Derive")? };
    let Value::List(fields) = parser.value(DEPTH_MAX)? else { return None };
    let outputs = fields.first()?.list();
    // An output has a name, a path and, if it is fixed, the way in which its content is hashed.
    let is_fixed_output = outputs.iter().any(|o| {
        let hash = o.list().get(3).and_then(Value::text);
        hash.is_some_and(|hash| !hash.is_empty())
    });
    let paths = outputs.iter().filter_map(|output| output.list().get(1)?.text());
    let env = fields.get(6)?.list();
    let var = |name: &str| {
        let found = env.iter().find(|pair| pair.list().first().and_then(Value::text) == Some(name));
        found.and_then(|pair| pair.list().get(1)?.text())
    };
    // Derivations with structured attributes have them as one text of JSON.
    let attributes = var("__json").and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    let attributes = attributes.unwrap_or_default();
    let pname = var("pname").or_else(|| attributes["pname"].as_str());
    Some(Derivation {
        outputs: paths.filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        pname: pname.filter(|name| !name.is_empty()).map(str::to_owned),
        prefers_local: var("preferLocalBuild") == Some("1") || attributes["preferLocalBuild"] == true,
        is_fixed_output,
    })
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl Parser<'_> {
    fn value(&mut self, depth: u32) -> Option<Value> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match first {
            b'"' => self.text(),
            b'[' => self.list(b']', depth.checked_sub(1)?),
            b'(' => self.list(b')', depth.checked_sub(1)?),
            _ => None,
        }
    }

    fn list(&mut self, end: u8, depth: u32) -> Option<Value> {
        let mut items = Vec::new();
        if self.rest.first() == Some(&end) {
            self.rest = &self.rest[1..];
            return Some(Value::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            let (next, rest) = self.rest.split_first()?;
            self.rest = rest;
            match next {
                b',' => {}
                next if *next == end => return Some(Value::List(items)),
                _ => return None,
            }
        }
    }

    fn text(&mut self) -> Option<Value> {
        let mut text = Vec::new();
        loop {
            let (next, rest) = self.rest.split_first()?;
            self.rest = rest;
            match next {
                b'"' => return Some(Value::Text(text)),
                b'\\' => {
                    let (escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    text.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        other => *other,
                    });
                }
                other => text.push(*other),
            }
        }
    }
}

/// The name of a derivation's file without hash and ending: `hello-2.12` of `/nix/store/HASH-hello-2.12.drv`.
pub fn name_of(drv: &str) -> &str {
    let file = crate::wire::store_name(drv);
    let name = file.strip_suffix(".drv").unwrap_or(file);
    name.split_once('-').map_or(name, |(_, name)| name)
}

/// A name without its version. Like in Nix, the version begins at the first dash that no letter follows.
pub fn without_version(name: &str) -> &str {
    let dash = name
        .bytes()
        .zip(name.bytes().skip(1))
        .position(|(dash, next)| dash == b'-' && !next.is_ascii_alphabetic());
    dash.map_or(name, |dash| &name[..dash])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: &str = r#"Derive([("out","/nix/store/ziy9-hello","","")],[("/nix/store/a.drv",["out"])],["/nix/store/src"],"x86_64-linux","/bin/sh",["-c","echo \"hi\"\n"],[("name","hello-2.12"),("out","/nix/store/ziy9-hello"),("pname","hello"),("preferLocalBuild","1")])"#;

    #[test]
    fn a_derivation_is_read() {
        let hello = parse(HELLO.as_bytes()).unwrap();
        assert_eq!(hello.outputs, ["/nix/store/ziy9-hello"]);
        assert_eq!(
            (hello.pname.as_deref(), hello.prefers_local, hello.is_fixed_output),
            (Some("hello"), true, false)
        );
        let fetched = HELLO.replace(r#""","")],[("#, r#""sha256","abc")],[("#);
        assert!(parse(fetched.as_bytes()).unwrap().is_fixed_output);
    }

    #[test]
    fn names_are_divided_as_nix_does() {
        assert_eq!(name_of("/nix/store/0123-hello-2.12.drv"), "hello-2.12");
        let names =
            ["hello-2.12", "python3.11-foo-bar-1.0-rc1", "a-b", "x-", "linux-6.1"].map(without_version);
        assert_eq!(names, ["hello", "python3.11-foo-bar", "a-b", "x-", "linux"]);
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = format!("Derive{}", "(".repeat(1_000_000));
        assert_eq!(parse(deep.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(cut in 0..HELLO.len(), at in 0..HELLO.len(), byte: u8) {
            let mut bytes = HELLO.as_bytes()[..cut].to_vec();
            parse(&bytes);
            bytes = HELLO.as_bytes().to_vec();
            bytes[at] = byte;
            parse(&bytes);
        }
    }
}
