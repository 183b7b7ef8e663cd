//! Circles between files: files of a crate that use each other, directly or through others. A reader of one of them has
//! to read all, so they are one file in several pieces.
//!
//! A file uses another if it names an item of that one by a path that begins with `crate`, `super`, `self` or a module
//! inside it. Where the path leads to a re-export, the file that defines the item counts.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, is_inside_name};

#[test]
fn files_use_each_other_in_one_direction() {
    let mut crates: BTreeMap<String, Sources> = BTreeMap::new();
    for (path, text) in files(".rs") {
        let Some((of, inside)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        // A file of tests alone may start whatever it tests.
        let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/");
        if !is_test && !inside.starts_with("generated") {
            crates.entry(of.to_owned()).or_default().add(inside, &text);
        }
    }
    let mut found = Vec::new();
    for (name, sources) in &crates {
        let uses: Vec<BTreeSet<usize>> = (0..sources.files.len()).map(|file| sources.uses_of(file)).collect();
        for circle in circles(&uses) {
            let paths: Vec<&str> = circle.iter().map(|file| sources.files[*file].path.as_str()).collect();
            found.push(format!("{name}: {}", paths.join(", ")));
        }
    }
    assert!(found.is_empty(), "circles between files:\n{}", found.join("\n"));
}

/// The files of one crate.
#[derive(Default)]
struct Sources {
    files: Vec<SourceFile>,
    by_module: BTreeMap<Vec<String>, usize>,
}

struct SourceFile {
    /// From the sources' directory.
    path: String,
    module: Vec<String>,
    /// Without comments, tests and `use`.
    code: String,
    imports: Vec<Import>,
    defines: BTreeSet<String>,
}

/// What a `use` brings into a file.
struct Import {
    path: Vec<String>,
    /// The name that it has there, or `*`.
    name: String,
    is_public: bool,
}

impl Sources {
    fn add(&mut self, path: &str, text: &str) {
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let mut module: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| last == "mod") || module == ["lib"] || module == ["main"] {
            module.pop();
        }
        let (code, imports) = without_imports(&text);
        let defines = code.lines().filter_map(defined).map(str::to_owned).collect();
        self.by_module.insert(module.clone(), self.files.len());
        self.files.push(SourceFile { path: path.to_owned(), module, code, imports, defines });
    }

    /// The files whose items this one names.
    fn uses_of(&self, file: usize) -> BTreeSet<usize> {
        let SourceFile { module, code, imports, .. } = &self.files[file];
        let mut uses = BTreeSet::new();
        for import in imports {
            // A re-export is for others, unless the file names it itself.
            if !import.is_public || has_name(code, &import.name) {
                uses.extend(self.resolve(module, &import.path, 0));
            }
        }
        uses.extend(paths_in(code).into_iter().filter_map(|path| self.resolve(module, &path, 0)));
        uses.remove(&file);
        uses
    }

    /// The file to which a path leads that a module names; `None` if it leaves the crate.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<usize> {
        let mut at = from.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                at.push(first.to_owned());
                self.by_module.get(&at)?;
                at.pop();
            }
        }
        while let Some(next) = rest.first() {
            at.push(next.clone());
            if !self.by_module.contains_key(&at) {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        let found = *self.by_module.get(&at)?;
        let Some(name) = rest.first() else { return Some(found) };
        let SourceFile { imports, defines, .. } = &self.files[found];
        // A re-export may lead to another one; none is longer than a few.
        if name == "*" || defines.contains(name) || depth > 8 {
            return Some(found);
        }
        if let Some(import) = imports.iter().find(|import| import.name == *name) {
            return self.resolve(&at, &import.path, depth + 1).or(Some(found));
        }
        let of_all = imports.iter().filter(|import| import.name == "*").find_map(|import| {
            let mut path = import.path.clone();
            path.pop();
            path.push(name.clone());
            self.resolve(&at, &path, depth + 1).filter(|to| self.files[*to].defines.contains(name))
        });
        of_all.or(Some(found))
    }
}

/// The code without its imports, and these.
fn without_imports(text: &str) -> (String, Vec<Import>) {
    let (mut code, mut imports) = (String::new(), Vec::new());
    let mut open: Option<(String, bool)> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let (visibility, statement) = match trimmed.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ").map_or(("", trimmed), |(_, rest)| ("pub", rest)),
            None => trimmed.strip_prefix("pub ").map_or(("", trimmed), |rest| ("pub", rest)),
        };
        if open.is_none()
            && let Some(tree) = statement.strip_prefix("use ")
        {
            open = Some((tree.to_owned(), visibility == "pub"));
        } else if let Some((tree, _)) = &mut open {
            tree.push_str(line);
        } else {
            code.push_str(line);
            code.push('\n');
        }
        if let Some((tree, is_public)) = open.take_if(|(tree, _)| tree.contains(';')) {
            expand(tree.trim_end_matches(';'), &[], is_public, &mut imports);
        }
    }
    (code, imports)
}

/// The imports of a tree such as `a::{b, c::{self, d as e}}`.
fn expand(tree: &str, before: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim().trim_end_matches(';');
    let mut path = before.to_vec();
    let Some((head, inner)) = tree.split_once('{') else {
        let (of, name) = tree.split_once(" as ").map_or((tree, None), |(of, name)| (of, Some(name)));
        path.extend(of.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = name.map(|name| name.trim().to_owned()).or_else(|| path.last().cloned());
        imports.extend(name.map(|name| Import { path, name, is_public }));
        return;
    };
    path.extend(head.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
    let inner = &inner[..inner.rfind('}').unwrap_or(inner.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    expand(&inner[start..at], &path, is_public, imports);
                }
                start = (at + 1).min(inner.len());
            }
            _ => {}
        }
    }
}

/// The name of the item that a line at the margin defines.
fn defined(line: &str) -> Option<&str> {
    let mut words =
        line.split(' ').skip_while(|word| word.starts_with("pub") || ["unsafe", "async"].contains(word));
    let kind = match words.next()? {
        "const" if line.contains(" fn ") => words.find(|word| *word == "fn")?,
        kind => kind,
    };
    let kinds = ["struct", "enum", "fn", "trait", "type", "const", "static", "union", "macro_rules!"];
    let name = words.next().filter(|_| kinds.contains(&kind))?;
    let end = name.find(|c: char| !is_inside_name(c)).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| !name.is_empty())
}

/// The paths of at least two parts that a file names in its code.
fn paths_in(code: &str) -> BTreeSet<Vec<String>> {
    let mut paths = BTreeSet::new();
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at].rfind(|c: char| !is_inside_name(c)).map_or(0, |before| before + 1);
        let end =
            rest[at..].find(|c: char| !is_inside_name(c) && c != ':').map_or(rest.len(), |end| at + end);
        let parts = rest[start..end].split("::").filter(|part| !part.is_empty());
        // What stands after `>` or `)` is a name of a type's.
        if start < at {
            paths.insert(parts.map(|part| part.trim_end_matches(':').to_owned()).collect());
        }
        rest = &rest[end.max(at + 2)..];
    }
    paths
}

/// True if the code names it, and not as a part of a path that begins elsewhere.
fn has_name(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        !before.ends_with(|c: char| is_inside_name(c) || c == ':') && !after.starts_with(is_inside_name)
    })
}

/// The sets of more than one file that all use each other, directly or through others (Tarjan 1972).
fn circles(uses: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut walk = Walk { uses, order: vec![None; uses.len()], low: vec![0; uses.len()], ..Walk::default() };
    for file in 0..uses.len() {
        if walk.order[file].is_none() {
            walk.visit(file);
        }
    }
    walk.found
}

#[derive(Default)]
struct Walk<'a> {
    uses: &'a [BTreeSet<usize>],
    /// When each file was reached.
    order: Vec<Option<usize>>,
    /// The earliest file that each can get back to.
    low: Vec<usize>,
    reached: usize,
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Walk<'_> {
    fn visit(&mut self, file: usize) {
        let own = self.reached;
        self.reached += 1;
        (self.order[file], self.low[file]) = (Some(own), own);
        self.open.push(file);
        for used in self.uses[file].iter().copied() {
            match self.order[used] {
                None => {
                    self.visit(used);
                    self.low[file] = self.low[file].min(self.low[used]);
                }
                Some(order) if self.open.contains(&used) => self.low[file] = self.low[file].min(order),
                Some(_) => {}
            }
        }
        if self.low[file] == own {
            let first = self.open.iter().rposition(|open| *open == file).unwrap();
            let mut circle = self.open.split_off(first);
            if circle.len() > 1 {
                circle.sort_unstable();
                self.found.push(circle);
            }
        }
    }
}

#[test]
fn a_circle_of_three_files_is_found() {
    let mut sources = Sources::default();
    sources.add("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Cut;\n");
    sources.add("a.rs", "use crate::b::{self, Low as Other};\npub struct High;\n");
    sources.add("b.rs", "pub struct Low(crate::Cut);\n");
    sources.add("c.rs", "use super::a::High;\npub struct Cut;\n// use crate::b;\n");
    let uses: Vec<BTreeSet<usize>> = (0..4).map(|file| sources.uses_of(file)).collect();
    assert_eq!(uses, [vec![], vec![2], vec![3], vec![1]].map(BTreeSet::from_iter));
    assert_eq!(circles(&uses), [[1, 2, 3]]);
}
